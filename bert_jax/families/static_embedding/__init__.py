"""Static embeddings."""
