"""The training step, a pure function (state, batch) -> (state, metrics), and the training state."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax import compilers, sharding
from bert_jax.data.batches import Batch
from bert_jax.tasks.base import Metrics, Task


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """All that a run is, between two steps: with the seed and the data it decides everything that follows.

    Attributes:
        params: the canonical tree, float32.
        opt_state: of the optax optimizer.
        step: int32 scalar, the number of steps done.
    """

    params: Any
    opt_state: Any
    step: jax.Array


TrainStep = Callable[[State, Batch], tuple[State, Metrics]]
InitParams = Callable[[jax.Array], Any]


def make_train_step(
    task: Task, optimizer: optax.GradientTransformation, seed: int, accumulation_steps: int = 1
) -> TrainStep:
    """Returns the training step, not yet jitted. Its metrics are (sum, count) pairs.

    A step whose loss or gradient is not finite leaves parameters and optimizer as they are: its `skipped` is 1, and its
    other metrics count for nothing.

    Dropout masks come from `fold_in(key(seed), step)`. With `accumulation_steps` n, n micro-batches run one after the
    other; their losses are divided by the weights of the whole batch, so that the gradient is that of the whole.
    """

    def train_step(state: State, batch: Batch) -> tuple[State, Metrics]:
        dropout_key = jax.random.fold_in(jax.random.key(seed), state.step)
        grads, metrics = _gradients(task, state.params, batch, dropout_key, accumulation_steps)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        one = jnp.float32(1)
        metrics["grad_norm"] = (optax.tree.norm(grads), one)
        metrics["param_norm"] = (optax.tree.norm(state.params), one)
        finite = jnp.isfinite(metrics["loss"][0]) & jnp.isfinite(metrics["grad_norm"][0])
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old), (params, opt_state), (state.params, state.opt_state)
        )
        metrics = jax.tree.map(lambda x: jnp.where(finite, x, 0), metrics)
        metrics["skipped"] = (1 - finite.astype(jnp.float32), one)
        return State(params, opt_state, state.step + 1), metrics

    return train_step


def finished_params(state: State) -> Any:
    """The parameters to evaluate and to keep: the average where the optimizer has one, else the last."""
    return optax.tree.get(state.opt_state, "average", state.params)


def make_eval_step(task: Task) -> Callable[[Any, Batch], dict[str, jax.Array]]:
    """Returns (params, batch) -> predictions, not yet jitted."""
    return lambda params, batch: task.predict(params, batch)


def jit_train_step(step: TrainStep, mesh: Mesh, shardings: State) -> TrainStep:
    """Jits a training step: the state is donated and stays where it is, the batch is split, metrics are whole."""
    return jax.jit(
        step,
        donate_argnums=0,
        in_shardings=(shardings, NamedSharding(mesh, sharding.batch_spec())),
        out_shardings=(shardings, NamedSharding(mesh, PartitionSpec())),
        compiler_options=compilers.XLA_OPTIONS.get(mesh.devices.flat[0].platform),
    )


def jit_eval_step(
    step: Callable[[Any, Batch], dict[str, jax.Array]], mesh: Mesh, shardings: State
) -> Callable[[Any, Batch], dict[str, jax.Array]]:
    """Jits an evaluation step on `mesh`; every host gets all predictions."""
    return jax.jit(
        step,
        in_shardings=(shardings.params, NamedSharding(mesh, sharding.batch_spec())),
        out_shardings=NamedSharding(mesh, PartitionSpec()),
    )


def abstract_state(init_params: InitParams, optimizer: optax.GradientTransformation) -> State:
    """The shapes and dtypes of the state."""
    return jax.eval_shape(lambda: _fresh(init_params, optimizer, 0))


def init_state(
    init_params: Callable[..., Any], optimizer: optax.GradientTransformation, seed: int, shardings: State, *given: Any
) -> State:
    """Makes the state of step 0 directly in shards: no device and no host ever holds all of it.

    Arrays that are `given` go to `init_params` after the key.
    """

    def make(*given: Any) -> State:
        return _fresh(lambda key: init_params(key, *given), optimizer, seed)

    return jax.jit(make, out_shardings=shardings)(*given)


def _fresh(init_params: InitParams, optimizer: optax.GradientTransformation, seed: int) -> State:
    params = init_params(jax.random.key(seed))
    return State(params, optimizer.init(params), jnp.zeros([], jnp.int32))


def _gradients(
    task: Task, params: Any, batch: Batch, dropout_key: jax.Array, accumulation_steps: int
) -> tuple[Any, Metrics]:
    """The gradient of the mean loss over `batch`, and metrics with the loss itself among them."""
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
