"""Metrics of predictions against labels: classes and numbers, entities, answer spans, rankings."""
