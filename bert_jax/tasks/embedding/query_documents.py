"""Training of sparse embeddings and late interaction on queries with documents."""

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.columns import Columns, recipe_key
from bert_jax.data.finetuning.features import Paddable
from bert_jax.data.finetuning.ranked_passages import MISSING, RankedPassages, read_ranked_passages
from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference.similarity import compare
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.base import QUERY_INPUTS, Job, Metrics
from bert_jax.jobs.retrieval_dev import separate_retrieval_sets
from bert_jax.jobs.synthetic_rows import WORD, table_rows
from bert_jax.jobs.teaching import distillation_of
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics import default_metrics, measure, metrics_of
from bert_jax.metrics.retrieval import ranks_among
from bert_jax.modeling import Bert
from bert_jax.modeling.score_losses import ScoreLoss
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.in_batch_negatives import cross_entropy_in_parts, embed_in_parts
from bert_jax.tasks.embedding.query_document_rows import encode_query_documents
from bert_jax.tasks.embedding.teacher_term import TeacherTerm

_INPUTS = (*QUERY_INPUTS, "input_ids", "attention_mask")


@dataclasses.dataclass(frozen=True)
class QueryDocumentTask(abc.ABC):
    """Embedding of queries and documents; each row has a query and K documents with their relevance.

    Attributes:
        model: a Bert with a head of embeddings.
        loss_name: `in_batch_negatives`: cross entropy of a query's first document among all documents of the batch,
            with scores times `scale` as logits. `margin_mse`: squared error between the score of the first document
            minus that of another and the same difference of labels, averaged over the other documents (Hofstatter et
            al. 2020, arXiv:2010.02666, section 4.1). `kl_divergence`: KL divergence between the softmax of the labels
            of a query's documents and that of the scores, both at `temperature` T, times T² (Santhanam et al. 2022,
            arXiv:2112.01488, section 3.2). `mse`: squared error between scores and labels, averaged over documents.
        metrics: names of metrics of ranks (`bert_jax.metrics.KINDS`).
        scale: factor of scores in `in_batch_negatives`.
        temperature: divisor of scores and labels in `kl_divergence`.
        teacher_temperature: divisor of the labels in `kl_divergence`; None = `temperature`.
        parts: number of parts of the batch that are embedded one at a time, for `in_batch_negatives`.
        similarity: the similarity of queries and documents (`bert_jax.inference.similarity`).
        teacher_term: a second term of the loss, from a teacher's scores in the batch; None = none.
    """

    model: Bert
    loss_name: str = "in_batch_negatives"
    metrics: tuple[str, ...] = default_metrics("ranks")
    scale: float = 1.0
    temperature: float = 1.0
    parts: int = 1
    similarity: str = "dot"
    teacher_temperature: float | None = None
    teacher_term: TeacherTerm | None = None

    def embed(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> tuple[Any, Any]:
        """Return the embeddings of queries, `[B, ...]`, and of documents, `[B, K, ...]`."""
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        ids, mask = batch["input_ids"], batch["attention_mask"]  # [B, K, S]
        length = ids.shape[-1]
        documents = self.vectors(params, ids.reshape(-1, length), mask.reshape(-1, length), keys[1])
        queries = self.query_vectors(params, batch["query_ids"], batch["query_mask"], keys[0])
        return queries, documents.reshape(*ids.shape[:2], *documents.shape[1:])

    @abc.abstractmethod
    def vectors(self, params: Any, ids: jax.Array, mask: jax.Array, dropout_key: jax.Array | None) -> jax.Array:
        """Return the embeddings `[n, ...]` of texts with tokens `[n, S]`."""

    def query_vectors(self, params: Any, ids: jax.Array, mask: jax.Array, dropout_key: jax.Array | None) -> jax.Array:
        """Return the embeddings `[n, ...]` of queries with tokens `[n, S]`; by default, as of documents."""
        return self.vectors(params, ids, mask, dropout_key)

    @abc.abstractmethod
    def scores(self, queries: Any, documents: Any) -> jax.Array:
        """Return the scores `[B, n, K]` of B queries with the K documents of each of n rows."""

    @abc.abstractmethod
    def own_scores(self, queries: Any, documents: Any) -> jax.Array:
        """Return the scores `[B, K]` of queries with the documents of their rows."""

    @abc.abstractmethod
    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return the embeddings, without dropout."""

    @abc.abstractmethod
    def predicted(self, predictions: list[dict[str, np.ndarray]], real: list[np.ndarray]) -> tuple[Any, Any]:
        """Return the vectors of n queries and of all their `n * K` documents, in the format that pipelines compare.

        Args:
            predictions: result of `predict` per batch.
            real: bool `[B]` for each batch: which rows are not padding.
        """

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the chosen metrics over all rows that are not padding."""
        real = [batch["example_weights"] > 0 for batch in batches]
        queries, documents = self.predicted(predictions, real)
        labels = np.concatenate([batch["labels"][rows] for batch, rows in zip(batches, real, strict=True)])  # [n, K]
        own = np.arange(len(labels)) * labels.shape[1] + labels.argmax(1)  # the most relevant document of each query

        def scores(rows: slice) -> np.ndarray:
            return np.where(labels.ravel() > MISSING, compare(self.similarity, queries[rows], documents), MISSING)

        return measure("ranks", self.metrics, ranks_among(scores, own, relative=True))

    @property
    def compares_rows(self) -> bool:
        """Return whether the loss compares the rows of a batch with each other."""
        return self.loss_name == "in_batch_negatives"

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of rows that are not padding; for means over documents also that of documents."""
        rows = {"rows": jnp.maximum(batch["example_weights"].sum(), 1.0)}
        if self._score_loss.of_documents or (self.teacher_term and self.teacher_term.loss.of_documents):
            return rows | {"documents": jnp.maximum(_present(batch).sum(dtype=jnp.float32), 1.0)}
        return rows

    @property
    def _score_loss(self) -> ScoreLoss:
        return ScoreLoss(self.loss_name, self.temperature, self.teacher_temperature)

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch (see `bert_jax.jobs.base.Task`).

        With `in_batch_negatives`, the task gets the whole batch and splits it itself.
        """
        inputs, real = {name: batch[name] for name in _INPUTS}, batch["example_weights"]
        embed = functools.partial(self.embed, params)
        if self.parts == 1:
            queries, documents = embed(inputs, dropout_key)
        else:
            queries, documents = embed_in_parts(embed, inputs, dropout_key, self.parts)
        present = _present(batch)
        if self.loss_name == "in_batch_negatives":
            losses, right = self._contrast(queries, documents, present)
            sums = {name: ((value * real).sum(), real.sum())
                    for name, value in {"cross_entropy": losses, "accuracy": right}.items()}  # fmt: skip
            total = (losses * real).sum() / weights["rows"]
        else:
            score_loss = self._score_loss
            value = (score_loss.sums(self.own_scores(queries, documents), batch["labels"], present) * real).sum()
            sums = {self.loss_name: (value, score_loss.count(present, real))}
            total = value / weights["documents" if score_loss.of_documents else "rows"]
        if self.teacher_term:
            own_scores = self.own_scores(queries, documents)
            total, sums = self.teacher_term.added(total, sums, own_scores, batch, present, weights)
        more, more_sums = self.regularise(queries, documents, batch)
        return total + more, sums | more_sums

    def regularise(self, queries: Any, documents: Any, batch: Batch) -> tuple[Any, Metrics]:
        """Return a regularisation term of the loss, and its metrics."""
        return 0.0, {}

    def _contrast(self, queries: Any, documents: Any, present: jax.Array) -> tuple[jax.Array, jax.Array]:
        numbers = jnp.arange(len(present))

        def logits_of(part: tuple[Any, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            documents, present, number = part
            return self.scale * self.scores(queries, documents), ~present[None], numbers[:, None] == number

        return cross_entropy_in_parts(logits_of, (documents, present, numbers), self.parts)


def _present(batch: Batch) -> jax.Array:
    """Return a mask of documents that are not padding, bool `[B, K]`."""
    present: jax.Array = (batch["labels"] > MISSING) & (batch["example_weights"][:, None] > 0)
    return present


def document_columns(recipe: Recipe) -> Columns:
    """Return the columns that a recipe's data section names. Raises InputError when they do not fit together."""
    data = recipe.data
    negatives = fine_tuning.negative_columns(data)
    fine_tuning.check_negative_columns(data)
    distils = data.loss != "in_batch_negatives"
    if negatives and data.passages_column:
        raise InputError(f"config.data.passages_column: expected none with negatives, found {data.passages_column!r}")
    if distils and not data.label_column:
        expected = f"the column of a teacher's scores for loss {data.loss!r}"
        raise InputError(f"config.data.label_column: expected {expected}, found none")
    if distils and not data.passages_column and (data.loss != "margin_mse" or len(negatives) != 1):
        expected = f"a column of lists for loss {data.loss!r}"
        if data.loss == "margin_mse":
            expected += ", or one column of negatives"
        raise InputError(f"config.data.passages_column: expected {expected}, found none")
    for name in ("text_column", *(() if data.passages_column else ("pair_column",))):
        if not data[name]:
            raise InputError(f"config.data.{name}: expected a column, found none")
    return Columns(
        data.text_column, "" if data.passages_column else data.pair_column, data.label_column if distils else "",
        data.has_header, more=negatives, texts=data.passages_column, delimiter=data.delimiter, encoding=data.encoding,
        option=recipe_key,
    )  # fmt: skip


def build_retrieval_job(
    recipe: Recipe, head: str, settings_of: Callable[..., tuple[BertConfig, TextSettings]], task_of: Callable[..., Any]
) -> Job:
    """Read the data and the model that a resolved recipe of queries and documents names. See `bert_jax.jobs.build`.

    Args:
        recipe: the recipe.
        head: the head to train.
        settings_of: function from recipe, config and text settings (None for a new model) to new config and settings.
        task_of: function from the arguments of every `QueryDocumentTask`, recipe, tokenizer and settings to the task.
    """
    recipe, retrieval = separate_retrieval_sets(recipe)
    data, columns = recipe.data, document_columns(recipe)
    _check(recipe)
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, head, head)
    config, settings = settings_of(recipe, config, loaded.settings if loaded else None)
    rows, held = fine_tuning.hold_out(recipe, _read(recipe, data.train, columns))
    if sum(len(row.passages) for row in rows) < 2:
        raise InputError(f"{data.train}: expected at least 2 rows, which are negatives of each other, found 1")
    if data.dev:
        held = _read(recipe, data.dev, columns)
    plain = bool(config.query_weights)
    train: Paddable = encode_query_documents(tokenizer, rows, settings, plain)
    teacher_term = None
    if distilled := distillation_of(recipe):
        from bert_jax.tasks.embedding.teacher_scores import with_teacher_scores

        train, teacher_term = with_teacher_scores(recipe, distilled, head, rows, train)
    dev = encode_query_documents(tokenizer, held, settings, plain) if held else None
    options = {"model": Bert(config, head, setup.compute(recipe)), "loss_name": data.loss,
               "metrics": tuple(data.metrics) or default_metrics("ranks"), "scale": data.scale,
               "temperature": data.temperature, "teacher_temperature": data.teacher_temperature,
               "teacher_term": teacher_term,
               "parts": recipe.accumulation_steps if data.loss == "in_batch_negatives" else 1}  # fmt: skip
    task = task_of(options, recipe, tokenizer, settings)
    metadata = TrainingMetadata(dataclasses.replace(columns, more=(), texts="", label=""))
    job = fine_tuning.build_job(recipe, task, tokenizer, loaded, train, dev, metadata, settings=settings)
    if retrieval is None:
        return job
    from bert_jax.tasks.embedding.search.dev_evaluation import with_search_evaluation

    return with_search_evaluation(job, recipe, retrieval, settings, task)


def _read(recipe: Recipe, spec: str, columns: Columns) -> list[RankedPassages]:
    """Read the rows of a table; the first document of a row is the positive."""
    rows = read_ranked_passages(spec, columns, fine_tuning.invalid_rows(recipe, spec))
    if recipe.data.loss != "in_batch_negatives" and not any(len(row.passages) > 1 for row in rows):
        raise InputError(f"{spec}: expected rows of at least 2 documents for loss {recipe.data.loss!r}, found none")
    return rows


def _check(recipe: Recipe) -> None:
    """Raise InputError when a recipe names an unknown metric."""
    for name in recipe.data.metrics:
        if name not in (fitting := metrics_of("ranks")):
            raise InputError(f"data.metrics: {name!r} is not a metric of search{did_you_mean(name, fitting)}")


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return two rows whose texts have the maximum length."""
    columns, data = document_columns(recipe), recipe.data
    text = " ".join([WORD] * max(data.max_seq_length, data.get("query_length") or 0))
    return table_rows(columns, ([1, 0], [0, 1]) if columns.texts else (1, 0), text)
