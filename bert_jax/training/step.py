"""The training step, a pure function (state, batch) -> (state, metrics), and the handling of skipped steps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax import compilers, sharding, storage
from bert_jax.data.batches import Batch
from bert_jax.errors import InputError
from bert_jax.jobs.base import Batches, Metrics, Task
from bert_jax.training.state import State
from bert_jax.training.workdir import Workdir

TrainStep = Callable[[State, Batch, int], tuple[State, Metrics]]


def make_train_step(task: Task, optimizer: optax.GradientTransformation, accumulation_steps: int = 1) -> TrainStep:
    """Return the training step, not yet jitted. Its metrics are (sum, count) pairs.

    A step whose loss or gradient is not finite leaves parameters and optimizer unchanged: its metric `skipped` is 1,
    and its other metrics have sum and count 0.

    Dropout masks come from `fold_in(key(seed), step)`; the seed is an argument of the step, so that runs that differ in
    it alone share a compiled program. With `accumulation_steps` n, n micro-batches run in sequence; their losses are
    divided by the total weight of the batch, so that the gradient is that of the whole batch.
    """

    def train_step(state: State, batch: Batch, seed: int) -> tuple[State, Metrics]:
        dropout_key = jax.random.fold_in(jax.random.key(seed), state.step)
        grads, metrics = _gradients(task, state.params, batch, dropout_key, accumulation_steps)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        weight = jnp.float32(1)
        metrics["grad_norm"] = (optax.tree.norm(grads), weight)
        metrics["param_norm"] = (optax.tree.norm(state.params), weight)
        finite = jnp.isfinite(metrics["loss"][0]) & jnp.isfinite(metrics["grad_norm"][0])
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old), (params, opt_state), (state.params, state.opt_state)
        )
        metrics = jax.tree.map(lambda x: jnp.where(finite, x, 0), metrics)
        metrics["skipped"] = (1 - finite.astype(jnp.float32), weight)
        return State(params, opt_state, state.step + 1), metrics

    return train_step


def jit_train_step(step: TrainStep, mesh: Mesh, shardings: State) -> TrainStep:
    """Jit a training step: the state is donated and keeps its shardings, the batch is split, all else is replicated."""
    replicated = NamedSharding(mesh, PartitionSpec())
    return jax.jit(
        step,
        donate_argnums=0,
        in_shardings=(shardings, NamedSharding(mesh, sharding.batch_spec()), replicated),
        out_shardings=(shardings, replicated),
        compiler_options=compilers.XLA_OPTIONS.get(mesh.devices.flat[0].platform),
    )


def _gradients(
    task: Task, params: Any, batch: Batch, dropout_key: jax.Array, accumulation_steps: int
) -> tuple[Any, Metrics]:
    """Return the gradient of the mean loss over `batch`, and the metrics, including the loss."""
    weights = task.weights(batch)

    def part(micro_batch: Batch, key: jax.Array) -> tuple[Any, Metrics]:
        (loss, metrics), grads = jax.value_and_grad(task.loss, has_aux=True)(params, micro_batch, key, weights)
        return grads, metrics | {"loss": (loss, jnp.float32(1))}

    if accumulation_steps == 1:
        return part(batch, dropout_key)
    parts = (
        jax.tree.map(lambda x: sharding.split_rows(x, accumulation_steps), batch),
        jax.random.split(dropout_key, accumulation_steps),
    )
    shapes = jax.eval_shape(part, *jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    (grads, metrics), _ = jax.lax.scan(lambda sums, xs: (jax.tree.map(jnp.add, sums, part(*xs)), None), zeros, parts)
    return grads, metrics | {"loss": (metrics["loss"][0], jnp.float32(1))}


class NotFiniteError(InputError):
    """The loss or its gradient was not finite in too many steps: the training has diverged."""


class SkippedSteps:
    """Counter of steps skipped in a row. A few are normal in low precision; many mean that training has diverged.

    Args:
        workdir: the work directory, to which the batch of the last skipped step is written.
        source: the source of the batches.
        most: the maximum number of consecutive skipped steps; more raise an error.
        say: shows a line to the user.
    """

    def __init__(self, workdir: Workdir, source: Batches, most: int, say: Callable[[str], None]):
        self._workdir, self._source, self._most, self._say = workdir, source, most, say
        self._in_a_row = 0

    def see(self, step: int, metrics: dict[str, float]) -> None:
        """Count a step by its metrics; must be called for every step, in order.

        Raises:
            NotFiniteError: too many steps were skipped in a row; this step's batch has been written to a file.
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
    """Raise NotFiniteError when a finished model has parameters that are not finite, naming the first of them.

    Args:
        params: NumPy arrays.
        step: the step of the parameters.
        checkpoints: the directory of the checkpoints, which are kept.
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
