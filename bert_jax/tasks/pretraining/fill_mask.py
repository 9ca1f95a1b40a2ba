"""The pipeline fill-mask: the most likely tokens for each mask of a text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError, TextError
from bert_jax.inference.base import Pipeline, as_texts, positive
from bert_jax.inference.filled_text import filled_text
from bert_jax.inference.scoring import softmax


class FillMask(Pipeline):
    """Prediction of the token for each `[MASK]` in a text."""

    head = "masked_lm"

    def __call__(
        self, texts: str | Sequence[str], top_k: int = 5, targets: Sequence[str] | None = None
    ) -> list[dict[str, Any]] | list[list[Any]]:
        """Return the most likely tokens for each mask.

        Args:
            texts: one text or a list of texts, each with one or more mask tokens.
            top_k: number of tokens per mask.
            targets: tokens to choose from; None means the whole vocabulary.

        Returns:
            For one mask a list of dicts, the most likely first: `score` (probability), `token` (id), `token_str` and
            `sequence` (the text with the token filled in); for a text with several masks, a list of such lists; for a
            list of texts, a list of results.

        Raises:
            InputError: a text has no mask or is too long, or a target is not one token.
        """
        text_list = as_texts(texts)
        top_k = positive("top_k", top_k)
        choices = None if targets is None else self._targets(targets)
        answers: list[Any] = [None] * len(text_list)
        for window, inputs in self._windows(text_list):
            places = [np.flatnonzero(row == self.tokenizer.mask_id) for row in inputs["input_ids"]]
            for i, masked in zip(window, places, strict=True):
                if not len(masked):
                    mask = self.tokenizer.id_to_token(self.tokenizer.mask_id)
                    raise TextError(i, f"expected a {mask} to fill, found none in {text_list[i][:80]!r}")
            most = max(map(len, places))
            inputs["masked_positions"] = np.stack([np.pad(masked, (0, most - len(masked))) for masked in places])
            for rows, lengths, output in self._batches(inputs, ("logits",)):
                assert output.logits is not None
                for row, length, logits in zip(rows, lengths, output.logits, strict=True):
                    ids = inputs["input_ids"][row, :length]
                    answers[window[row]] = self._answer(ids, places[row], np.asarray(logits), top_k, choices)
        return answers[0] if isinstance(texts, str) else answers

    def _answer(self, ids: np.ndarray, places: np.ndarray, logits: np.ndarray, top_k: int, choices: Any) -> list[Any]:
        answers = []
        for place, row in zip(places, logits, strict=False):  # the logits of padded positions come last
            probabilities = softmax(row)
            tokens = np.arange(self.tokenizer.vocab_size) if choices is None else choices
            best = tokens[np.argsort(-probabilities[tokens], kind="stable")[:top_k]]
            answers.append([self._filled(ids, place, int(token), probabilities, len(places) == 1) for token in best])
        return answers[0] if len(answers) == 1 else answers

    def _filled(self, ids: np.ndarray, place: int, token: int, probabilities: np.ndarray, only: bool) -> dict[str, Any]:
        return {
            "score": float(probabilities[token]),
            "token": token,
            "token_str": self.tokenizer.decode([token], skip_special_tokens=False),
            "sequence": filled_text(self.tokenizer, ids, place, token, only),
        }

    def _targets(self, targets: Sequence[str]) -> np.ndarray:
        ids = []
        for target in [targets] if isinstance(targets, str) else targets:
            token = self.tokenizer.token_to_id(target)
            if token is None:
                pieces = self.tokenizer.encode(target)
                if len(pieces) != 1 or self.tokenizer.is_unknown(pieces[0]):
                    raise InputError(f"target {target!r}: expected one token of the vocabulary, found {len(pieces)}")
                token = pieces[0]
            ids.append(token)
        if not ids:
            raise InputError("targets: expected at least one token, found none")
        return np.unique(ids)
