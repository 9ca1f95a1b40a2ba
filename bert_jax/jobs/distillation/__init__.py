"""Distillation: a task whose model also learns from a teacher."""
