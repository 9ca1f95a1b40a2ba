"""`AbstractTask`: a training job without data, for plans."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

import jax

from bert_jax.jobs.base import Task


@dataclasses.dataclass(frozen=True)
class Stage:
    """Training steps whose batches have the same shape.

    Attributes:
        num_steps: number of steps; 0 = unknown without the data.
        batch: name -> shape and dtype of the whole batch.
    """

    num_steps: int
    batch: dict[str, jax.ShapeDtypeStruct]

    @classmethod
    def of_rows(cls, num_steps: int, size: int, row: Mapping[str, Any]) -> Self:
        """Return the stage whose batches have `size` rows of the shapes in `row`, a batch of one row."""
        return cls(num_steps, {k: jax.ShapeDtypeStruct((size, *v.shape[1:]), v.dtype) for k, v in row.items()})


@dataclasses.dataclass(frozen=True)
class AbstractTask:
    """A training job without data: shapes from which its steps can be compiled.

    Attributes:
        task, init_params: as in `Job`.
        stages: the stages in order.
    """

    task: Task
    init_params: Callable[[jax.Array], Any]
    stages: tuple[Stage, ...]
