"""Relation extraction: classify the relation between two marked entities of a text.

Baldini Soares et al. 2019 (arXiv:1906.03158), section 3; Zhou and Chen 2021 (arXiv:2102.01373), section 3.

The model is a sequence classifier, which reads [CLS], over the marked text. The first paper finds the states at the two
markers better, but transformers, every verb, export and the server can run a sequence classifier without changes.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.features import Features, ragged_features
from bert_jax.errors import InputError
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.added_rows import with_word_rows
from bert_jax.jobs.base import Job, real_rows
from bert_jax.jobs.synthetic_rows import WORD
from bert_jax.jobs.teaching import distillation_of
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics import entities
from bert_jax.modeling import Bert
from bert_jax.recipes import Recipe
from bert_jax.tasks.classification.task import HEAD as HEAD
from bert_jax.tasks.classification.task import PROBLEM_TYPES_OF_LABELS, ClassificationTask
from bert_jax.tasks.relation_extraction.data import (
    NULL_LABELS,
    RelationRow,
    check_labels,
    encode_relations,
    iterate_relations,
    limit_null_pairs,
    relation_labels,
    relation_names,
)
from bert_jax.tasks.relation_extraction.markers import RelationSettings, check_punctuation, marker_tokens
from bert_jax.tokenization import Tokenizer
from bert_jax.tokenization.special_tokens import with_special_tokens

_USUAL_RELATIONS = 42  # number of classes in synthetic rows, as in TACRED


@dataclasses.dataclass(frozen=True)
class RelationExtractionTask(ClassificationTask):
    """Relation extraction; the loss is that of `ClassificationTask`, for one or several relations of a pair.

    Attributes:
        null_label: the class of pairs without a relation, which the metrics leave out; "" = none.
    """

    null_label: str = ""

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the chosen metrics over all rows that are not padding."""
        labels = real_rows(batches, "labels", batches)
        return self.scores_of_logits(labels, real_rows(predictions, "logits", batches))

    def scores_of_logits(self, labels: np.ndarray, logits: np.ndarray) -> dict[str, float]:
        """Return the chosen metrics of logits `[n, C]` against labels, `[n]` or 0 and 1 `[n, C]`."""
        names = self.model.config.label_names
        answers = logits > 0 if self.several else logits.argmax(-1)
        return entities.relation_scores(self.metrics, names, self.null_label, labels, answers)


class RelationData(NamedTuple):
    """Encoded training and held-out rows with labels, and the tokenizer with the tokens of the markers."""

    rows: list[RelationRow]
    held: list[RelationRow]
    tokenizer: Tokenizer


def features_of_relations(rows: list[RelationRow], labels: np.ndarray) -> Features:
    """Return the tokens of encoded rows with their labels."""
    return dataclasses.replace(ragged_features(row.ids for row in rows), labels=labels)


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of relation extraction names. See `bert_jax.jobs.build`."""
    data, several = recipe.data, recipe.data.multi_label
    if distillation_of(recipe):
        teacher = recipe.distillation.teacher
        raise InputError(f"config.distillation.teacher: expected none for relation extraction, found {teacher}")
    if not data.train:
        raise InputError("config.data.train: expected a file to learn from, found nothing")
    loaded = setup.pretrained(recipe, "encoder")
    rows, held, tokenizer = _read(recipe, setup.tokenizer(recipe, loaded=loaded))
    names, null = relation_names(data.train, rows, data.null_label, several)
    if data.dev:
        bad = fine_tuning.invalid_rows(recipe, data.dev)
        held = list(bad.fitting(check_labels(data.dev, iter(held), names, null, several, bad)))
    else:
        rows, held = _hold_out(recipe, rows, names, null)
    if data.null_ratio:
        rows = limit_null_pairs(rows, null, data.null_ratio, data.split_seed)
    if loaded:
        loaded = with_word_rows(loaded, tokenizer.vocab_size, recipe.seed)
    config = setup.config(recipe, tokenizer, loaded)
    setup.check_head(config, HEAD)
    setup.check_length(data.max_seq_length, config, "config.data.max_seq_length")
    problem_type = PROBLEM_TYPES_OF_LABELS["multi_label" if several else "classification"]
    config = config.replace(pooler=True, num_labels=len(names), id2label=names, problem_type=problem_type)
    best = recipe.best_metric.removeprefix("eval/")
    metrics = entities.choose_relation_metrics(data.metrics, best)
    task = RelationExtractionTask(Bert(config, HEAD, setup.compute(recipe)), metrics, null_label=null)
    train, dev = (
        features_of_relations(side, relation_labels(side, names, null, several)) if side else None
        for side in (rows, held)
    )
    assert train is not None
    counts = {name: sum(name in (row.labels or (null,)) for row in rows) for name in names}
    metadata = TrainingMetadata(classes=counts, records={"relations": RelationSettings(data.markers, null)})
    return fine_tuning.build_job(recipe, task, tokenizer, loaded, train, dev, metadata)


def _read(recipe: Recipe, tokenizer: Tokenizer) -> RelationData:
    """Read the training rows and the evaluation rows (none without data.dev)."""
    data = recipe.data
    settings = RelationSettings(data.markers, data.null_label)
    files = [spec for spec in (data.train, data.dev) if spec]
    counters = [fine_tuning.invalid_rows(recipe, spec) for spec in files]
    read = []
    for spec, bad in zip(files, counters, strict=True):
        rows = check_labels(spec, iterate_relations(spec, True, bad), None, "", data.multi_label, bad)
        read.append(list(bad.kept(rows)))
    check_punctuation(tokenizer, data.markers)
    kinds = {entity.type for rows in read for row in rows for entity in (row.pair.head, row.pair.tail)}
    new = [token for token in marker_tokens(data.markers, kinds) if tokenizer.token_to_id(token) is None]
    tokenizer = with_special_tokens(tokenizer, new) if new else tokenizer
    sides = [
        list(bad.fitting(encode_relations(spec, tokenizer, iter(rows), settings, data.max_seq_length, bad)))
        for spec, bad, rows in zip(files, counters, read, strict=True)
    ]
    return RelationData(sides[0], sides[1] if data.dev else [], tokenizer)


def _hold_out(
    recipe: Recipe, rows: list[RelationRow], names: tuple[str, ...], null: str
) -> tuple[list[RelationRow], list[RelationRow]]:
    """Hold out whole documents if some have several rows, else rows, stratified by class unless multi-label."""
    lines = np.array([row.line for row in rows])
    if len(np.unique(lines)) < len(rows):
        return fine_tuning.hold_out(recipe, rows, groups=np.unique(lines, return_inverse=True)[1])
    if recipe.data.multi_label:
        return fine_tuning.hold_out(recipe, rows)
    return fine_tuning.hold_out(recipe, rows, classes=relation_labels(rows, names, null, several=False))


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return one row per class, with as many classes as TACRED; in multi-label data, `null_label` is not a class."""
    null, several = recipe.data.null_label or NULL_LABELS[0], recipe.data.multi_label
    names = [null, *map(str, range(_USUAL_RELATIONS - 1 + several))]
    entities = {"head": {"start": 0, "end": 1, "type": WORD}, "tail": {"start": 2, "end": 3, "type": WORD}}
    return [{"text": f"{WORD} {WORD}", "label": name, **entities} for name in names]
