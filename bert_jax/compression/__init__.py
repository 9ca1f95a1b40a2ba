"""Compression: make a model smaller or faster."""
