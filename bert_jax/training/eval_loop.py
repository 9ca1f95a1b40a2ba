"""Evaluate the model of a run on its whole evaluation set, between two steps."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax import sharding
from bert_jax.jobs.base import Evaluation
from bert_jax.training.feed import device_batch
from bert_jax.training.state import State


class EvalLoop:
    """Prediction of every batch of the evaluation set on the devices, and scoring on the host.

    Args:
        evaluation: the evaluation set and its task.
        mesh: the mesh of the run.
        shardings: the shardings of the training state.
    """

    def __init__(self, evaluation: Evaluation, mesh: Mesh, shardings: State):
        self._task, self._source, self._score = evaluation
        self._batch_sharding = NamedSharding(mesh, sharding.batch_spec())
        self._predict = jax.jit(
            self._task.predict,
            in_shardings=(shardings.params, self._batch_sharding),
            out_shardings=NamedSharding(mesh, PartitionSpec()),  # every host gets all predictions
        )

    def scores(self, params: Any) -> dict[str, float]:
        """Return name -> score of a model with the parameters `params`."""
        predicted = self._predicted(params)
        if self._score is not None:
            return self._score(predicted)
        predictions, batches = zip(*predicted, strict=True)
        return self._task.score(list(predictions), list(batches))

    def _predicted(self, params: Any) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
        """Yield the predictions for each batch, and the batch; they are fetched while the next batch runs."""
        earlier = None
        for i in range(self._source.num_batches):
            host = self._source.batch(i)
            batch = device_batch(functools.partial(_take, host), len(next(iter(host.values()))), self._batch_sharding)
            predictions = self._predict(params, batch)
            if earlier is not None:
                yield jax.tree.map(np.asarray, earlier[0]), earlier[1]
            earlier = predictions, host
        if earlier is not None:
            yield jax.tree.map(np.asarray, earlier[0]), earlier[1]


def _take(host: dict[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
    return {name: array[rows] for name, array in host.items()}
