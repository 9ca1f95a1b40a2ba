"""The protocols of a task, and `Job`, which holds everything needed to train one."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

import jax
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.storage import PathLike

Metrics = dict[str, tuple[jax.Array, jax.Array]]  # name -> (sum, count); the metric is sum / count

MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "segment_ids", "cls_positions")


class Task(Protocol):
    """Pure functions of parameters and a batch. An implementation is a frozen value without parameters."""

    @property
    def model(self) -> Any:
        """The bert_jax.modeling.Bert, or Electra, that it trains."""
        ...

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The denominator of each term of the loss over the whole batch, so that its parts can share it."""
        ...

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """The sum over terms of (sum over these examples) / weights[term], and metrics whose pairs add up.

        `batch` may be a part of the batch that `weights` came from: losses of all parts add up to the whole's.
        `dropout_key` None means no dropout.
        """
        ...

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Outputs for each example, without dropout: what `score` needs."""
        ...

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Metrics of a whole evaluation set, on the host. Rows whose example_weights are 0 are padding."""
        ...


class Batches(Protocol):
    """Batches by number: the same number gives the same batch, whatever was read before."""

    def batch(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
        """The batch of `step`, or some of its rows (so that each host can build only its own)."""
        ...


class EvalBatches(Batches, Protocol):
    """A finite source."""

    @property
    def num_batches(self) -> int:
        """How many batches there are, from 0."""
        ...


def model_inputs(batch: Batch) -> Batch:
    """What `Bert.apply` takes of a batch: of rows of several examples, where each of them is too."""
    return {name: batch[name] for name in MODEL_INPUTS if name in batch}


@dataclasses.dataclass(frozen=True)
class Stage:
    """Steps whose batches have one shape.

    Attributes:
        num_steps: how many; 0 = not known without the data.
        batch: name -> the shape and dtype of the whole batch.
    """

    num_steps: int
    batch: dict[str, jax.ShapeDtypeStruct]

    @classmethod
    def of_rows(cls, num_steps: int, size: int, row: Mapping[str, Any]) -> Self:
        """The stage whose batches are `size` rows like `row`, a batch of one."""
        return cls(num_steps, {k: jax.ShapeDtypeStruct((size, *v.shape[1:]), v.dtype) for k, v in row.items()})


@dataclasses.dataclass(frozen=True)
class AbstractTask:
    """A job without its data: what its steps are compiled from.

    Attributes:
        task, init_params: as in `Job`.
        stages: in the order in which they run.
    """

    task: Task
    init_params: Callable[[jax.Array], Any]
    stages: tuple[Stage, ...]


@dataclasses.dataclass(frozen=True)
class Job:
    """All that the loop needs to train, whatever the task.

    Attributes:
        task: loss, metrics and predictions.
        tokenizer: of the data.
        init_params: key -> parameters; can be jitted, so that they are born sharded.
        pretrained: numpy arrays that replace some of those, matched by path; None = none.
        train_source: batch `step` for every step from 0 to num_steps - 1.
        eval_source: held-out batches, or None.
        num_steps: optimizer steps of the whole run.
        save: writes a finished model (directory, numpy parameters) in the Hugging Face layout.
        data: returns what the run takes from its data (`bert_jax.tasks.fingerprints`), JSON values by name. It reads
            all rows, so only the process that keeps the work directory calls it.
        classes: class -> number of rows of the training data that have it; empty where there are no classes.
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
