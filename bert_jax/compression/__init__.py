"""Compression: finished models made smaller."""
