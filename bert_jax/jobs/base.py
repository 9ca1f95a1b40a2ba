"""The protocols of tasks and batch sources, and `Job`: everything needed to train a task."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import jax
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.storage import PathLike

Metrics = dict[str, tuple[jax.Array, jax.Array]]  # name -> (sum, count); the metric is sum / count

QUERY_INPUTS = ("query_ids", "query_mask", "query_scored")  # inputs of rows with a query and documents
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "segment_ids", "cls_positions")


class Task(Protocol):
    """A task: pure functions of parameters and a batch. Implementations are frozen and hold no parameters."""

    @property
    def model(self) -> Any:
        """Return the model to train: a bert_jax.modeling.Bert or Electra."""
        ...

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the denominator of each loss term, computed once over the batch and used by all its micro-batches."""
        ...

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch.

        The loss is the sum over terms of (sum over the examples given) / weights[term]. Losses and metrics of the
        micro-batches sum to those of the whole batch from which `weights` came. `dropout_key` None means no dropout.
        """
        ...

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return the outputs for each example that `score` needs, without dropout."""
        ...

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the metrics of a whole evaluation set, on the host. Rows with example_weights of 0 are padding."""
        ...


class Batches(Protocol):
    """A source of batches by step number; a batch does not depend on batches read before."""

    def batch(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
        """Return the batch of `step`, or only some of its rows (each host makes its own rows)."""
        ...


class EvalBatches(Batches, Protocol):
    """A source with a finite number of batches."""

    @property
    def num_batches(self) -> int:
        """Return the number of batches."""
        ...


class Evaluation(NamedTuple):
    """A held-out set, and the task that predicts and scores it.

    Attributes:
        task: a task with the parameters of the job's task; only its `predict` and `score` are used.
        source: the batches of the set.
        score: function of an iterator of (predictions, batch) that returns the metrics, in place of `task.score`, whose
            predictions must all fit in memory; None = `task.score`.
    """

    task: Task
    source: EvalBatches
    score: Callable[[Iterator[tuple[Any, Batch]]], dict[str, float]] | None = None


def real_rows(parts: Sequence[Mapping[str, np.ndarray]], name: str, batches: Sequence[Batch]) -> np.ndarray:
    """Return the rows of array `name` of all batches, or of their predictions, without rows that are padding.

    Args:
        parts: for each batch a dict with the array, [B, ...].
        name: the name of the array.
        batches: the batches, whose rows with example_weights of 0 are padding.
    """
    rows = [part[name][batch["example_weights"] > 0] for part, batch in zip(parts, batches, strict=True)]
    return np.concatenate(rows)


def model_inputs(batch: Batch) -> Batch:
    """Return the arrays of a batch that are arguments of `Bert.apply`."""
    return {name: batch[name] for name in MODEL_INPUTS if name in batch}


@dataclasses.dataclass(frozen=True)
class Job:
    """A training job: everything that the training loop needs, for any task.

    Attributes:
        task: loss, metrics and predictions.
        tokenizer: the tokenizer of the data.
        init_params: function from a key to parameters; jit it to create them sharded.
        pretrained: numpy arrays that replace some parameters, matched by path; None = none.
        train_source: training batches for steps 0 to num_steps - 1.
        eval_source: held-out batches, or None.
        num_steps: optimizer steps of the whole run.
        save: function of (directory, numpy parameters) that writes the model in the Hugging Face layout.
        data: function that returns the fingerprints of the data (`bert_jax.jobs.fingerprints`), JSON values by name.
            It reads all rows, so only the process that owns the work directory calls it.
        classes: class -> number of rows in the training data; empty for tasks without classes.
        notes: lines about the data, which are printed when the run starts.
        more_evaluations: held-out sets that another task scores, by name. Their metrics are called `NAME/METRIC`, or
            `METRIC` for the name "".
        heads: directory -> recipe and job of the model that `save` writes into it; empty = it writes one model.
    """

    task: Task
    tokenizer: Any
    init_params: Callable[[jax.Array], Any]
    pretrained: Any | None
    train_source: Batches
    eval_source: EvalBatches | None
    num_steps: int
    save: Callable[[PathLike, Any], None]
    data: Callable[[], dict[str, Any]] = dict
    classes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    more_evaluations: tuple[tuple[str, Evaluation], ...] = ()
    heads: Mapping[str, tuple[Any, "Job"]] = dataclasses.field(default_factory=dict)

    @property
    def evaluations(self) -> tuple[tuple[str, Evaluation], ...]:
        """Return all held-out sets, each with its name; that of `eval_source`, which is the first, is ""."""
        own = () if self.eval_source is None else (("", Evaluation(self.task, self.eval_source)),)
        return *own, *self.more_evaluations

    def with_wrapped_task(self, wrap: Callable[[Task], Task], **changes: Any) -> Self:
        """Return this job with `wrap` applied to its task and to those of its held-out sets, and other changes."""
        more = tuple((name, each._replace(task=wrap(each.task))) for name, each in self.more_evaluations)
        # A task of several data sets wraps the task of each.
        task = self.task.wrapped(wrap) if hasattr(self.task, "wrapped") else wrap(self.task)
        return dataclasses.replace(self, task=task, more_evaluations=more, **changes)
