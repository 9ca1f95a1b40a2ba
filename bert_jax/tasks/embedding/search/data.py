"""The reader of retrieval sets, `bert_jax.data.retrieval_sets`, under its former name."""

from bert_jax.data.retrieval_sets import RetrievalSet, read_retrieval_set

__all__ = ["RetrievalSet", "read_retrieval_set"]
