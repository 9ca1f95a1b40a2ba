"""Skip steps whose loss or gradient is not finite; too many in a row end the run."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.tasks.base import Batches
from bert_jax.training.workdir import Workdir


class NotFiniteError(InputError):
    """The loss or its gradient was not finite in too many steps: the training has diverged."""


class SkippedSteps:
    """Counts the steps skipped in a row. A few happen in low precision; many mean that the parameters are no good.

    Args:
        workdir: where the batch of the last one is written.
        source: of the batches.
        most: how many there may be in a row.
        say: shows a line to the user.
    """

    def __init__(self, workdir: Workdir, source: Batches, most: int, say: Callable[[str], None]):
        self._workdir, self._source, self._most, self._say = workdir, source, most, say
        self._in_a_row = 0

    def see(self, step: int, metrics: dict[str, float]) -> None:
        """Takes the metrics of one step after the other.

        Raises:
            NotFiniteError: too many were skipped in a row; the batch of this one has been written.
        """
        self._in_a_row = self._in_a_row + 1 if metrics["skipped"] else 0
        if self._in_a_row > self._most:
            batch = self._workdir.batch(step)
            if jax.process_index() == 0:
                arrays: dict[str, Any] = self._source.batch(step - 1)
                with storage.open_binary_atomically(batch) as file:
                    np.savez_compressed(file, **arrays)
            raise NotFiniteError(
                f"step {step}: loss or gradient is not finite, as in the {self._most} steps before; "
                f"its batch is in {batch}; a lower config.optimizer.learning_rate or a longer warm-up may help"
            )
        if self._in_a_row:
            self._say(f"step {step}: loss or gradient is not finite; step skipped")


def check_finite(params: Any, step: int, checkpoints: storage.Path) -> None:
    """Raises NotFiniteError when a finished model has parameters that are not finite, naming the first of them.

    Args:
        params: numpy arrays.
        step: that they are of.
        checkpoints: where the states are that are kept.
    """
    for path, array in jax.tree_util.tree_leaves_with_path(params):
        bad = array.size - int(np.isfinite(array).sum())
        if bad:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise NotFiniteError(
                f"no model is written: after step {step}, {bad:,} of the {array.size:,} numbers of {name} are not "
                f"finite; the checkpoints are kept in {checkpoints}; a lower config.optimizer.learning_rate or "
                "weight_decay may help"
            )
