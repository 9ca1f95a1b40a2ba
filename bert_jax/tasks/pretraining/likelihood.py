"""The pseudo-log-likelihood pipeline, which scores sentences with a masked language model.

Salazar et al. 2020 (arXiv:1910.14659), section 2: each token of a text is masked in turn, and the log probabilities of
the true tokens are summed.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np

from bert_jax.errors import InputError, TextError, did_you_mean
from bert_jax.inference.base import TEXT_WINDOW, Pipeline, as_texts
from bert_jax.inference.entities import Pieces, words_begin
from bert_jax.tokenization.interface import Encoded

WithinWord = Literal["all", "left-to-right"]
WITHIN_WORD = get_args(WithinWord)
_NO_SCORES = np.zeros((0, 0))


class PseudoLogLikelihood(Pipeline):
    """Pseudo-log-likelihoods of texts under a masked language model."""

    head = "masked_lm"

    def __call__(
        self, texts: str | Sequence[str], within_word: WithinWord = "all", tokens: bool = False
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Return the score of each text.

        Special tokens are neither masked nor counted. A text of n tokens takes n rows; the rows of all texts are
        batched by length together.

        A masked token sees all others (Salazar et al.), or all except the later tokens of its own word (Kauf and
        Ivanova 2023, arXiv:2305.10588), so that a rare word of several tokens is not scored too high. Each punctuation
        mark is a word.

        Args:
            texts: one text or a list of texts.
            within_word: tokens of its own word that a masked token sees: `all` others, or those to its left.
            tokens: whether to return the score of each token too.

        Returns:
            For one text a dict of `score` (the sum of natural logarithms), `num_tokens` and `pseudo_perplexity`
            (`exp(-score / num_tokens)`); for a list, a list. With `tokens` a dict also has `tokens`, a list of dicts
            of `word` (the token), `token` (its id), `score`, `start` and `end` (its characters).

        Raises:
            InputError: an item is not a text, has no tokens or exceeds the model's positions, or the value of
                `within_word` is not known.
        """
        if within_word not in WITHIN_WORD:
            raise InputError(f"within_word {within_word!r} is not known{did_you_mean(str(within_word), WITHIN_WORD)}")
        text_list = as_texts(texts)
        answers: list[dict[str, Any]] = []
        for chunk in self._chunks(text_list):
            answers += self._answers(chunk, within_word == "left-to-right", tokens)
        return answers[0] if isinstance(texts, str) else answers

    def _chunks(self, texts: list[str]) -> Iterator[list[tuple[str, Encoded, np.ndarray]]]:
        """Yield chunks of up to TEXT_WINDOW rows: texts, their tokens, and the indices of the tokens to score."""
        chunk: list[tuple[str, Encoded, np.ndarray]] = []
        rows, room = 0, self.model.config.max_position_embeddings
        special = set(self.tokenizer.special_ids)
        for start in range(0, len(texts), TEXT_WINDOW):
            window = texts[start : start + TEXT_WINDOW]
            for i, encoded in enumerate(self.tokenizer.encode_batch_with_offsets(window), start):
                length = len(encoded[0]) + self.tokenizer.layout.num_special(False)
                if length > room:
                    raise TextError(
                        i, f"expected at most the model's {room} positions, found {length} tokens in {texts[i][:80]!r}"
                    )
                scored = [j for j, id_ in enumerate(encoded[0]) if id_ not in special or self.tokenizer.is_unknown(id_)]
                if not scored:
                    raise TextError(i, f"expected a token to score, found none in {texts[i][:80]!r}")
                if rows and rows + len(scored) > TEXT_WINDOW:
                    yield chunk
                    chunk, rows = [], 0
                chunk.append((texts[i], encoded, np.array(scored)))
                rows += len(scored)
        if chunk:
            yield chunk

    def _answers(
        self, chunk: list[tuple[str, Encoded, np.ndarray]], left_to_right: bool, tokens: bool
    ) -> Iterator[dict[str, Any]]:
        """Yield the result of each text of a chunk; the rows of the chunk are computed together."""
        copies = [self._masked_copies(*item, left_to_right) for item in chunk]
        sizes = [len(ids) for ids in copies]
        lengths = np.repeat([ids.shape[1] for ids in copies], sizes)
        inputs = np.full((len(lengths), lengths.max()), self.tokenizer.pad_id, np.int32)
        for start, ids in zip(np.cumsum(sizes) - sizes, copies, strict=True):
            inputs[start : start + len(ids), : ids.shape[1]] = ids
        truth = np.concatenate([np.array(ids)[scored] for _, (ids, _), scored in chunk])
        places = np.concatenate([scored for _, _, scored in chunk]) + len(self.tokenizer.layout.start)
        batch = {
            "input_ids": inputs,
            "token_type_ids": np.zeros_like(inputs),
            "attention_mask": (np.arange(inputs.shape[1]) < lengths[:, None]).astype(np.int32),
            "masked_positions": places[:, None].astype(np.int32),
        }
        scores = np.zeros(len(lengths))
        for rows, _, output in self._batches(batch, ("logits",)):
            assert output.logits is not None
            scores[rows] = _log_probabilities(np.asarray(output.logits)[:, 0], truth[rows])
        for (text, encoded, scored), text_scores in zip(chunk, np.split(scores, np.cumsum(sizes)[:-1]), strict=True):
            total = float(text_scores.sum())
            answer: dict[str, Any] = {
                "score": total,
                "num_tokens": len(text_scores),
                "pseudo_perplexity": float(np.exp(-total / len(text_scores))),
            }
            if tokens:
                answer["tokens"] = [
                    self._token(text, encoded, i, score)
                    for i, score in zip(scored.tolist(), text_scores.tolist(), strict=True)
                ]
            yield answer

    def _masked_copies(self, text: str, encoded: Encoded, scored: np.ndarray, left_to_right: bool) -> np.ndarray:
        """Return the rows `[n, S]` of a text: each masks one of the `n` scored tokens."""
        layout, before = self.tokenizer.layout, len(self.tokenizer.layout.start)
        rows = np.tile(np.array([*layout.start, *encoded[0], *layout.end], np.int32), (len(scored), 1))
        if not left_to_right:
            rows[np.arange(len(scored)), scored + before] = self.tokenizer.mask_id
            return rows
        words = np.cumsum(self._words_begin(text, encoded))
        for row, i in zip(rows, scored, strict=True):
            later = scored[(scored >= i) & (words[scored] == words[i])]
            row[later + before] = self.tokenizer.mask_id
        return rows

    def _words_begin(self, text: str, encoded: Encoded) -> np.ndarray:
        """Return bool `[n]`: whether each token begins a word; punctuation marks and symbols are words."""
        pieces = Pieces(np.array(encoded[0], np.int64), np.array(encoded[1], np.int64), _NO_SCORES)
        begins = words_begin(text, pieces, self.tokenizer)
        marks = [_is_mark(text[start:end].strip()) for start, end in encoded[1]]
        words: np.ndarray = begins | marks | np.array([False, *marks[:-1]])
        return words

    def _token(self, text: str, encoded: Encoded, i: int, score: float) -> dict[str, Any]:
        token, (start, end) = encoded[0][i], encoded[1][i]
        # An unknown token is shown as its characters in the text.
        word = text[start:end] if self.tokenizer.is_unknown(token) else self.tokenizer.pieces[token]
        return {"word": word, "token": token, "score": score, "start": start, "end": end}


def _is_mark(text: str) -> bool:
    return bool(text) and all(unicodedata.category(character)[0] in "PS" for character in text)


def _log_probabilities(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the log probability of one token of each row of logits `[n, V]`, float64 `[n]`."""
    top = logits.max(axis=-1, keepdims=True)
    # Only the sum is in float64: float64 exponentials of the whole vocabulary would take as long as a layer.
    total = np.log(np.exp(logits - top).sum(axis=-1, dtype=np.float64))
    log_probabilities: np.ndarray = logits[np.arange(len(ids)), ids].astype(np.float64) - top[:, 0] - total
    return log_probabilities
