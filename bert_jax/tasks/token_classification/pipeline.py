"""The token-classification pipeline: entities with their character ranges."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.data.finetuning.windows import overlapping
from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference.base import Pipeline, as_texts
from bert_jax.inference.entities import Pieces, entities_of, words_begin
from bert_jax.inference.padded_rows import padded_rows
from bert_jax.inference.scoring import softmax

STRATEGIES = ("none", "simple", "first", "average", "max")
_TEXTS = 256  # texts whose scores are in memory together


class TokenClassification(Pipeline):
    """Tagging of tokens: entities, parts of speech."""

    head = "token_classification"

    def __call__(
        self, texts: str | Sequence[str], aggregation_strategy: str = "none", ignore_labels: Sequence[str] = ("O",)
    ) -> list[Any]:
        """Return the labels of tokens, or the entities that tokens form.

        Texts over the model's limit are split into overlapping windows; each token takes its scores from the window
        that shows the most context around it.

        Args:
            texts: one text or a list of texts.
            aggregation_strategy: `none`: no aggregation, one result per token. `simple`: adjacent tokens of one type
                form an entity, unless a tag begins a new one. `first`, `average` and `max`: the same for words, whose
                tag comes from the first token, from the mean of the tokens' scores, or from the token with the highest
                score.
            ignore_labels: labels to leave out; with aggregation, entity types to leave out.

        Returns:
            For one text a list of dicts in the order of the text; for a list of texts, a list of such lists. With
            `none` a dict has `entity` (the label), `score` (its probability), `index` (position of the token in its
            row, with special tokens), `word` (the token), `start` and `end` (its characters). Otherwise a dict has
            `entity_group` (the type), `score` (the mean over tokens or words), `start`, `end`, and `word`, which is
            `text[start:end]`.

        Raises:
            InputError: an item is not a text, or the strategy is not known.
        """
        if aggregation_strategy not in STRATEGIES:
            raise InputError(
                f"aggregation_strategy {aggregation_strategy!r} is not known"
                f"{did_you_mean(str(aggregation_strategy), STRATEGIES)}"
            )
        text_list = as_texts(texts)
        answers: list[Any] = []
        for start in range(0, len(text_list), _TEXTS):
            chunk = text_list[start : start + _TEXTS]
            for text, pieces in zip(chunk, self._pieces(chunk), strict=True):
                answers.append(self._answer(text, pieces, aggregation_strategy, frozenset(ignore_labels)))
        return answers[0] if isinstance(texts, str) else answers

    def _answer(self, text: str, pieces: Pieces, strategy: str, ignored: frozenset[str]) -> list[dict[str, Any]]:
        if strategy == "none":
            return [answer for answer in self._tokens(text, pieces) if answer["entity"] not in ignored]
        begins = None if strategy == "simple" else words_begin(text, pieces, self.tokenizer)
        entities = entities_of(text, pieces, self.model.config.label_names, begins, strategy)
        return [answer for answer in entities if answer["entity_group"] not in ignored]

    def _tokens(self, text: str, pieces: Pieces) -> Iterator[dict[str, Any]]:
        before = len(self.tokenizer.layout.start)
        for i, (piece, (start, end), scores) in enumerate(zip(pieces.ids, pieces.ranges, pieces.scores, strict=True)):
            best = int(scores.argmax())
            yield {
                "entity": self.model.config.label_names[best],
                "score": float(scores[best]),
                "index": before + i,
                # An unknown token is shown as its characters in the text.
                "word": text[start:end] if self.tokenizer.is_unknown(piece) else self.tokenizer.pieces[piece],
                "start": int(start),
                "end": int(end),
            }

    def _pieces(self, texts: list[str]) -> list[Pieces]:
        """Run the model on each text; return its tokens with their scores."""
        encoded = self.tokenizer.encode_batch_with_offsets(texts)
        layout, classes = self.tokenizer.layout, self.model.config.num_labels
        room = self.model.max_length - layout.num_special(False)
        scores = [np.zeros((len(ids), classes)) for ids, _ in encoded]
        windows = [(i, window) for i, (ids, _) in enumerate(encoded) for window in overlapping(len(ids), room)]
        if windows:
            rows = [[*layout.start, *encoded[i][0][window.start : window.stop], *layout.end] for i, window in windows]
            for numbers, _, output in self._batches(padded_rows(rows, self.tokenizer.pad_id), ("logits",)):
                assert output.logits is not None
                for number, logits in zip(numbers, output.logits, strict=True):
                    i, window = windows[number]
                    shift = len(layout.start) - window.start
                    part = slice(window.own_start, window.own_stop)
                    scores[i][part] = softmax(np.asarray(logits)[part.start + shift : part.stop + shift])
        return [
            Pieces(np.array(ids, np.int64), np.array(ranges, np.int64).reshape(-1, 2), share)
            for (ids, ranges), share in zip(encoded, scores, strict=True)
        ]
