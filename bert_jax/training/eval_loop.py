"""Evaluate the model of a run on its whole evaluation set, between two steps."""

import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax import sharding
from bert_jax.jobs.base import EvalBatches, Task
from bert_jax.training.feed import device_batch
from bert_jax.training.state import State


class EvalLoop:
    """Prediction of every batch of the evaluation set on the devices, and scoring on the host.

    Args:
        task: the task, which predicts and scores.
        source: the evaluation set.
        mesh: the mesh of the run.
        shardings: the shardings of the training state.
    """

    def __init__(self, task: Task, source: EvalBatches, mesh: Mesh, shardings: State):
        self._task, self._source = task, source
        self._batch_sharding = NamedSharding(mesh, sharding.batch_spec())
        self._predict = jax.jit(
            task.predict,
            in_shardings=(shardings.params, self._batch_sharding),
            out_shardings=NamedSharding(mesh, PartitionSpec()),  # every host gets all predictions
        )

    def scores(self, params: Any) -> dict[str, float]:
        """Return name -> score of a model with the parameters `params`."""
        predictions, batches = [], []
        for i in range(self._source.num_batches):
            host = self._source.batch(i)
            size = len(next(iter(host.values())))
            batch = device_batch(functools.partial(_take, host), size, self._batch_sharding)
            predictions.append(self._predict(params, batch))
            batches.append(host)
            if i:
                predictions[i - 1] = jax.tree.map(np.asarray, predictions[i - 1])  # fetched while batch i runs
        return self._task.score(jax.tree.map(np.asarray, predictions), batches)


def _take(host: dict[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
    return {name: array[rows] for name, array in host.items()}
