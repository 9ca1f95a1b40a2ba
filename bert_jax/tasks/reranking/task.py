"""Reranking: a cross-encoder reads a query with a passage, and scores its relevance.

Nogueira and Cho 2019 (arXiv:1901.04085), section 3.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.conversion.open_checkpoint import open_model
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import INPUTS, Batch
from bert_jax.data.finetuning.columns import Columns, recipe_key
from bert_jax.data.finetuning.features import Paddable
from bert_jax.data.finetuning.ranked_passages import (
    MISSING,
    RankedPassages,
    encode_ranked_passages,
    read_ranked_passages,
)
from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference.scoring import match_output
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.base import Job, Metrics
from bert_jax.jobs.distillation.teachers import teacher_config, teacher_text_settings
from bert_jax.jobs.retrieval_dev import separate_retrieval_sets
from bert_jax.jobs.synthetic_rows import table_rows
from bert_jax.jobs.teaching import distillation_of, reads_no_labels, with_teacher_outputs
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics.pairs import average_precision
from bert_jax.metrics.rankings import RANKING, check_ranking_metric, rankings
from bert_jax.metrics.scores import accuracy, f1
from bert_jax.modeling import Bert, BertOutput
from bert_jax.modeling.score_losses import ScoreLoss
from bert_jax.recipes import Recipe
from bert_jax.tasks.reranking.losses import LAMBDA_WEIGHTINGS, RERANKING_LOSSES, compared_pairs, lambda_loss
from bert_jax.tasks.reranking.relevance import match_logits
from bert_jax.tokenization import Tokenizer

HEAD = "sequence_classification"
OF_PAIRS = ("average_precision", "accuracy", "f1")  # metrics of data with one passage per row


@dataclasses.dataclass(frozen=True)
class RerankingTask:
    """Reranking; each row has a query and K passages with their relevance.

    Attributes:
        model: a Bert with head `sequence_classification` and one output.
        loss_name: a loss of `bert_jax.tasks.reranking.losses`, averaged over passages, queries, or pairs of passages of
            a query (`RerankingLoss.mean_over`).
        metrics: names of `RANKING`, or of `OF_PAIRS` where K is 1.
        temperature: temperature of `kl_divergence`.
        teacher_temperature: temperature of the labels in `kl_divergence`; None = `temperature`.
        weighting: one of `LAMBDA_WEIGHTINGS`, for `lambda`.
        score_loss: one of `SCORE_LOSSES`, the loss between the logits and those of a teacher.
        teacher_match: the output of a teacher with two classes that is high for relevant passages.
    """

    model: Bert
    loss_name: str
    metrics: tuple[str, ...] = RANKING
    temperature: float = 1.0
    teacher_temperature: float | None = None
    weighting: str = LAMBDA_WEIGHTINGS[0]
    score_loss: str = "mse"
    teacher_match: int = 0

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of passages, queries, or ordered pairs of passages, depending on the loss."""
        present = _present(batch)
        match RERANKING_LOSSES[self.loss_name].mean_over:
            case "passages":
                count = present.sum(dtype=jnp.float32)
            case "pairs":
                weighting = self.weighting if self.loss_name == "lambda" else ""
                count = compared_pairs(batch["labels"], present, weighting).sum(dtype=jnp.float32)
            case _:
                count = batch["example_weights"].sum()
        return {"terms": jnp.maximum(count, 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`)."""
        logits, present = self._logits(params, batch, dropout_key), _present(batch)
        relevance = jnp.where(present, batch["labels"], 0)
        losses = self._losses(logits, relevance, present)
        total = (losses * batch["example_weights"]).sum()
        metrics: Metrics = {f"{self.loss_name}_loss": (total, self.weights(batch)["terms"])}
        if logits.shape[1] == 1:
            right = ((logits > 0) == (relevance >= 0.5)) & present
            metrics["accuracy"] = (right.sum(dtype=jnp.float32), present.sum(dtype=jnp.float32))
        else:
            metrics["accuracy"] = (_best_first(logits, relevance, present), batch["example_weights"].sum())
        return total / weights["terms"], metrics

    def _losses(self, logits: jax.Array, relevance: jax.Array, present: jax.Array) -> jax.Array:
        """Return the sum of each row's terms, `[B]`."""
        if self.loss_name == "lambda":
            return lambda_loss(logits, relevance, present, self.weighting)
        if (function := RERANKING_LOSSES[self.loss_name].function) is not None:
            return function(logits, relevance, present)
        loss = ScoreLoss(self.loss_name, self.temperature, self.teacher_temperature)
        return loss.sums(logits, relevance, present)

    def label_weights(self, batch: Batch) -> jax.Array:
        """Return the weight of each row's loss against a teacher, `[B]`; they sum to the denominator of the mean."""
        if ScoreLoss(self.score_loss).of_documents:
            return _present(batch).sum(-1, dtype=jnp.float32)
        weights: jax.Array = batch["example_weights"]
        return weights

    def label_divergence(self, batch: Batch, student: BertOutput, teacher: BertOutput, temperature: float) -> jax.Array:
        """Return the loss of the student's logits against the teacher's, of each row, divided by its weight, `[B]`."""
        loss, present = ScoreLoss(self.score_loss, temperature), _present(batch)
        assert student.logits is not None and teacher.logits is not None
        theirs = match_logits(teacher.logits, self.teacher_match)
        losses = loss.sums(student.logits.reshape(present.shape), theirs.reshape(present.shape), present)
        return losses / jnp.maximum(self.label_weights(batch), 1) if loss.of_documents else losses

    def check_teacher(self, teacher: Bert) -> None:
        """Raise InputError when a teacher has more outputs than a cross-encoder."""
        if (outputs := teacher.config.num_labels) > 2:
            expected = "a teacher with one output or two classes"
            raise InputError(f"config.distillation.teacher: expected {expected}, found one of {outputs}")

    def token_batch(self, batch: Batch) -> Batch:
        """Return the batch without the tokens of padding passages, for terms that compare tokens with a teacher."""
        return batch | {"attention_mask": batch["attention_mask"] * _present(batch)[:, :, None]}

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return `logits` [B, K] of the passages, float32, without dropout."""
        return {"logits": self._logits(params, batch, None)}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the chosen metrics over all rows that are not padding."""
        real = np.concatenate([batch["example_weights"] for batch in batches]) > 0
        logits = np.concatenate([prediction["logits"] for prediction in predictions])[real]
        labels = np.concatenate([batch["labels"] for batch in batches])[real]
        if labels.shape[1] > 1:
            scores = rankings(labels, logits, self.metrics)
        else:
            relevant, predicted = labels[:, 0] >= 0.5, logits[:, 0] > 0
            scores = {"accuracy": accuracy(relevant, predicted), "f1": f1(relevant, predicted)}
            scores["average_precision"] = average_precision(relevant, logits[:, 0])
        return {name: scores[name] for name in self.metrics}

    def _logits(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> jax.Array:
        rows, passages, length = batch["input_ids"].shape
        inputs = (batch[name].reshape(-1, length) for name in INPUTS)
        logits = self.model.apply(params, *inputs, dropout_key=dropout_key, output_last_hidden_state=False).logits
        assert logits is not None
        return logits.reshape(rows, passages)


def _present(batch: Batch) -> jax.Array:
    """Return a mask of passages that are not padding, bool `[B, K]`."""
    present: jax.Array = (batch["labels"] > MISSING) & (batch["example_weights"][:, None] > 0)
    return present


def _best_first(logits: jax.Array, relevance: jax.Array, present: jax.Array) -> jax.Array:
    """Return the number of queries whose passage with the highest score has the greatest relevance."""
    best = present & (relevance == jnp.where(present, relevance, MISSING).max(-1, keepdims=True))
    highest = jnp.where(present, logits, MISSING).max(-1, keepdims=True)
    return (best & (logits >= highest)).any(-1).sum(dtype=jnp.float32)


def passage_columns(recipe: Recipe) -> Columns:
    """Return the columns that a recipe's data section names. Raises InputError when they do not fit together."""
    data = recipe.data
    negatives = fine_tuning.negative_columns(data)
    fine_tuning.check_negative_columns(data)
    if negatives and (data.label_column or data.passages_column):
        name = "label_column" if data.label_column else "passages_column"
        raise InputError(f"config.data.{name}: expected none with negatives, found {data[name]!r}")
    if not negatives and not data.label_column and not reads_no_labels(recipe):
        raise InputError("config.data.label_column: expected a column, or columns of negatives, found none")
    if RERANKING_LOSSES[data.loss].of_lists and not negatives and not data.passages_column:
        expected = f"a column of lists, or columns of negatives, for loss {data.loss!r}"
        raise InputError(f"config.data.passages_column: expected {expected}, found none")
    for name in ("text_column", *(() if data.passages_column else ("pair_column",))):
        if not data[name]:
            raise InputError(f"config.data.{name}: expected a column, found none")
    return Columns(
        data.text_column, "" if data.passages_column else data.pair_column, data.label_column, data.has_header,
        more=negatives, texts=data.passages_column, delimiter=data.delimiter, encoding=data.encoding, option=recipe_key,
    )  # fmt: skip


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of reranking names. See `bert_jax.jobs.build`."""
    recipe, retrieval = separate_retrieval_sets(recipe)
    data, columns = recipe.data, passage_columns(recipe)
    distilled = distillation_of(recipe)
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, HEAD)
    unlabelled = reads_no_labels(recipe)
    rows = _read(recipe, data.train, dataclasses.replace(columns, label="") if unlabelled else columns, not unlabelled)
    _, queries = np.unique([row.query for row in rows], return_inverse=True)
    rows, held = fine_tuning.hold_out(recipe, rows, groups=queries)
    if data.dev:
        held = _read(recipe, data.dev, columns)
    settings = _text_settings(recipe)
    prompt = settings.prompt()
    model = _model(recipe, config)
    train: Paddable = encode_ranked_passages(tokenizer, rows, data.max_seq_length, prompt)
    taught: dict[str, Any] = {"score_loss": recipe.distillation.score_loss}
    if distilled:
        theirs = teacher_text_settings(distilled, HEAD).prompt()
        if theirs != prompt and not distilled.cache:
            raise InputError(
                f"config.distillation.teacher: expected the student's default prompt {prompt!r}, as both read the same "
                f"tokens, found {theirs!r}; set config.distillation.cache"
            )

        def encode(tokenizer: Tokenizer, of_teacher: TextSettings, length: int) -> Paddable:
            return encode_ranked_passages(tokenizer, rows, length, of_teacher.prompt())

        train = with_teacher_outputs(recipe, model, tokenizer, train, encode)
        if "soft_labels" in distilled.weights:
            taught["teacher_match"] = match_output(teacher_config(distilled, HEAD))
    dev = encode_ranked_passages(tokenizer, held, data.max_seq_length, prompt) if held else None
    single = dev is not None and dev.size == 1
    task = RerankingTask(
        model, data.loss, choose_ranking_metrics(data.metrics, single), temperature=data.temperature,
        teacher_temperature=data.teacher_temperature, weighting=data.weighting, **taught,
    )  # fmt: skip
    metadata = TrainingMetadata(dataclasses.replace(columns, more=(), texts=""))
    saved = {"settings": settings} if prompt else {}
    job = fine_tuning.build_job(recipe, task, tokenizer, loaded, train, dev, metadata, **saved)
    if retrieval is None:
        return job
    from bert_jax.tasks.reranking.dev_evaluation import with_reranking_evaluation

    return with_reranking_evaluation(job, recipe, retrieval, task, prompt)


def _text_settings(recipe: Recipe) -> TextSettings:
    """Return the text settings of the cross-encoder to train, whose default prompt is put before queries.

    It is `data.query_prefix`, or else that of the cross-encoder in `init_from`.
    """
    of_model, prefix = TextSettings(), recipe.data.query_prefix
    if recipe.init_from:  # `starting_model` reads an encoder, without the settings of its head
        with open_model(recipe.init_from, HEAD, "") as opened:
            of_model = opened.settings
    prompts, default = dict(of_model.prompts), of_model.default_prompt
    if prefix is not None:
        prompts, default = prompts | {"query": prefix}, "query"
    return TextSettings(prompts=tuple(prompts.items()), default_prompt=default, cross_encoder=True)


def choose_ranking_metrics(names: Sequence[str], single: bool) -> tuple[str, ...]:
    """Return the metrics to report: `names`, or all that apply to rows of one passage (`single`) or of several.

    Raises:
        InputError: a metric does not apply.
    """
    fitting = OF_PAIRS if single else RANKING
    for name in names:
        if (name if single else name.partition("@")[0]) not in fitting:
            rows = "one passage" if single else "several passages"
            raise InputError(f"data.metrics: {name!r} is not a metric of rows of {rows}{did_you_mean(name, fitting)}")
        if not single:
            check_ranking_metric(name, "data.metrics")
    return tuple(names) or fitting


def _read(recipe: Recipe, spec: str, columns: Columns, compared: bool = True) -> list[RankedPassages]:
    """Read the rows of a table; `compared` tells whether a loss or metrics compare the relevance of its passages."""
    probabilities = recipe.data.loss == "binary_cross_entropy"
    rows = read_ranked_passages(spec, columns, fine_tuning.invalid_rows(recipe, spec), probabilities)
    lists = compared and RERANKING_LOSSES[recipe.data.loss].of_lists
    if lists and not any(len(set(row.relevance)) > 1 for row in rows):
        raise InputError(f"{spec}: expected passages of different relevance in a row, found none")
    return rows


def _model(recipe: Recipe, config: Any) -> Bert:
    """Return the cross-encoder: one output, whose sigmoid is the score."""
    config = config.replace(pooler=True, num_labels=1, id2label=None, problem_type=None)
    return Bert(config, HEAD, setup.compute(recipe))


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return two synthetic rows; they have lists of two passages if the columns or the loss need lists."""
    data = recipe.data
    if RERANKING_LOSSES[data.loss].of_lists and not fine_tuning.negative_columns(data):
        data.passages_column = data.passages_column or "passages"
    columns = passage_columns(recipe)
    return table_rows(columns, ([1, 0], [0, 1]) if columns.texts else (1, 0))
