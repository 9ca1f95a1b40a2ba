"""A teacher's scores of the documents of training rows, computed once before the first step, and cached."""

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax import program_cache, storage
from bert_jax.conversion.open_checkpoint import open_model
from bert_jax.data.finetuning.features import Paddable
from bert_jax.data.finetuning.ranked_passages import RankedPassages
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.inference.similarity import comparable, compare
from bert_jax.jobs.distillation.settings import Distillation
from bert_jax.jobs.distillation.teacher_outputs import RowsWithOutputs, in_shards
from bert_jax.jobs.distillation.teachers import Teacher
from bert_jax.jobs.synthetic_rows import only_shapes
from bert_jax.modeling.score_losses import ScoreLoss
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.teacher_term import TEACHER_SCORES, TeacherTerm

_ROWS = 256  # rows that are scored at a time, and per file of the cache
_CROSS_ENCODER = "sequence_classification"
_KEY = "config.distillation"


def with_teacher_scores(
    recipe: Recipe, settings: Distillation, head: str, rows: Sequence[RankedPassages], train: Paddable
) -> tuple[RowsWithOutputs, TeacherTerm]:
    """Add the scores of the recipe's teacher to training rows; also return the term of the loss that reads them.

    The teacher is a cross-encoder, whose scores are its logits, or a model of embeddings of any kind, whose scores are
    the similarities of queries and documents.

    Args:
        recipe: the resolved recipe.
        settings: its distillation settings.
        head: the head of the student.
        rows: the n rows.
        train: the same rows, tokenized for the student.

    Raises:
        InputError: the recipe names no cache or has other terms, or the teacher does not score texts.
    """
    if settings.weights.keys() != {"soft_labels"}:
        found = ", ".join(settings.weights)
        raise InputError(f"{_KEY}.weights: expected soft_labels as the only term of the teacher, found {found}")
    if not settings.cache:
        expected = "a directory for the teacher's scores, which are computed once for all rows"
        raise InputError(f"{_KEY}.cache: expected {expected}, found none")
    with open_model(settings.teacher, None, "") as opened:
        teacher_head = opened.model.head
    if settings.student_layers and teacher_head != head:
        expected = f"() for a teacher with another head ({teacher_head}) than the student's ({head})"
        raise InputError(f"{_KEY}.student_layers: expected {expected}, found {settings.student_layers}")
    term = TeacherTerm(
        ScoreLoss(recipe.distillation.score_loss, settings.temperature), settings.weights["soft_labels"],
        settings.labels,
    )  # fmt: skip
    size = max(len(row.passages) for row in rows)
    if only_shapes(recipe):
        return RowsWithOutputs(train, np.broadcast_to(np.float32(0), (len(rows), size)), name=TEACHER_SCORES), term
    scores = _cached(recipe, settings, teacher_head, rows)
    return RowsWithOutputs(train, scores, name=TEACHER_SCORES), term


def _cached(recipe: Recipe, settings: Distillation, head: str, rows: Sequence[RankedPassages]) -> np.ndarray:
    """Return the scores, float32 `[n, K]`, from the cache or computed and cached."""
    cross_encoder = head == _CROSS_ENCODER
    model = pipeline("rerank" if cross_encoder else "embed", settings.teacher, dtype=str(recipe.dtype))
    if not cross_encoder and model.head != head:
        raise InputError(
            f"{_KEY}.teacher: expected a cross-encoder or a model of embeddings, found one of head {head!r}"
        )
    home = storage.Path(settings.cache) / _fingerprint(model, str(recipe.dtype), rows)
    size = max(len(row.passages) for row in rows)

    def score(start: int, stop: int) -> np.ndarray:
        part = rows[start:stop]
        scores = np.zeros((len(part), size), np.float32)
        of_rows = _logits(model, part) if cross_encoder else _similarities(model, part)
        for row, of_row in zip(scores, of_rows, strict=True):
            row[: len(of_row)] = of_row
        return scores

    return in_shards(home, len(rows), _ROWS, score)


def _logits(rerank: Any, rows: Sequence[RankedPassages]) -> list[np.ndarray]:
    """Return the logits of a cross-encoder for the documents of each row."""
    pairs = [(row.query, passage) for row in rows for passage in row.passages]
    return _of_rows(rerank.logits(*zip(*pairs, strict=True)), rows)


def _similarities(embed: Any, rows: Sequence[RankedPassages]) -> list[np.ndarray]:
    """Return the similarities of the query and the documents of each row, by embeddings of any kind."""
    name = embed.model.settings.similarity
    texts = [row.query for row in rows], [passage for row in rows for passage in row.passages]
    queries, documents = (
        comparable(name, embed(side, task=task)) for side, task in zip(texts, ("query", "document"), strict=True)
    )
    starts = [0, *itertools.accumulate(len(row.passages) for row in rows)]
    return [
        compare(name, queries[i : i + 1], documents[start:stop])[0]
        for i, (start, stop) in enumerate(itertools.pairwise(starts))
    ]


def _of_rows(values: np.ndarray, rows: Sequence[RankedPassages]) -> list[np.ndarray]:
    return np.split(values, np.cumsum([len(row.passages) for row in rows])[:-1])


def _fingerprint(teacher: Any, dtype: str, rows: Sequence[RankedPassages]) -> str:
    """Return a hash of the teacher, its dtype and settings, this package, and the texts."""
    model = teacher.model
    of_teacher = Teacher(model, model.params, teacher.tokenizer, model.settings).fingerprint
    made_by = (of_teacher, model.settings, model.max_length, dtype, program_cache.fingerprint_of_sources())
    digest = hashlib.blake2b(repr(made_by).encode(), digest_size=12)
    for row in rows:
        digest.update(repr((row.query, row.passages)).encode())
    return digest.hexdigest()
