"""The pipeline fill-in, which generates the tokens for all masks of a text together."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.errors import TextError
from bert_jax.inference.base import as_texts, positive
from bert_jax.tasks.masked_diffusion.unmasking import Filled, Unmasking, UnmaskingOrder
from bert_jax.tasks.masked_diffusion.writing import OnPass, RegionRow, WritingPipeline


class FillIn(WritingPipeline):
    """Joint generation of the tokens for all masks of a text, with any masked LM."""

    def __call__(
        self,
        texts: str | Sequence[str],
        steps: int = 0,
        order: UnmaskingOrder = "confidence",
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        remasking: float = 0.0,
        seed: int = 0,
        gap_lengths: Sequence[int] = (),
        forbidden: Sequence[str] = (),
        on_pass: OnPass | None = None,
    ) -> Any:
        """Return texts with their masks filled in.

        Args:
            texts: one text or a list of texts, each with one or more mask tokens.
            steps: number of forward passes; 0 = half of the tokens from the first to the last mask.
            order: see `bert_jax.tasks.masked_diffusion.unmasking.Unmasking`.
            temperature: see `Unmasking`.
            top_k: see `Unmasking`.
            top_p: see `Unmasking`.
            remasking: see `Unmasking`.
            seed: seed of the random numbers.
            gap_lengths: numbers of tokens to try for every gap, that is, every run of mask tokens; the text with the
                best score is returned. () = as many tokens as the gap has mask tokens.
            forbidden: words, one token each, that are not generated.
            on_pass: called after each forward pass with a batch's texts so far; `_` marks a token not yet generated.

        Returns:
            A dict of `sequence` (the text), `tokens` (those filled in) and `score`, their mean log-probability in the
            passes that kept them; for a list of texts, a list of dicts.

        Raises:
            InputError: a text has no mask or is too long, or an option is out of its range.
        """
        text_list = as_texts(texts)
        options = Unmasking(order, temperature, top_k, top_p, 0, remasking)
        tries = [positive("gap_lengths", each) for each in gap_lengths] or [0]
        encoded = self.tokenizer.encode_batch(text_list)
        rows = [self._row(i, n, ids, gap) for i, ids in enumerate(encoded) for n, gap in enumerate(tries)]
        if steps:
            positive("steps", steps)
        filled_rows = self._generate(rows, options, steps, seed, forbidden, on_pass)
        answers = [self._answer(row, filled) for row, filled in zip(rows, filled_rows, strict=True)]
        best = [
            max(answers[i : i + len(tries)], key=lambda answer: answer["score"])
            for i in range(0, len(answers), len(tries))
        ]
        return best[0] if isinstance(texts, str) else best

    def _row(self, text: int, number: int, ids: Sequence[int], gap: int) -> RegionRow:
        mask, layout = self.tokenizer.mask_id, self.tokenizer.layout
        if mask not in ids:
            raise TextError(text, f"expected a {self.tokenizer.id_to_token(mask)} to fill, found none")
        if gap:
            runs = itertools.groupby(ids, key=lambda token: token == mask)
            ids = [token for masked, run in runs for token in ([mask] * gap if masked else run)]
        places = np.flatnonzero(np.asarray(ids) == mask)
        first, stop = int(places[0]), int(places[-1]) + 1
        after = [*ids[stop:], *layout.end]
        size = len(layout.start) + len(ids) + len(layout.end)
        return RegionRow(
            text, text * 1000 + number, 0, [*layout.start, *ids[:first]], ids[first:stop], after, size, stop - first
        )

    def _answer(self, row: RegionRow, filled: Filled) -> dict[str, Any]:
        masked = np.asarray(row.region) == self.tokenizer.mask_id
        layout = self.tokenizer.layout
        after = list(row.after[: len(row.after) - len(layout.end)])
        ids = [*row.before[len(layout.start) :], *filled.tokens.tolist(), *after]
        return {
            "sequence": self.tokenizer.decode(ids),
            "tokens": [self.tokenizer.id_to_token(token) for token in filled.tokens[masked].tolist()],
            "score": float(filled.log_probabilities[masked].mean()),
        }
