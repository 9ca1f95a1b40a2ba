"""The HTTP server of `bert-jax serve`: routes, dynamic batching over static shapes, limits.

`serve` runs it; the APIs are OpenAI's embeddings, text-embeddings-inference, rerank as in Cohere and Jina, and the Open
Inference Protocol v2.
"""
