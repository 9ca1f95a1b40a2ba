"""The zero-shot-ner pipeline: entities of types that are chosen at call time, with a GLiNER.

Zaratiana et al. 2023 (arXiv:2311.08526).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_texts
from bert_jax.inference.model import PretrainedModel
from bert_jax.tasks.zero_shot_ner.rows import (
    GlinerRow,
    RowMaker,
    TypePrompt,
    WordWindow,
    check_types,
    word_ranges,
    word_windows,
)
from bert_jax.tasks.zero_shot_ner.span_decoding import ScoredSpans, choose_spans, spans_above

_TEXTS = 256  # texts whose scores are in memory together


class ZeroShotNer(Pipeline):
    """Entities of types that are named at call time, with a GLiNER."""

    head = "zero_shot_ner"

    def __init__(self, model: PretrainedModel, batch_size: int | None = None, **options: Any):
        super().__init__(model, batch_size, **options)
        assert model.config.gliner is not None
        self._maker = RowMaker(self.tokenizer, model.config.gliner)

    def __call__(
        self,
        texts: str | Sequence[str],
        labels: str | Sequence[str],
        threshold: float = 0.5,
        flat_ner: bool = True,
        multi_label: bool = False,
    ) -> list[Any]:
        """Return the entities of each text.

        Texts over the model's limit of words or tokens are split into overlapping windows.

        Args:
            texts: one text or a list of texts.
            labels: the entity types, as a list of names or as one string with commas between them.
            threshold: the probability above which a span of words is an entity.
            flat_ner: whether entities must not overlap; the more probable one is kept. Otherwise an entity may lie
                inside another.
            multi_label: whether an entity may have several types.

        Returns:
            For one text a list of dicts in the order of the text; for a list of texts, a list of such lists. A dict has
            `text`, `label`, `score` (its probability), `start` and `end` (its characters, `text[start:end]`).

        Raises:
            InputError: an item is not a text, there is no type, a type occurs twice, the names of the types leave no
                room for a text, or the threshold is not in [0, 1].
        """
        text_list = as_texts(texts)
        names = check_types([name.strip() for name in labels.split(",")] if isinstance(labels, str) else labels)
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise InputError(f"threshold: expected a probability in [0, 1], found {threshold!r}")
        prompt = self._maker.prompt(names)
        answers: list[Any] = []
        for start in range(0, len(text_list), _TEXTS):
            chunk = text_list[start : start + _TEXTS]
            ranges, spans = self._spans(chunk, prompt, float(threshold))
            for text, words, text_spans in zip(chunk, ranges, spans, strict=True):
                chosen = choose_spans(text_spans, flat_ner, multi_label)
                answers.append([_entity(text, words, names, *map(_plain, span)) for span in zip(*chosen, strict=True)])
        return answers[0] if isinstance(texts, str) else answers

    def _spans(
        self, texts: Sequence[str], prompt: TypePrompt, threshold: float
    ) -> tuple[list[list[tuple[int, int]]], list[ScoredSpans]]:
        """Return the character ranges of each text's words, and its spans that score above the threshold."""
        ranges = [word_ranges(text) for text in texts]
        words = [text[start:stop] for text, of_text in zip(texts, ranges, strict=True) for start, stop in of_text]
        encoded = iter(self._maker.encode_words(words))
        room = self._maker.room(prompt, self.model.max_length)
        rows: list[tuple[int, WordWindow]] = []
        model_rows: list[GlinerRow] = []
        for i, of_text in enumerate(ranges):
            with_ids = [(where, ids) for where, ids in zip(of_text, encoded, strict=False) if ids]
            ranges[i] = [where for where, _ in with_ids]
            tokens = [ids for _, ids in with_ids]
            for window in word_windows([len(ids) for ids in tokens], room, self._maker.config):
                rows.append((i, window))
                model_rows.append(self._maker.row(prompt, tokens[window.start : window.stop], self.model.max_length))
        parts: list[list[tuple[int, ScoredSpans]]] = [[] for _ in texts]
        if model_rows:
            for numbers, _, output in self._batches(self._padded(model_rows), ("logits",)):
                assert output.logits is not None
                for number, logits in zip(numbers, np.asarray(output.logits), strict=True):
                    i, window = rows[number]
                    own_logits = logits[window.own_start - window.start : window.own_stop - window.start]
                    parts[i].append((window.start, spans_above(own_logits, threshold, window.own_start)))
        return ranges, [_joined([spans for _, spans in sorted(windows, key=lambda part: part[0])]) for windows in parts]

    def _padded(self, rows: Sequence[GlinerRow]) -> dict[str, np.ndarray]:
        """Return rows as padded arrays, the inputs of the model."""
        ids = _filled([row.ids for row in rows], self.tokenizer.pad_id)
        lengths = np.array([len(row.ids) for row in rows])
        return {
            "input_ids": ids,
            "token_type_ids": np.zeros_like(ids),
            "attention_mask": (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int32),
            "word_positions": _filled([row.word_positions for row in rows], 0),
            "type_positions": _filled([row.type_positions for row in rows], 0),
        }


def _filled(rows: Sequence[Sequence[int]], padding: int) -> np.ndarray:
    """Return int32 `[n, longest]`, with `padding` behind shorter rows."""
    out = np.full((len(rows), max(map(len, rows))), padding, np.int32)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return out


def _joined(parts: Sequence[ScoredSpans]) -> ScoredSpans:
    """Concatenate the spans of a text's windows."""
    empty = ScoredSpans(*(np.zeros(0, np.int64),) * 3, np.zeros(0, np.float32))
    return ScoredSpans(*(np.concatenate(columns) for columns in zip(empty, *parts, strict=True)))


def _plain(value: Any) -> Any:
    return value.item()


def _entity(
    text: str, words: Sequence[tuple[int, int]], names: Sequence[str], start: int, stop: int, kind: int, score: float
) -> dict[str, Any]:
    begin, end = words[start][0], words[stop - 1][1]
    return {"text": text[begin:end], "label": names[kind], "score": score, "start": begin, "end": end}
