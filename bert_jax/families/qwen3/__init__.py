"""Qwen3 as an encoder of texts, as in Qwen3-Embedding and Qwen3-Reranker."""
