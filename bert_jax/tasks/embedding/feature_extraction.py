"""The pipeline feature-extraction: the last hidden state of every token."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.inference.base import Pipeline, as_texts


class FeatureExtraction(Pipeline):
    """The last hidden state of every token."""

    head = "encoder"

    def __call__(self, texts: str | Sequence[str], truncation: bool = False) -> Any:
        """Return the last hidden states.

        Args:
            texts: one text or a list of texts.
            truncation: whether to cut texts over the model's limit; otherwise they are an error.

        Returns:
            float32 `[S, D]` for one text, with special tokens and without padding; a list of these for a list.

        Raises:
            InputError: an item is no text, or is too long.
        """
        texts_to_read = as_texts(texts)
        answers: list[Any] = [None] * len(texts_to_read)
        for window, inputs in self._windows(texts_to_read, truncation=truncation):
            for rows, lengths, output in self._batches(inputs, ("last_hidden_state",)):
                assert output.last_hidden_state is not None
                for row, length, states in zip(rows, lengths, output.last_hidden_state, strict=True):
                    answers[window[row]] = np.array(states[:length])
        return answers[0] if isinstance(texts, str) else answers
