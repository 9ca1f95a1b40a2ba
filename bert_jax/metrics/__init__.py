"""Scores of answers against labels: classes and numbers, entities, spans, rankings."""
