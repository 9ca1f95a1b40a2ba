"""Nomic BERT, dense and with experts."""
