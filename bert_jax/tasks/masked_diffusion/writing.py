"""The base class of the pipelines that generate text: it fills in the masked tokens of rows by iterative unmasking."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import InputError, TextError
from bert_jax.inference.base import Pipeline, check_option, rows_within
from bert_jax.inference.model import PretrainedModel
from bert_jax.inference.padded_lengths import rounded_length
from bert_jax.tasks.masked_diffusion.data import end_of_text
from bert_jax.tasks.masked_diffusion.unmasking import Canvas, Filled, Unmasking, fill_canvas

_LOGITS = {"cpu": 1 << 25}  # maximum number of logits in a forward pass: 128 MiB of float32
_LOGITS_ELSEWHERE = 1 << 28
OnPass = Callable[[list[str]], None]  # called after each forward pass with the texts so far


class RegionRow(NamedTuple):
    """A row whose masked region is to be generated.

    Attributes:
        text: the number of the row's text in the call.
        number: a number that makes the row's random numbers differ from those of other rows.
        offset: the number of tokens generated earlier, which makes its random numbers differ from other windows'.
        before: tokens before the region.
        region: tokens of the region; mask tokens are generated.
        after: tokens after the region.
        types: the number of leading tokens of type 0; the others have the second type.
        barred: the number of leading tokens of the region that cannot be the end of text.
    """

    text: int
    number: int
    offset: int
    before: Sequence[int]
    region: Sequence[int]
    after: Sequence[int]
    types: int
    barred: int


class WritingPipeline(Pipeline):
    """A pipeline that generates masked tokens of rows, with any masked LM."""

    head = "masked_lm"

    def __init__(self, model: PretrainedModel, *args: Any, **options: Any):
        super().__init__(model, *args, **options)
        # The model must write neither unused pieces nor special tokens, except for the one that ends a text.
        self._end = end_of_text(self.tokenizer.layout)
        banned = np.zeros(self.tokenizer.vocab_size, bool)
        banned[[i for i in self.tokenizer.special_ids if i != self._end]] = True
        banned[[i for i, piece in enumerate(self.tokenizer.pieces) if not piece]] = True
        self._banned = banned

    def _generate(
        self,
        rows: Sequence[RegionRow],
        options: Unmasking,
        steps: int,
        seed: int,
        forbidden: Sequence[str],
        on_pass: OnPass | None,
    ) -> list[Filled]:
        """Return the region of each row, generated in the given number of forward passes."""
        banned = self._banned.copy()
        banned[self._tokens("forbidden", forbidden)] = True
        filled_rows: list[Any] = [None] * len(rows)
        for numbers, length, width in self._chunks(rows):
            most = rows_within(self._most_logits() // (width * len(banned)), 1) * self.model.parts
            if self.batch_invariant:
                size = min(most, self._invariant_rows(length))
            else:
                size = self.batch_size or min(most, self._rows(length))
            for start in range(0, len(numbers), size):
                part = numbers[start : start + size]
                # Batches are filled up with empty rows, so that each shape is compiled once.
                count = size if self.batch_invariant else min(size, len(numbers))
                count = -(-count // self.model.parts) * self.model.parts
                canvas = self._canvas([rows[i] for i in part], count, length, width, seed)
                shown = None if on_pass is None else functools.partial(self._show, on_pass, [rows[i] for i in part])
                filled = fill_canvas(
                    self.model.bert, self.model.params, canvas, options, steps, self.tokenizer.mask_id, self._end,
                    banned, shown,
                )  # fmt: skip
                for i, tokens, scores in zip(part, *filled, strict=False):
                    size_of = len(rows[i].region)
                    filled_rows[i] = Filled(tokens[:size_of], scores[:size_of])
        return filled_rows

    def _most_logits(self) -> int:
        return _LOGITS.get(self.model.compute.target, _LOGITS_ELSEWHERE)

    def _chunks(self, rows: Sequence[RegionRow]) -> Iterator[tuple[list[int], int, int]]:
        """Yield (row numbers, padded length, region width) for each shape of rows, the longest first."""
        limit = self.model.config.max_position_embeddings
        by_shape: dict[tuple[int, int], list[int]] = {}
        for i, row in enumerate(rows):
            length = len(row.before) + len(row.region) + len(row.after)
            if length > limit:
                raise TextError(row.text, f"expected at most the model's {limit} positions, found {length} tokens")
            shape = min(rounded_length(length), limit), min(rounded_length(len(row.region)), limit)
            by_shape.setdefault(shape, []).append(i)
        for (length, width), numbers in sorted(by_shape.items(), reverse=True):
            yield numbers, length, width

    def _canvas(self, rows: Sequence[RegionRow], count: int, length: int, width: int, seed: int) -> Canvas:
        """Return a canvas for `rows`: `count` rows of `length` tokens, with regions of `width` tokens."""
        ids = np.full((count, length), self.tokenizer.pad_id, np.int32)
        mask, types = np.zeros((count, length), np.int32), np.zeros((count, length), np.int32)
        region = np.full((count, width), length, np.int32)
        masked, barred = np.zeros((count, width), bool), np.zeros((count, width), bool)
        seeds = np.zeros((count, 3), np.uint32)
        for at, row in enumerate(rows):
            tokens = [*row.before, *row.region, *row.after]
            ids[at, : len(tokens)], mask[at, : len(tokens)] = tokens, 1
            types[at, row.types : len(tokens)] = self.tokenizer.layout.second_type
            first, size = len(row.before), len(row.region)
            region[at, :size] = np.arange(first, first + size)
            masked[at, :size] = np.asarray(row.region) == self.tokenizer.mask_id
            barred[at, : row.barred] = True
            seeds[at] = seed, row.number, row.offset
        if self.model.config.type_vocab_size < 2:
            types[:] = 0
        return Canvas(
            {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}, region, masked, barred, seeds
        )

    def _show(self, on_pass: OnPass, rows: Sequence[RegionRow], filled: Filled) -> None:
        regions = (tokens[: len(row.region)] for row, tokens in zip(rows, filled.tokens, strict=False))
        on_pass([self._written(tokens, marked=True) for tokens in regions])

    def _written(self, tokens: np.ndarray, marked: bool = False) -> str:
        """Return the text of generated tokens, up to the end of text; with `marked`, `_` for each mask token."""
        ends = np.flatnonzero(tokens == self._end)
        kept = tokens[: ends[0]] if len(ends) else tokens
        if not marked:
            return self.tokenizer.decode(kept.tolist())
        mask = self.tokenizer.id_to_token(self.tokenizer.mask_id)
        return self.tokenizer.decode(kept.tolist(), skip_special_tokens=False).replace(mask, "_")

    def _tokens(self, option: str, words: Sequence[str]) -> list[int]:
        """Return the token ids of words of one token each, both at the beginning of a text and after a space."""
        all_ids = []
        for word in [words] if isinstance(words, str) else words:
            check_option(option, word)
            forms = [self.tokenizer.encode(form) for form in (word, f" {word}")]
            ids = {form[0] for form in forms if len(form) == 1 and not self.tokenizer.is_unknown(form[0])}
            if not ids:
                raise InputError(f"{option}: expected words of one token each, found {word!r}")
            all_ids += sorted(ids)
        return all_ids
