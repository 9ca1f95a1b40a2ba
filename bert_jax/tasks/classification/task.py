"""Sequence classification (one or several labels) and regression, for texts or pairs.

Devlin et al. 2018 (arXiv:1810.04805), section 4.1.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.features import Features, encode_texts
from bert_jax.data.finetuning.labelled_rows import count_classes, labels_of, read_labelled, read_unlabelled
from bert_jax.data.finetuning.labels import LabelRules
from bert_jax.data.finetuning.tables import Example
from bert_jax.data.tokens import packing
from bert_jax.errors import InputError
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.base import Job, Metrics, model_inputs, real_rows
from bert_jax.jobs.teaching import reads_no_labels, teacher_classes, with_teacher_outputs
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics import scores as metrics
from bert_jax.modeling import Bert
from bert_jax.modeling.losses import cross_entropy
from bert_jax.recipes import Recipe

HEAD = "sequence_classification"
PROBLEM_TYPES_OF_LABELS = {  # value of `data.task_type` -> `problem_type` of the model
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}


@dataclasses.dataclass(frozen=True)
class ClassificationTask:
    """Sequence classification, multi-label classification or regression, by the config's problem_type.

    The loss is the cross entropy over classes, the mean binary cross entropy over classes (multi-label), or the squared
    error (regression).

    Attributes:
        model: a Bert with head `sequence_classification`.
        metrics: names of `bert_jax.metrics.scores`.
        class_weights: weight of a row's loss by its class; () = 1 for all.
        label_smoothing: fraction of the label's probability that is spread evenly over all classes (Szegedy et al.
            2015, arXiv:1512.00567, section 7).
        token_dropout: fraction of input tokens that a training step replaces with `mask_id` (Iyyer et al. 2015, ACL
            P15-1162, section 3.1).
        r_drop: weight of the divergence between two passes with different dropout, whose losses are averaged (Liang et
            al. 2021, arXiv:2106.14448); 0 = one pass.
        mask_id: id of [MASK].
        special_ids: ids of tokens that token dropout never replaces.
    """

    model: Bert
    metrics: tuple[str, ...]
    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0
    token_dropout: float = 0.0
    r_drop: float = 0.0
    mask_id: int = 0
    special_ids: tuple[int, ...] = ()

    @property
    def regression(self) -> bool:
        """Return whether the label is a number."""
        return self.model.config.problem_type == "regression"

    @property
    def several(self) -> bool:
        """Return whether a text may have several labels."""
        return self.model.config.problem_type == "multi_label_classification"

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the sum of the weights of rows (times class weights); the windows of a text weigh 1 in total."""
        total = (batch["example_weights"] * self._class_weight(batch)).sum()
        return {"labels": jnp.where(total > 0, total, 1.0)}

    def _class_weight(self, batch: Batch) -> jax.Array | float:
        return jnp.asarray(self.class_weights, jnp.float32)[batch["labels"]] if self.class_weights else 1.0

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`)."""
        passes = 1
        if dropout_key is not None and self.r_drop:
            passes = 2  # the two passes are adjacent rows, so that they are on the same device
            batch = {name: jnp.repeat(array, passes, axis=0) for name, array in batch.items()}
        if dropout_key is not None and self.token_dropout:
            batch = batch | {"input_ids": self._hide_tokens(batch["input_ids"], dropout_key)}
        logits = self._logits(params, batch, dropout_key)
        labels, real = batch["labels"], batch["example_weights"] / passes
        total = (self.row_losses(logits, labels) * real * self._class_weight(batch)).sum()
        count = real.sum()
        metrics = {name: ((values * real).sum(), count) for name, values in self._row_metrics(logits, labels).items()}
        metrics["packing"] = packing(batch)
        if passes > 1:
            total += self.r_drop * (self._divergence(logits) * real).sum()
        return total / weights["labels"], metrics

    def row_losses(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        """Return the loss of each row, before weights: [...] for logits [..., C]. A subclass may have another loss."""
        if self.regression or self.several:
            return self._row_metrics(logits, labels)["mse" if self.regression else "cross_entropy"]
        losses, _ = cross_entropy(logits, labels)
        if self.label_smoothing:
            spread = jax.nn.logsumexp(logits, axis=-1) - logits.mean(-1)
            losses = (1 - self.label_smoothing) * losses + self.label_smoothing * spread
        return losses

    def _row_metrics(self, logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
        """Return the metrics of each row of a training batch, [...] for logits [..., C]."""
        if self.regression:
            return {"mse": jnp.square(logits[..., 0] - labels)}
        if self.several:
            losses = (jax.nn.softplus(logits) - labels * logits).mean(-1)
            return {"cross_entropy": losses, "answers_right": ((logits > 0) == (labels > 0)).mean(-1)}
        losses, right = cross_entropy(logits, labels)
        return {"cross_entropy": losses, "accuracy": right}

    def _divergence(self, logits: jax.Array) -> jax.Array:
        """Return R-Drop's divergence between the two passes of each row, for logits of 2B rows.

        This is the mean of both Kullback-Leibler divergences (for multi-label, averaged over classes), or the squared
        difference for regression.
        """
        pairs = logits.reshape(-1, 2, *logits.shape[1:])
        if self.regression:
            distance = jnp.square(pairs[:, 0] - pairs[:, 1])[..., 0]
        elif self.several:
            distance = ((jax.nn.sigmoid(pairs[:, 0]) - jax.nn.sigmoid(pairs[:, 1])) * (pairs[:, 0] - pairs[:, 1])).mean(
                -1
            ) / 2
        else:
            (p, q), (log_p, log_q) = (f(pairs).swapaxes(0, 1) for f in (jax.nn.softmax, jax.nn.log_softmax))
            distance = ((p - q) * (log_p - log_q)).sum(-1) / 2
        return jnp.repeat(distance, 2, axis=0)

    def _hide_tokens(self, input_ids: jax.Array, dropout_key: jax.Array) -> jax.Array:
        # Fold in a number that no layer has, so that these draws are independent of the model's dropout.
        hidden = jax.random.bernoulli(jax.random.fold_in(dropout_key, 2**31), self.token_dropout, input_ids.shape)
        return jnp.where(hidden & ~jnp.isin(input_ids, jnp.array(self.special_ids)), self.mask_id, input_ids)

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return `logits` [B, C], float32, without dropout; for regression C is 1."""
        return {"logits": self._logits(params, batch, None)}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the chosen metrics over all rows that are not padding; logits of windows are averaged per text."""
        logits, labels = real_rows(predictions, "logits", batches), real_rows(batches, "labels", batches)
        if "documents" in batches[0]:
            documents = real_rows(batches, "documents", batches)
            lengths = np.concatenate(
                [batch["attention_mask"][batch["example_weights"] > 0].sum(1) for batch in batches]
            )
            from bert_jax.data.finetuning.windows import averaged

            logits = averaged(logits, documents, lengths)
            labels = labels[np.unique(documents, return_index=True)[1]]
        answers = logits[:, 0] if self.regression else (logits > 0) if self.several else logits.argmax(-1)
        return metrics.compute_metrics(self.metrics, labels, answers, logits.shape[1])

    def _logits(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> jax.Array:
        logits = self.model.apply(
            params, **model_inputs(batch), dropout_key=dropout_key, output_last_hidden_state=False
        ).logits
        assert logits is not None
        return logits


def labelled_columns(recipe: Recipe) -> Columns:
    """Return the columns that a recipe's data section names."""
    separator = recipe.data.label_separator if recipe.data.task_type == "multi_label" else ""
    return dataclasses.replace(fine_tuning.table_columns(recipe), separator=separator)


def _rules(data: Any) -> LabelRules:
    return LabelRules(data.near_duplicate_labels, data.missing_labels, tuple(map(str, data.label_names)))


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved classification recipe names. See `bert_jax.jobs.build`."""
    data, regression = recipe.data, recipe.data.task_type == "regression"
    if data.long_texts == "windows" and data.pair_column:
        raise InputError("config.data.long_texts: expected cut for pairs of texts, found windows")
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, HEAD, HEAD if recipe.keep_head else "encoder")
    named, rules = labelled_columns(recipe), _rules(data)
    rows, labels, held, names = _read(recipe, named, rules)
    stride = data.doc_stride if data.long_texts == "windows" else None

    def encoded(side: list[Example], labels: np.ndarray) -> Features:
        return encode_texts(tokenizer, side, labels, data.max_seq_length, stride)

    train, dev = encoded(rows, labels), encoded(held, labels_of(held, named, names)) if held else None
    config = config.replace(
        pooler=True,
        num_labels=1 if regression else len(names),
        id2label=None if regression else names,
        problem_type=PROBLEM_TYPES_OF_LABELS[data.task_type],
    )
    model = Bert(config, HEAD, setup.compute(recipe))
    best = recipe.best_metric.removeprefix("eval/")
    task = ClassificationTask(
        model,
        metrics.choose_metrics(data.metrics, regression, len(names), data.task_type == "multi_label", best),
        class_weights=_class_weights(data, labels, len(names)),
        label_smoothing=recipe.label_smoothing,
        token_dropout=data.token_dropout,
        r_drop=recipe.r_drop,
        mask_id=tokenizer.mask_id if data.token_dropout else 0,
        special_ids=tokenizer.special_ids,
    )
    train = with_teacher_outputs(
        recipe, model, tokenizer, train, lambda tokenizer, _, length: encode_texts(tokenizer, rows, labels, length)
    )
    counts = {} if rows[0].label is None else count_classes(rows, named, names)
    return fine_tuning.build_job(
        recipe, task, tokenizer, loaded, train, dev, TrainingMetadata(named, counts, rules.missing),
        settings=loaded.settings if loaded and config.classifies_embedding else None,
    )  # fmt: skip


class _Read(NamedTuple):
    """The training rows with their labels as numbers, the held-out rows, and the names of the classes."""

    rows: list[Example]
    labels: np.ndarray
    held: list[Example]
    names: tuple[str, ...]


def _read(recipe: Recipe, named: Columns, rules: LabelRules) -> _Read:
    """Read the rows of a recipe. With a teacher's soft labels, classes are the teacher's, and labels are optional."""
    data, regression = recipe.data, recipe.data.task_type == "regression"
    bad, names = fine_tuning.invalid_rows(recipe, data.train), teacher_classes(recipe, HEAD)
    names = () if regression and names is not None else names
    held: list[Example] = []
    if names is not None and reads_no_labels(recipe):
        rows = read_unlabelled(data.train, named, bad)
        width = (len(names),) if data.task_type == "multi_label" else ()
        labels = np.zeros((len(rows), *width), np.int32 if data.task_type == "classification" else np.float32)
    else:
        rows, names = read_labelled(data.train, named, names, regression, bad, rules)
        single = data.task_type == "classification"
        rows, held = fine_tuning.hold_out(recipe, rows, classes=labels_of(rows, named, names) if single else None)
        labels = labels_of(rows, named, names)
    if data.dev:
        held, _ = read_labelled(data.dev, named, names, regression, fine_tuning.invalid_rows(recipe, data.dev), rules)
    return _Read(rows, labels, held, names)


def _class_weights(data: Any, labels: np.ndarray, count: int) -> tuple[float, ...]:
    """Return a loss weight per class: for `balanced` in inverse proportion to its rows, with a mean of 1 over all rows;
    otherwise (), for no weights. A class without rows is weighted like one with a single row."""
    if data.class_weights != "balanced" or not labels.any():  # all labels are 0 if rows have none
        return ()
    rows = np.bincount(labels, minlength=count)
    return tuple(len(labels) / (np.count_nonzero(rows) * np.maximum(rows, 1)))
