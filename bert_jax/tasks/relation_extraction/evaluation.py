"""Evaluate relation extraction models on files, and write their predictions beside the pairs of entities."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.evaluation.driver import Evaluated, Evaluator
from bert_jax.evaluation.writing import write_answers
from bert_jax.inference.scoring import scores_of, short
from bert_jax.metrics import entities
from bert_jax.modeling import Bert
from bert_jax.reports import classes, page
from bert_jax.reports.attention import Attention
from bert_jax.tasks.relation_extraction.data import (
    RelationRow,
    check_labels,
    encode_relations,
    iterate_relations,
    relation_labels,
)
from bert_jax.tasks.relation_extraction.markers import RelationSettings, describe_entity, mark_entities
from bert_jax.tasks.relation_extraction.task import HEAD, RelationExtractionTask, features_of_relations


class RelationExtractionEvaluator(Evaluator):
    """Evaluate a model of relation extraction.

    `predict` writes one object per pair of entities to a `.jsonl` file: `text`, `head` and `tail` (`text`, `start`,
    `end` and `type`), `label` and `scores` (relation -> probability). If a pair may have several relations, `labels`
    has those with a probability over 0.5. A `.tsv`, `.csv` or `.parquet` file has a header, the texts of the entities,
    `label` or `labels`, and one probability per relation. The fields `id`, or `title`, `h_idx` and `t_idx` of DocRED,
    come first.

    Args:
        model_dir: a directory in the Hugging Face layout.
        options: arguments of `bert_jax.evaluation.model_runner.open_runner`.
    """

    head = HEAD
    noun = "row"
    task: RelationExtractionTask

    @property
    def _settings(self) -> RelationSettings:
        recorded: RelationSettings | None = self.runner.settings.records.get("relations")
        return recorded or RelationSettings()

    def build_task(self, model: Bert) -> RelationExtractionTask:
        """Return the task of the model."""
        return RelationExtractionTask(model, (), null_label=self._settings.null_label)

    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model over all relations except the null label; a relation must be one that the model knows."""
        chosen = tuple(metric_names) or entities.TAGGING_METRICS
        task = dataclasses.replace(self.task, metrics=entities.choose_relation_metrics(chosen))
        names, null, several = task.model.config.label_names, task.null_label, task.several
        rows = check_labels(data, iterate_relations(data, True, invalid), names, null, several, invalid)
        encoded = list(invalid.fitting(self._encoded(data, rows, invalid)))
        labels = relation_labels(encoded, names, null, several)
        features = features_of_relations(encoded, labels)
        logits = self.predictor(features, "logits")
        scores = task.scores_of_logits(labels, logits) | {"examples": len(encoded)}

        def texts(i: int) -> tuple[int, dict[str, str]]:
            pair = encoded[i].pair
            marked = mark_entities(pair.text, pair.head, pair.tail, self._settings.markers)
            return encoded[i].line, {"text": marked.text}

        def attend(number: int) -> Attention | None:
            return self.runner.attention(HEAD, features, number)

        def sections() -> list[page.Section]:
            build = classes.several_labels if several else classes.one_label
            return build(names, labels, logits, texts, attend)

        return Evaluated(scores, sections)

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write the relation of every pair, as `Evaluator.predict` does."""
        key = "labels" if self.task.several else "label"
        header = ["head", "tail", key, *self.task.model.config.label_names]
        rows = invalid.fitting(self._encoded(data, iterate_relations(data, False, invalid), invalid))
        return write_answers(out, header, rows, self._answers, (key, "scores"), lambda row: row.kept)

    def _encoded(self, data: str, rows: Iterator[RelationRow], invalid: InvalidRows) -> Iterator[RelationRow]:
        runner = self.runner
        return encode_relations(data, runner.tokenizer, rows, self._settings, runner.max_length, invalid)

    def _answers(self, rows: list[RelationRow]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        """Yield each pair's prediction as a JSON object and as the fields of a table."""
        names = self.task.model.config.label_names
        logits = self.predictor(features_of_relations(rows, np.zeros(len(rows), np.int32)), "logits")
        for row, scores in zip(rows, scores_of(self.runner.config, logits).tolist(), strict=True):
            rounded = [short(score) for score in scores]
            pair = row.pair
            head, tail = (describe_entity(pair.text, entity, empty_type=False) for entity in (pair.head, pair.tail))
            answer: dict[str, Any] = {"text": pair.text, "head": head, "tail": tail}
            if self.task.several:
                labels = [name for name, score in zip(names, scores, strict=True) if score > 0.5]
                answer["labels"], label_text = labels, ",".join(labels)
            else:
                answer["label"] = label_text = names[int(np.argmax(scores))]
            answer["scores"] = dict(zip(names, rounded, strict=True))
            yield answer, [head["text"], tail["text"], label_text, *rounded]
