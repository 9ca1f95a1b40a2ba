"""ERNIE."""
