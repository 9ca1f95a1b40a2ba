"""Run a model over the rows of a table in order, and write its predictions in constant memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.batching import EvalSource, few_buckets
from bert_jax.data.finetuning.features import Paddable
from bert_jax.evaluation.model_runner import ModelRunner


class RowPredictor:
    """Run a task's `predict` over tokenised rows, in batches of few shapes.

    Args:
        runner: the model.
        predict: the `predict` of its task.
        max_length: maximum length of a row in tokens; 0 = `runner.max_length`.
    """

    def __init__(self, runner: ModelRunner, predict: Callable[[Any, Batch], dict[str, jax.Array]], max_length: int = 0):
        self._runner, self._run = runner, runner.jitted(predict)
        self._limit = max_length or runner.max_length
        self._buckets: tuple[int, ...] = ()

    def batches(self, features: Paddable) -> tuple[list[Batch], list[dict[str, np.ndarray]]]:
        """Return all batches and their predictions."""
        source = self._source(features)
        batches = [source.batch(i) for i in range(source.num_batches)]
        return batches, [self._run(batch) for batch in batches]

    def __call__(self, features: Paddable, name: str) -> np.ndarray:
        """Return the prediction `name` of every row, in the order of the rows."""
        source = self._source(features)
        return source.restore([self._run(source.batch(i))[name] for i in range(source.num_batches)])

    def in_order(self, features: Paddable, predictions: Sequence[Mapping[str, np.ndarray]], name: str) -> np.ndarray:
        """Return the prediction `name` of every row, in the order of the rows, from the predictions of `batches`."""
        return self._source(features).restore([prediction[name] for prediction in predictions])

    def _source(self, features: Paddable) -> EvalSource:
        runner = self._runner
        # The first rows determine the shapes, so that a long file does not compile new ones again and again.
        if not self._buckets:
            buckets = few_buckets(features.lengths, self._limit)
            self._buckets = buckets if buckets[-1] == self._limit else (*buckets, self._limit)
        return EvalSource(features, runner.batch_size, self._buckets, runner.tokenizer.pad_id)
