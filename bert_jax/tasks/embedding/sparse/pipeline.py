"""Pipelines over sparse embeddings: weights of the tokens of the vocabulary (SPLADE; Formal et al. 2021,
arXiv:2107.05720)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.inference.base import Pipeline, as_texts, positive, progress_bar
from bert_jax.inference.similarity import similarities, without_single_axes


class SparseEmbedding(Pipeline):
    """Sparse embeddings: one weight per text for each token of the vocabulary, most of them 0."""

    head = "sparse_embedding"

    def __call__(
        self,
        texts: str | Sequence[str],
        truncation: bool = True,
        *,
        task: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        max_active_dims: int | None = None,
        progress: bool = False,
    ) -> Any:
        """Embed texts as sparse vectors.

        Args:
            texts: one text or a list of N texts.
            truncation: whether to cut texts over the model's `max_length`; otherwise they are an error.
            task: `query` or `document`, whose prompt is put before each text; None = the default prompt.
            prompt_name: name of the model's prompt to put before each text, instead; "" = none.
            prompt: text to put before each text, instead of a named prompt.
            max_active_dims: number of greatest weights to keep in each vector; None = from the model's files.
            progress: whether to show a progress bar on stderr.

        Returns:
            A `scipy.sparse.csr_array` of float32, `[N, V]`; for one text `[1, V]`. No weight is negative.

        Raises:
            InputError: an item is no text or is too long, or the prompt does not exist.
        """
        listed, text = as_texts(texts), self.model.settings.prompt_of_task(task, prompt_name, prompt)
        with progress_bar(len(listed), progress) as advance:
            return self._sparse(listed, text, truncation, max_active_dims, advance)

    def decode(self, vectors: Any, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """Return the tokens of sparse vectors `[N, V]` and their weights, the greatest first, like ST's `decode`.

        Args:
            vectors: sparse vectors of this model.
            top_k: number of tokens per vector; None = all with a weight.
        """
        top_k = None if top_k is None else positive("top_k", top_k)
        found = []
        for start, end in zip(vectors.indptr[:-1], vectors.indptr[1:], strict=True):
            ids, weights = vectors.indices[start:end], vectors.data[start:end]
            best = np.argsort(-weights, kind="stable")[:top_k]
            found.append([(self.tokenizer.id_to_token(int(ids[i])), float(weights[i])) for i in best])
        return found

    def _sparse(
        self,
        texts: list[str],
        prompt: str,
        truncation: bool = True,
        max_active_dims: int | None = None,
        advance: Callable[[int], None] = lambda rows: None,
    ) -> Any:
        """Return sparse embeddings `[N, V]` of texts behind a prompt; `advance` is called as each batch is done."""
        if max_active_dims is None:
            max_active_dims = self.model.settings.max_active_dims
        else:
            positive("max_active_dims", max_active_dims)
        indices: list[np.ndarray] = [np.zeros(0, np.int32)] * len(texts)
        weights: list[np.ndarray] = [np.zeros(0, np.float32)] * len(texts)
        lexical = self.model.config.pooling == "lexical"
        field = "token_weights" if lexical else "sentence_embedding"
        for window, inputs in self._windows(texts, truncation=truncation, prompt=prompt):
            for rows, _, output in self._batches(inputs, (field,)):
                for row, vector in zip(rows, np.asarray(output[field]), strict=True):
                    found = self._of_tokens(inputs["input_ids"][row], vector) if lexical else vector
                    indices[window[row]], weights[window[row]] = active(found, max_active_dims)
                advance(len(rows))
        return as_csr(indices, weights, self.model.config.vocab_size)

    def _of_tokens(self, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return for each token of the vocabulary its greatest weight `[V]` in a text; 0 for special tokens."""
        vector = np.zeros(self.model.config.vocab_size, np.float32)
        np.maximum.at(vector, ids[: len(weights)], weights)
        own = self.tokenizer
        vector[[own.pad_id, own.cls_id, own.sep_id, *(i for i in own.special_ids if own.is_unknown(i))]] = 0
        return vector


class SparseSimilarity(SparseEmbedding):
    """Similarity of texts: the dot product of their sparse embeddings, or the similarity that the files name."""

    def __call__(  # type: ignore[override]
        self,
        first: str | Sequence[str],
        second: str | Sequence[str],
        truncation: bool = True,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        max_active_dims: int | None = None,
    ) -> Any:
        """Return similarities; arguments as for `SparseEmbedding`, results as for `Similarity`."""
        text = self.model.settings.prompt(prompt_name, prompt)
        vectors = [self._sparse(as_texts(texts), text, truncation, max_active_dims) for texts in (first, second)]
        return without_single_axes(similarities(self.model.settings.similarity, *vectors), first, second)


def active(vector: np.ndarray, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the dimensions of a vector `[V]` that are not 0, rising, and their values; of many, the `most` greatest.

    Of equal values the first dimensions are kept.
    """
    (indices,) = np.nonzero(vector)
    if most is not None and len(indices) > most:
        indices = np.sort(indices[np.argsort(-vector[indices], kind="stable")[:most]])
    return indices.astype(np.int32), vector[indices]


def as_csr(indices: Sequence[np.ndarray], weights: Sequence[np.ndarray], size: int) -> Any:
    """Return rows of dimensions and weights as a `scipy.sparse.csr_array` `[N, size]`."""
    from scipy import sparse  # slow to import

    starts = np.cumsum([0, *map(len, indices)])
    data, columns = (np.concatenate([*rows, np.zeros(0, kind)]).astype(kind, copy=False)
                     for rows, kind in ((weights, np.float32), (indices, np.int32)))  # fmt: skip
    return sparse.csr_array((data, columns, starts), shape=(len(indices), size))
