"""What every pipeline does: texts in batches of similar length, answers in the order of the texts."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.model import PretrainedModel
from bert_jax.modeling import BertOutput
from bert_jax.tokenization import Tokenizer

# Texts that are tokenized and sorted by length together: enough to fill batches evenly, few enough to hold.
_WINDOW = 4096


class Pipeline(abc.ABC):
    """A model that takes text. Texts go through it in batches of similar length; answers come in the texts' order.

    Attributes:
        model: what answers.
        batch_size: texts in one forward pass, at most.
    """

    head: ClassVar[str]  # the head whose outputs it reads

    def __init__(self, model: PretrainedModel, batch_size: int = 32):
        if not isinstance(batch_size, int) or batch_size < 1:
            raise InputError(f"batch_size: expected a positive integer, found {batch_size!r}")
        if model.tokenizer is None:
            raise InputError("expected a model with a tokenizer, found none in its directory")
        self.model = model
        self.batch_size = batch_size
        self.tokenizer: Tokenizer = model.tokenizer

    @abc.abstractmethod
    def __call__(self, *texts: Any, **options: Any) -> Any:
        """Answers for one text or a list of them."""

    def _windows(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, truncation: bool = False
    ) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
        """Yields runs of texts as their places in the list and their padded arrays."""
        for start in range(0, len(texts), _WINDOW):
            window = range(start, min(start + _WINDOW, len(texts)))
            inputs = self.tokenizer(
                texts[start : window.stop],
                None if pairs is None else pairs[start : window.stop],
                max_length=self.model.max_length if truncation else None,
                truncation=truncation,
            )
            lengths = inputs["attention_mask"].sum(axis=1)
            if (longest := int(lengths.max())) > self.model.config.max_position_embeddings:
                raise InputError(
                    f"text {start + int(lengths.argmax())}: expected at most the model's "
                    f"{self.model.config.max_position_embeddings} positions, found {longest} tokens"
                )
            yield window, inputs

    def _batches(
        self, inputs: dict[str, np.ndarray], fields: tuple[str, ...]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, BertOutput]]:
        """Yields the rows of each batch, their lengths in tokens, and the model's outputs for them."""
        lengths = inputs["attention_mask"].sum(axis=1)
        order = np.argsort(-lengths, kind="stable")  # the longest first: if memory is short, that shows at once
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            longest = lengths[rows].max()
            batch = {
                name: array[rows] if name == "masked_positions" else array[rows, :longest]
                for name, array in inputs.items()
            }
            yield rows, lengths[rows], self.model.run(batch, fields)


def as_texts(texts: str | Sequence[str]) -> list[str]:
    """One text or several, as a list. Raises InputError when they are no strings."""
    listed = [texts] if isinstance(texts, str) else list(texts)
    for i, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(f"text {i}: expected a string, found {type(text).__name__}")
    return listed


def as_pairs(items: list[Any]) -> tuple[list[str], list[str] | None]:
    """Texts and their pairs, or None when there are none. Raises InputError when they are neither."""
    if all(isinstance(item, str) for item in items):
        return items, None
    for i, item in enumerate(items):
        if not isinstance(item, dict) or set(item) != {"text", "text_pair"}:
            raise InputError(
                f"text {i}: expected strings only, or dicts of 'text' and 'text_pair' only, found {item!r}"
            )
    return as_texts([item["text"] for item in items]), as_texts([item["text_pair"] for item in items])


def positive(name: str, value: Any) -> int:
    """The value of an option. Raises InputError when it is no positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}: expected a positive integer, found {value!r}")
    return value


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis, in float64."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
