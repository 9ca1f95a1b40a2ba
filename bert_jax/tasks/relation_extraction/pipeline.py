"""The relation-extraction pipeline: the relation of two given entities, or all relations of the entities of a text."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.data.invalid_rows import InvalidRow
from bert_jax.errors import InputError, TextError, did_you_mean
from bert_jax.inference.base import TEXT_WINDOW, Pipeline, as_list, positive
from bert_jax.inference.padded_rows import padded_rows
from bert_jax.inference.scoring import scores_of
from bert_jax.tasks.relation_extraction.data import entity_of
from bert_jax.tasks.relation_extraction.markers import (
    MARKERS,
    EntityPair,
    EntitySpan,
    RelationSettings,
    describe_entity,
    encode_entity_pairs,
)
from bert_jax.tokenization.interface import check_unicode

_TEXTS = 256  # texts whose pairs are in memory together
Tagger = Callable[[list[str]], list[list[dict[str, Any]]]]


class RelationExtraction(Pipeline):
    """Classification of the relation between two entities of a text."""

    head = "sequence_classification"

    def __call__(
        self,
        texts: Any,
        tagger: Tagger | None = None,
        top_k: int | None = 1,
        markers: str | None = None,
        null_label: str | None = None,
    ) -> Any:
        """Return the relation of each pair of entities, or the triples of each text.

        A text over the model's limit is cut around the two entities.

        Args:
            texts: a pair as `{"text": ..., "head": ..., "tail": ...}`, where an entity is `(start, end)` or `(start,
                end, type)` in characters, or an object of these; or a list of pairs. With a `tagger`, a text or a list
                of texts.
            tagger: finds the entities of texts: a pipeline `token-classification` (with an aggregation strategy) or
                `zero-shot-ner`, or a function from a list of texts to a list of entities for each: dicts of `start`,
                `end` and `entity_group` or `label`. All ordered pairs of different entities of a text are classified.
            top_k: number of relations per pair, the most likely first; None means all. Not used with a tagger.
            markers: one of `bert_jax.tasks.relation_extraction.markers.MARKERS`; None = as the model's directory says.
            null_label: the class of pairs without a relation; None = as the model's directory says.

        Returns:
            For each pair a dict of `label` and `score` (probability), or a list of dicts if `top_k` is not 1. With a
            tagger, for each text a list of dicts of `head`, `relation`, `tail` and `score`; an entity is a dict of
            `text`, `start`, `end` and `type`. Pairs without a relation are left out, and so are pairs too far apart
            for a row of the model. A model of several relations per pair gives those with a probability over 0.5.

        Raises:
            InputError: an item is not a text or pair, or the entities of a pair do not fit into a row; or neither the
                model nor the call says how entities are marked.
        """
        settings = self._settings(markers, null_label)
        if tagger is not None:
            text_list = [texts] if isinstance(texts, str) else as_list(texts)
            for i, text in enumerate(text_list):
                if not isinstance(text, str):
                    raise TextError(i, f"expected a text with a tagger, found {type(text).__name__}")
            check_unicode(text_list)
            triples: list[list[dict[str, Any]]] = []
            for start in range(0, len(text_list), _TEXTS):
                triples += self._triples(text_list[start : start + _TEXTS], start, tagger, settings)
            return triples[0] if isinstance(texts, str) else triples
        single = isinstance(texts, dict)
        pairs = [_pair(i, item) for i, item in enumerate([texts] if single else as_list(texts))]
        rows = list(encode_entity_pairs(self.tokenizer, pairs, settings.markers, self.model.max_length))
        for i, row in enumerate(rows):
            if isinstance(row, InvalidRow):
                raise TextError(i, row)
        names = self.model.config.label_names
        count = len(names) if top_k is None else positive("top_k", top_k)
        answers: list[Any] = []
        for scores in self._scores(rows):  # type: ignore[arg-type]
            best = np.argsort(-scores, kind="stable")[:count]
            answers.append([{"label": names[i], "score": float(scores[i])} for i in best])
        if top_k == 1:
            answers = [answer[0] for answer in answers]
        return answers[0] if single else answers

    def _settings(self, markers: str | None, null_label: str | None) -> RelationSettings:
        if markers is not None and markers not in MARKERS:
            raise InputError(f"markers {markers!r} is not known{did_you_mean(markers, MARKERS)}")
        recorded = self.model.settings.records.get("relations")
        if markers is None and recorded is None:
            raise InputError(
                "expected a relation extraction model trained by bert_jax, or the style of its markers (markers), "
                "found neither"
            )
        recorded = recorded or RelationSettings()
        return RelationSettings(markers or recorded.markers, recorded.null_label if null_label is None else null_label)

    def _scores(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Return the scores `[n, C]` of rows of tokens."""
        config = self.model.config
        logits = np.zeros((len(rows), config.num_labels), np.float32)
        for start in range(0, len(rows), TEXT_WINDOW):
            window = rows[start : start + TEXT_WINDOW]
            inputs = padded_rows(window, self.tokenizer.pad_id)
            logits[start : start + len(window)] = self._rows_of(inputs, "logits")
        return scores_of(config, logits, self.model.settings.activation)

    def _triples(
        self, texts: list[str], first: int, tagger: Tagger, settings: RelationSettings
    ) -> list[list[dict[str, Any]]]:
        """Return the triples of each text; `first` is the number of the first text in the call."""
        pairs, numbers = [], []
        for i, (text, entities) in enumerate(zip(texts, tagger(texts), strict=True)):
            spans = [_tagged(entity) for entity in entities]
            pairs_of_text = [
                EntityPair(text, *ends) for ends in itertools.permutations(spans, 2) if ends[0][:2] != ends[1][:2]
            ]
            pairs += pairs_of_text
            numbers += [i] * len(pairs_of_text)
        rows = list(encode_entity_pairs(self.tokenizer, pairs, settings.markers, self.model.max_length))
        for number, row in zip(numbers, rows, strict=True):
            if isinstance(row, InvalidRow) and row.reason != "entities that are too far apart":
                raise TextError(first + number, row)
        fitting = [k for k, row in enumerate(rows) if not isinstance(row, InvalidRow)]
        answers: list[list[dict[str, Any]]] = [[] for _ in texts]
        names = self.model.config.label_names
        several = self.model.config.problem_type == "multi_label_classification"
        for k, scores in zip(fitting, self._scores([rows[k] for k in fitting]), strict=True):  # type: ignore[misc]
            chosen = np.flatnonzero(scores > 0.5) if several else [int(scores.argmax())]
            head, tail = (describe_entity(pairs[k].text, entity) for entity in (pairs[k].head, pairs[k].tail))
            answers[numbers[k]] += [
                {"head": head, "relation": names[c], "tail": tail, "score": float(scores[c])}
                for c in chosen
                if names[c] != settings.null_label
            ]
        return answers


def _pair(number: int, item: Any) -> EntityPair:
    where = f"text {number}"
    if not isinstance(item, dict) or set(item) != {"text", "head", "tail"} or not isinstance(item["text"], str):
        hint = "; a tagger finds the entities of texts" if isinstance(item, str) else ""
        raise InputError(f"{where}: expected a dict of 'text', 'head' and 'tail', found {repr(item)[:80]}{hint}")
    text = item["text"]
    return EntityPair(text, *(entity_of(where, name, item[name], text) for name in ("head", "tail")))


def _tagged(entity: dict[str, Any]) -> EntitySpan:
    kind = entity.get("entity_group") or entity.get("label")
    if kind is None:
        raise InputError(
            "tagger: expected entities with entity_group or label, as of a pipeline with an aggregation_strategy, "
            f"found {', '.join(entity)}"
        )
    return EntitySpan(entity["start"], entity["end"], kind)
