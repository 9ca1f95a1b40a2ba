"""`Embedder`, the base class of pipelines that embed texts, and `SentenceEmbedding`."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_texts, positive, progress_bar

_HEAD_OF_SIZE = {"truncate_dim": "sentence_embedding", "max_active_dims": "sparse_embedding"}  # option -> head


class Embedder(Pipeline):
    """Base class of pipelines that embed texts; a subclass turns the model's outputs into vectors."""

    def __call__(
        self,
        texts: str | Sequence[str],
        truncation: bool = True,
        *,
        task: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        max_active_dims: int | None = None,
        progress: bool = False,
    ) -> Any:
        """Embed texts.

        Args:
            texts: one text or a list of N texts.
            truncation: whether to cut texts over the model's `max_length`; otherwise they are an error.
            task: `query` or `document`, whose prompt is put before each text; None = the default prompt.
            prompt_name: name of the prompt to put before each text, instead of the task's; "" = none.
            prompt: text to put before each text, instead of a named prompt.
            truncate_dim: number of leading dimensions of a dense vector to keep; None = from the model's files.
            max_active_dims: number of greatest weights of a sparse vector to keep; None = from the model's files.
            progress: whether to show a progress bar on stderr.

        Returns:
            The vectors, in the format of the class.

        Raises:
            InputError: an item is no text or is too long, the prompt does not exist, or a size does not fit the model.
        """
        text = self.model.settings.prompt_of_task(task, prompt_name, prompt)
        size = self._size(truncate_dim=truncate_dim, max_active_dims=max_active_dims)
        vectors = self._embed(as_texts(texts), text, size, task, truncation, progress)
        return vectors[0] if isinstance(texts, str) and self.head != "sparse_embedding" else vectors

    @abc.abstractmethod
    def _embed(
        self, texts: list[str], prompt: str, size: int | None, task: str | None, truncation: bool, progress: bool
    ) -> Any:
        """Return the vectors of texts with a prompt, truncated to `size`."""

    def _size(self, **sizes: int | None) -> int | None:
        """Return the size to truncate vectors to. Raises InputError for a size of other embeddings."""
        chosen = None
        for name, head in _HEAD_OF_SIZE.items():
            size = sizes.get(name)
            if head == self.head:
                chosen = getattr(self.model.settings, name) if size is None else positive(name, size)
            elif size is not None:
                expected, found = (kind.replace("_", " ") for kind in (head, self.head))
                raise InputError(f"{name}: expected a model of {expected}s, found one of {found}s")
        return chosen


class SentenceEmbedding(Embedder):
    """Sentence embeddings (Reimers and Gurevych 2019, arXiv:1908.10084): `[N, D]`, or `[D]` for one text; float32."""

    head = "sentence_embedding"

    def _embed(
        self, texts: list[str], prompt: str, size: int | None, task: str | None, truncation: bool, progress: bool
    ) -> np.ndarray:
        config = self.model.config
        skip = self.model.settings.pooling_skip(self.tokenizer, prompt, self.model.max_length)
        model = dataclasses.replace(self.model, config=config.replace(pooling_skip=skip)) if skip else None
        vectors = np.zeros((len(texts), config.sentence_embedding_size), np.float32)
        with progress_bar(len(texts), progress) as advance:
            for window, inputs in self._windows(texts, truncation=truncation, prompt=prompt):
                for rows, _, output in self._batches(inputs, ("sentence_embedding",), model):
                    vectors[rows + window.start] = output.sentence_embedding
                    advance(len(rows))
        return vectors[:, :size]
