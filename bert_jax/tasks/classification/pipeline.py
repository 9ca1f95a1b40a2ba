"""The pipeline text-classification: classes of texts or pairs of texts, or a number for each."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.data.finetuning.windows import averaged, text_windows
from bert_jax.errors import InputError, TextError
from bert_jax.inference.base import Pipeline, as_list, as_texts, positive
from bert_jax.inference.padded_rows import padded_rows
from bert_jax.inference.scoring import scores_of

_LONG_TEXTS = 256  # texts whose windows are in memory together


class TextClassification(Pipeline):
    """Classification of texts or pairs of texts, or regression."""

    head = "sequence_classification"

    def __call__(
        self,
        texts: Any,
        top_k: int | None = 1,
        truncation: bool = False,
        windows: bool = False,
        doc_stride: int = 0,
        max_length: int = 0,
    ) -> list[Any]:
        """Return labels and scores.

        Args:
            texts: a text, a pair as `{"text": ..., "text_pair": ...}`, or a list of either.
            top_k: number of classes per text, the most likely first; None means all.
            truncation: whether to cut texts over the model's limit; otherwise they are an error.
            windows: whether to split long texts into overlapping windows, and to average their logits, weighted by
                their numbers of tokens.
            doc_stride: tokens from the start of one window to the start of the next; 0 = half a window.
            max_length: tokens in a window, with special tokens; 0 = the model's limit.

        Returns:
            For each text a dict of `label` and `score`, or a list of dicts if `top_k` is not 1. The score is a softmax
            over the classes; a sigmoid for multi-label models and for models with one output; the value itself for a
            regression; or the activation that the model's files name (`bert_jax.inference.scoring.score_activation`).

        Raises:
            InputError: an item is no text or pair, or is too long.
        """
        count = self.model.config.num_labels if top_k is None else positive("top_k", top_k)
        single = isinstance(texts, (str, dict))
        first, second = _as_pairs([texts] if single else as_list(texts))
        if windows and second is not None:
            raise InputError("windows: expected single texts, found pairs; use truncation (--long-texts cut) for them")
        limit = self.model.max_length
        if doc_stride < 0 or (max_length and not 4 <= max_length <= limit):
            raise InputError(
                f"expected a doc_stride of at least 0 and a max_length of 4 to {limit} tokens (or 0), "
                f"found {doc_stride} and {max_length}"
            )
        names: Sequence[str] = self.model.config.label_names
        answers: list[Any] = []
        parts = (
            self._long(first, max_length or limit, doc_stride) if windows else self._short(first, second, truncation)
        )
        for logits in parts:
            scores = scores_of(self.model.config, logits, self.model.settings.activation)
            best = np.argsort(-scores, axis=-1, kind="stable")[:, :count]
            answers += [
                [{"label": names[i], "score": float(row[i])} for i in at] for row, at in zip(scores, best, strict=True)
            ]
        if top_k == 1:
            return [answer[0] for answer in answers]
        return answers[0] if single else answers

    def _short(self, texts: Sequence[str], pairs: Sequence[str] | None, truncation: bool) -> Iterator[np.ndarray]:
        """Yield the logits `[n, C]` of texts or pairs, chunk by chunk."""
        for _, inputs in self._windows(texts, pairs, truncation, self.model.settings.prompt()):
            yield self._rows_of(inputs, "logits")

    def _long(self, texts: Sequence[str], max_length: int, doc_stride: int) -> Iterator[np.ndarray]:
        """Yield the logits `[n, C]` of texts that are split into windows, chunk by chunk."""
        for start in range(0, len(texts), _LONG_TEXTS):
            prompt = self.model.settings.prompt()
            ids = self.tokenizer.encode_batch([prompt + text for text in texts[start : start + _LONG_TEXTS]])
            rows, numbers = text_windows(ids, self.tokenizer.layout, max_length, doc_stride)
            logits = self._rows_of(padded_rows(rows, self.tokenizer.pad_id), "logits")
            yield averaged(logits, numbers, np.array([len(row) for row in rows]))


def _as_pairs(items: list[Any]) -> tuple[list[str], list[str] | None]:
    """Return first texts and second texts (None for single texts).

    Raises:
        InputError: the items are neither all strings nor all dicts of `text` and `text_pair`.
    """
    kind = dict if items and isinstance(items[0], dict) else str
    for i, item in enumerate(items):
        if not isinstance(item, kind) or (kind is dict and set(item) != {"text", "text_pair"}):
            expected = "expected strings only, or dicts of 'text' and 'text_pair' only"
            raise TextError(i, f"{expected}, found {repr(item)[:80]}")
    if kind is str:
        return as_texts(items), None
    return as_texts([item["text"] for item in items]), as_texts([item["text_pair"] for item in items])
