"""The training state between two steps: its initialisation, and its arrays on the host."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils

from bert_jax.errors import InputError
from bert_jax.jobs.base import Job


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """The state of a run between two steps, which with seed and data determines all later steps.

    Attributes:
        params: the canonical tree of parameters, float32.
        opt_state: the state of the Optax optimizer.
        step: int32 scalar, the number of steps done.
    """

    params: Any
    opt_state: Any
    step: jax.Array


InitParams = Callable[[jax.Array], Any]


def abstract_state(init_params: InitParams, optimizer: optax.GradientTransformation) -> State:
    """Return the shapes and dtypes of the state."""
    state: State = jax.eval_shape(lambda: _fresh(init_params, optimizer, 0))
    return state


def init_state(
    init_params: Callable[..., Any], optimizer: optax.GradientTransformation, seed: int, shardings: State, *args: Any
) -> State:
    """Make the state of step 0 directly in shards: no device and no host ever holds all of it.

    The arrays `args` are passed to `init_params` after the key. The compiled program is the same for all seeds.
    """

    def make(seed: jax.Array, *args: Any) -> State:
        return _fresh(lambda key: init_params(key, *args), optimizer, seed)

    state: State = jax.jit(make, out_shardings=shardings)(seed, *args)
    return state


def initial_state(
    job: Job, optimizer: optax.GradientTransformation, seed: int, like: State, reinit_layers: int = 0
) -> State:
    """Make the state of step 0 in the shards of `like`, from the pretrained parameters of `job` where it has them.

    The highest `reinit_layers` layers are initialised at random all the same; if `reinit_layers` is above 0, so is the
    pooler (Zhang et al. 2021, arXiv:2006.05987, section 5).

    Raises:
        InputError: a pretrained array has another shape than the model's.
    """
    saved = {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(job.pretrained)}

    def place(path: Any, like: jax.ShapeDtypeStruct) -> jax.Array | None:
        name = _name(path)
        if name not in saved or (reinit_layers and "pooler/" in name):
            return None
        if saved[name].shape != like.shape:
            raise InputError(f"pretrained {name}: expected shape {like.shape}, found {saved[name].shape}")
        host = np.asarray(saved[name], like.dtype)
        if reinit_layers and "encoder/layers/" in name:
            host = host[:-reinit_layers]
        return jax.make_array_from_callback(host.shape, like.sharding, lambda index: host[index])

    def init_params(key: jax.Array, pretrained: Any) -> Any:
        def choose(fresh: jax.Array, placed: jax.Array | None) -> jax.Array:
            if placed is None:
                return fresh
            return placed if placed.shape == fresh.shape else jnp.concatenate([placed, fresh[len(placed) :]])

        return jax.tree.map(choose, job.init_params(key), pretrained)

    pretrained = jax.tree_util.tree_map_with_path(place, like.params)
    return init_state(init_params, optimizer, seed, jax.tree.map(lambda leaf: leaf.sharding, like), pretrained)


def _fresh(init_params: InitParams, optimizer: optax.GradientTransformation, seed: int | jax.Array) -> State:
    params = init_params(jax.random.key(seed))
    return State(params, optimizer.init(params), jnp.zeros([], jnp.int32))


def finished_params(state: State) -> Any:
    """Return the parameters to evaluate and to save as a model: the optimizer's average, or `params` without one."""
    return optax.tree.get(state.opt_state, "average", state.params)


def to_numpy(tree: Any) -> Any:
    """Gather the arrays of `tree` from all hosts and devices as NumPy arrays on this host."""
    if jax.process_count() > 1:
        return multihost_utils.process_allgather(tree, tiled=True)
    return jax.tree.map(np.asarray, tree)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
