"""Sparse embeddings: weights of the tokens of the vocabulary (SPLADE; Formal et al. 2021,
arXiv:2107.05720)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.inference.base import check_option, positive, progress_bar
from bert_jax.inference.sparse_vectors import active, lexical_vector
from bert_jax.tasks.embedding.embedder import Embedder


class SparseEmbedding(Embedder):
    """Sparse embeddings: for each text, weights of the tokens of the vocabulary, at least 0 and mostly 0.

    A call returns a `scipy.sparse.csr_array` of float32, `[N, V]`; for one text `[1, V]`.
    """

    head = "sparse_embedding"

    def decode(self, vectors: Any, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """Return tokens and weights of each vector, the greatest first, like `decode` of sentence-transformers.

        Args:
            vectors: sparse vectors of this model, `[N, V]`.
            top_k: number of tokens per vector; None = all with a weight.
        """
        top_k = None if top_k is None else positive("top_k", top_k)
        decoded = []
        for start, end in zip(vectors.indptr[:-1], vectors.indptr[1:], strict=True):
            ids, weights = vectors.indices[start:end], vectors.data[start:end]
            best = np.argsort(-weights, kind="stable")[:top_k]
            decoded.append([(self.tokenizer.id_to_token(int(ids[i])), float(weights[i])) for i in best])
        return decoded

    def _embed(
        self, texts: list[str], prompt: str, size: int | None, task: str | None, truncation: bool, progress: bool
    ) -> Any:
        if self.model.config.query_weights and (task or self.model.settings.default_route) == "query":
            from bert_jax.tasks.embedding.sparse.static_queries import look_up_queries

            check_option("prompt", prompt)
            found = look_up_queries(self.model, texts, prompt, size, truncation)
            return as_csr(*found, self.model.config.vocab_size)
        indices: list[np.ndarray] = [np.zeros(0, np.int32)] * len(texts)
        weights: list[np.ndarray] = [np.zeros(0, np.float32)] * len(texts)
        lexical, vocab_size = self.model.config.pooling == "lexical", self.model.config.vocab_size
        field = "token_weights" if lexical else "sentence_embedding"
        with progress_bar(len(texts), progress) as advance:
            for window, inputs in self._windows(texts, truncation=truncation, prompt=prompt):
                for rows, _, output in self._batches(inputs, (field,)):
                    for row, values in zip(rows, np.asarray(output[field]), strict=True):
                        ids = inputs["input_ids"][row]
                        vector = lexical_vector(self.tokenizer, ids, values, vocab_size) if lexical else values
                        indices[window[row]], weights[window[row]] = active(vector, size)
                    advance(len(rows))
        return as_csr(indices, weights, vocab_size)


def as_csr(indices: Sequence[np.ndarray], weights: Sequence[np.ndarray], size: int) -> Any:
    """Return rows of dimensions and weights as a `scipy.sparse.csr_array` `[N, size]`."""
    from scipy import sparse  # slow to import

    starts = np.cumsum([0, *map(len, indices)])
    data, columns = (np.concatenate([*rows, np.zeros(0, kind)]).astype(kind, copy=False)
                     for rows, kind in ((weights, np.float32), (indices, np.int32)))  # fmt: skip
    return sparse.csr_array((data, columns, starts), shape=(len(indices), size))
