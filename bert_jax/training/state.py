"""The training state: all that a run is between two steps, and how it is initialised and read."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils

from bert_jax.errors import InputError
from bert_jax.tasks.base import Job


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


InitParams = Callable[[jax.Array], Any]


def abstract_state(init_params: InitParams, optimizer: optax.GradientTransformation) -> State:
    """The shapes and dtypes of the state."""
    return jax.eval_shape(lambda: _fresh(init_params, optimizer, 0))


def init_state(
    init_params: Callable[..., Any], optimizer: optax.GradientTransformation, seed: int, shardings: State, *given: Any
) -> State:
    """Make the state of step 0 directly in shards: no device and no host ever holds all of it.

    Arrays that are `given` go to `init_params` after the key.
    """

    def make(*given: Any) -> State:
        return _fresh(lambda key: init_params(key, *given), optimizer, seed)

    return jax.jit(make, out_shardings=shardings)(*given)


def initial_state(
    job: Job, optimizer: optax.GradientTransformation, seed: int, like: State, fresh_layers: int = 0
) -> State:
    """Make the state of step 0 in the shards of `like`, from the pretrained parameters of `job` where it has them.

    The highest `fresh_layers` layers are initialised all the same, and if there are any, the pooler too (Zhang et al.
    2021, arXiv:2006.05987, section 5).

    Raises:
        InputError: a pretrained array has another shape than the model's.
    """
    given = {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(job.pretrained)}

    def place(path: Any, like: jax.ShapeDtypeStruct) -> jax.Array | None:
        name = _name(path)
        if name not in given or (fresh_layers and "pooler/" in name):
            return None
        if given[name].shape != like.shape:
            raise InputError(f"pretrained {name}: expected shape {like.shape}, found {given[name].shape}")
        host = np.asarray(given[name], like.dtype)
        if fresh_layers and "encoder/layers/" in name:
            host = host[:-fresh_layers]
        return jax.make_array_from_callback(host.shape, like.sharding, lambda index: host[index])

    def init_params(key: jax.Array, pretrained: Any) -> Any:
        def choose(fresh: jax.Array, placed: jax.Array | None) -> jax.Array:
            if placed is None:
                return fresh
            return placed if placed.shape == fresh.shape else jnp.concatenate([placed, fresh[len(placed) :]])

        return jax.tree.map(choose, job.init_params(key), pretrained)

    shardings = jax.tree.map(lambda leaf: leaf.sharding, like)
    pretrained = jax.tree_util.tree_map_with_path(place, like.params)
    return init_state(init_params, optimizer, seed, shardings, pretrained)


def _fresh(init_params: InitParams, optimizer: optax.GradientTransformation, seed: int) -> State:
    params = init_params(jax.random.key(seed))
    return State(params, optimizer.init(params), jnp.zeros([], jnp.int32))


def finished_params(state: State) -> Any:
    """The parameters to evaluate and to keep: the average where the optimizer has one, else the last."""
    return optax.tree.get(state.opt_state, "average", state.params)


def to_numpy(tree: Any) -> Any:
    """The arrays of `tree` whole on this host, wherever their shards are."""
    if jax.process_count() > 1:
        return multihost_utils.process_allgather(tree, tiled=True)
    return jax.tree.map(np.asarray, tree)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
