"""Gemma 3 with attention to both sides, as in EmbeddingGemma."""
