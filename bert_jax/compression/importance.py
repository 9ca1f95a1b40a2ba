"""Importance of attention heads, feed-forward columns and layers, from gradients on data.

The importance of a head is the mean over examples of |d loss / d mask|, where the mask multiplies the head's context
and is 1 (Michel et al. 2019, arXiv:1905.10650, equation 2): the first-order estimate of how much the loss changes if
the head is removed. The importance of a feed-forward column is the same with a mask on its activation (Molchanov et
al. 2017, arXiv:1611.06440, section 2.2).

The mask is never applied: it would scale rows of the next matrix, so the gradient with respect to the mask is the sum
over these rows of parameter times gradient. The absolute value is taken for each example, so gradients are computed
for each example.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.data.batches import Batch
from bert_jax.errors import InputError
from bert_jax.jobs.base import Task
from bert_jax.modeling import Params

_MOST_TOGETHER = 8  # maximum number of examples whose gradients are computed at the same time
_MOST_VALUES = 1 << 28  # maximum number of gradient values in memory: a gigabyte of float32
_OF_OUTPUT, _OF_DOWN, _OF_BOTTLENECK = ("attention", "output"), ("mlp", "down"), ("bottleneck", "output")

_Sums = tuple[np.ndarray, np.ndarray, np.ndarray]


class Importance(NamedTuple):
    """The importance of the parts of a model.

    Attributes:
        heads: float32 `[L, N]`, scaled to length 1 in each layer, as in the paper.
        columns: float32 `[L, F]`, scaled likewise.
        layers: float32 `[L]`: the mean of |d loss / d mask| for a mask on all heads and columns of a layer, or on the
            output of its bottleneck.
        examples: the number of examples, or of batches for losses that compare rows.
    """

    heads: np.ndarray
    columns: np.ndarray
    layers: np.ndarray
    examples: int


def measure_importance(task: Task, params: Params, batches: Iterable[Batch]) -> Importance:
    """Compute the importance of heads, columns and layers, without dropout.

    The absolute value is taken for each row of a batch. If a row's loss depends on the other rows (sentence embeddings
    with a loss of the whole batch), it is taken for each batch.

    Args:
        task: a task whose model is one `Bert`.
        params: the parameters of the model.
        batches: batches of the task; rows with example_weights of 0 are not counted.

    Raises:
        InputError: there are no examples, or a gradient is not finite.
    """
    config = task.model.config
    joint = getattr(task, "compares_rows", False)
    params = jax.tree.map(jnp.asarray, params)
    run, sums, examples = _gradients(task), _zeros(config), 0
    for batch in batches:
        count = 1 if joint else _group_size(config)
        rows = {name: np.asarray(array) for name, array in batch.items()}
        size = len(rows["input_ids"])
        for start in range(0, 1 if joint else size, count):
            part = {name: array[None] if joint else array[start : start + count, None] for name, array in rows.items()}
            signed = [np.asarray(array) for array in jax.device_get(run(params, part))]
            sums = tuple(total + np.abs(array).sum(0) for total, array in zip(sums, signed, strict=True))
            examples += _count(part)
    if not examples:
        raise InputError("importance: expected at least one example, found none")
    if not all(np.isfinite(total).all() for total in sums):
        raise InputError("importance: expected finite gradients, found NaN or infinity")
    heads, columns, layers = (np.asarray(total / examples, np.float32) for total in sums)
    return Importance(_scaled(heads), _scaled(columns), layers, examples)


def _gradients(task: Task) -> Callable[[Params, Batch], tuple[jax.Array, jax.Array, jax.Array]]:
    """Return the jitted function from parameters and G examples to d loss / d mask: [G, L, N], [G, L, F] and [G, L]."""
    config = task.model.config
    blocks = tuple((f"ffn_{i}", "down") for i in range(config.setting("num_feedforward_networks", 1) - 1))
    places = (_OF_OUTPUT, _OF_DOWN, *((_OF_BOTTLENECK,) if config.setting("intra_bottleneck_size") else blocks))

    def of_example(params: Params, rows: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
        def loss(kernels: tuple[jax.Array, ...]) -> jax.Array:
            return task.loss(_with_kernels(params, places, kernels), rows, None, task.weights(rows))[0]

        kernels = tuple(_layers(params)[a][b]["kernel"] for a, b in places)
        rows_of_output, columns, *others = (
            (kernel * gradient).sum(-1) for kernel, gradient in zip(kernels, jax.grad(loss)(kernels), strict=True)
        )
        heads = rows_of_output.reshape(*rows_of_output.shape[:-1], config.num_attention_heads, config.head_size)
        of_others = sum(other.sum(-1) for other in others)
        of_blocks = rows_of_output.sum(-1) + columns.sum(-1) + of_others
        return heads.sum(-1), columns, of_others if config.setting("intra_bottleneck_size") else of_blocks

    return jax.jit(jax.vmap(of_example, in_axes=(None, 0)))


def _layers(params: Params) -> Params:
    return params["encoder"]["layers"]


def _with_kernels(params: Params, places: tuple[tuple[str, str], ...], kernels: tuple[Any, ...]) -> Params:
    layers = dict(_layers(params))
    for (part, name), kernel in zip(places, kernels, strict=True):
        layers[part] = layers[part] | {name: layers[part][name] | {"kernel": kernel}}
    return params | {"encoder": params["encoder"] | {"layers": layers}}


def _group_size(config: BertConfig) -> int:
    """Return the number of examples whose gradients fit into memory together."""
    width = config.attention_width + config.intermediate_size
    return max(1, min(_MOST_TOGETHER, _MOST_VALUES // (config.num_hidden_layers * width * config.hidden_size)))


def _count(part: Batch) -> int:
    """Return the number of examples that are not padding."""
    if "example_weights" not in part:
        return len(part["input_ids"])
    weights = np.asarray(part["example_weights"])
    return int((weights.reshape(len(weights), -1) > 0).any(-1).sum())


def _zeros(config: BertConfig) -> _Sums:
    layers = config.num_hidden_layers
    shapes = (layers, config.num_attention_heads), (layers, config.intermediate_size), (layers,)
    heads, columns, of_layers = (np.zeros(shape, np.float64) for shape in shapes)
    return heads, columns, of_layers


def _scaled(importance: np.ndarray) -> np.ndarray:
    """Scale each layer's importance `[L, N]` to length 1; a layer of zeros stays zero."""
    length = np.sqrt(np.square(importance).sum(-1, keepdims=True))
    return importance / np.where(length > 0, length, 1)
