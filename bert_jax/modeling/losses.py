"""Cross entropy in float32, from logits or over a vocabulary without ever holding all logits; and sampling."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.modeling.compute import Compute, matmul
from bert_jax.modeling.dropout import spread
from bert_jax.sharding import constrain, device_share, join_rows, split_rows

_TOKENS = 512  # tokens scored at once on a device: enough to keep its matrix units busy


def cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the cross entropy of `labels [...]` under `logits [..., C]`, and whether they are correct; both float32.

    A label is correct (1.0) if its logit is the greatest; ties count. Comparing values avoids argmax, which on CPUs
    takes half as long as the whole vocabulary projection.
    """
    logits = logits.astype(jnp.float32)  # bfloat16 would lose all but three digits of the logarithm
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen, (chosen >= logits.max(-1)).astype(jnp.float32)


def vocabulary_cross_entropy(
    x: jax.Array,  # [B, P, D]
    labels: jax.Array,  # [B, P]
    table: jax.Array,  # [V, D]
    bias: jax.Array,  # [V]
    compute: Compute,
) -> tuple[jax.Array, jax.Array]:
    """Return `cross_entropy` of the logits `x @ table.T + bias`: losses and correctness, both `[B, P]`.

    Float32 logits exist for only some tokens at a time. For the backward pass, only their gradient is kept, in
    `compute.dtype`. CPUs compute all tokens at once, which is faster there.
    """
    losses, right, _ = _losses(compute, x, labels, None, table, bias)
    return losses, right


def vocabulary_cross_entropy_and_samples(
    x: jax.Array,  # [B, P, D]
    labels: jax.Array,  # [B, P]
    table: jax.Array,  # [V, D]
    bias: jax.Array,  # [V]
    key: jax.Array,
    compute: Compute,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return `vocabulary_cross_entropy` and samples of the softmax of the same logits, int32 `[B, P]`.

    No gradient flows through the samples. They do not depend on how tokens are split over parts or devices.
    """
    losses, right, ids = _losses(compute, x, labels, jax.random.bits(key, (*labels.shape, 2), jnp.uint32), table, bias)
    return losses, right, ids


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _losses(compute: Compute, x: Any, labels: Any, words: Any, table: Any, bias: Any) -> Any:
    return _in_parts(compute, x, labels, words, table, bias, with_gradient=False)[:3]


def _losses_forward(compute: Compute, x: Any, labels: Any, words: Any, table: Any, bias: Any) -> Any:
    *results, gradient = _in_parts(compute, x, labels, words, table, bias, with_gradient=True)
    return tuple(results), (x, table, bias, gradient)


def _losses_backward(compute: Compute, residuals: tuple[jax.Array, ...], cotangents: tuple[jax.Array, ...]) -> Any:
    x, table, bias, gradient = residuals  # the gradient is [parts, B / parts, P, V]
    # Each token's cotangent scales its rows of the small arrays `[P, D]`, not of the large gradient `[P, V]`.
    scale = split_rows(cotangents[0][..., None], len(gradient))
    score = functools.partial(matmul, compute=compute, transposed=True, dtype=gradient.dtype)
    _, pull = jax.vjp(score, (scale * split_rows(x, len(gradient))).astype(x.dtype), table)
    x_gradient, table_gradient = pull(gradient)
    bias_gradient = (scale * gradient).sum((0, 1, 2), dtype=bias.dtype)
    return join_rows((scale * x_gradient).astype(x.dtype)), None, None, table_gradient, bias_gradient


_losses.defvjp(_losses_forward, _losses_backward)


def _in_parts(compute: Compute, x: Any, labels: Any, words: Any, table: Any, bias: Any, with_gradient: bool) -> Any:
    """Compute losses, correctness, samples and gradients part by part.

    Returns:
        Losses and correctness `[B, P]`, samples by random `words [B, P, 2]` (None without words), and the gradients
        with respect to logits `[parts, B / parts, P, V]` (None without `with_gradient`).
    """
    table = constrain(table.astype(compute.dtype), "vocab", None)  # gathered once, outside of the loop

    def part(_: None, rows: Any) -> tuple[None, Any]:
        x, labels, words = rows
        logits = constrain(matmul(x, table, compute, transposed=True, dtype=jnp.float32) + bias, "batch", None, "vocab")
        losses, right = cross_entropy(logits, labels)
        samples = None if words is None else _sample(logits, words)
        if not with_gradient:
            return None, (losses, right, samples, None)
        is_label = jax.lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1) == labels[..., None]
        gradient = jax.nn.softmax(logits, axis=-1) - is_label
        return None, (losses, right, samples, gradient.astype(compute.dtype))

    parts = 1 if compute.on_cpu else number_of_parts(*labels.shape)
    split = jax.tree.map(lambda rows: split_rows(rows, parts), (x, labels, words))
    _, (*results, gradient) = jax.lax.scan(part, None, split, unroll=parts == 1)
    return *jax.tree.map(join_rows, results), gradient


def _sample(logits: jax.Array, words: jax.Array) -> jax.Array:
    """Sample token ids from softmax(logits [..., V]): the argmax of logits plus Gumbel noise from uint32 `words`.

    Gumbel 1954; Maddison et al. 2014 (arXiv:1411.0030), section 2.
    """
    # Large noise comes from uniform numbers near 0 (not 1): float32 is dense there, so the noise is accurate.
    uniform = (spread(words, logits.shape[-1]).astype(jnp.float32) + 0.5) * jnp.float32(2**-32)
    noisy = logits - jnp.log(-jnp.log1p(-uniform))
    token = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    # argmax takes several times as long on CPUs.
    return jnp.where(noisy >= noisy.max(-1, keepdims=True), token, 0).max(-1)


def number_of_parts(rows: int, positions: int) -> int:
    """Return the number of parts (2 or more if possible), each of one row or up to `_TOKENS` tokens per device."""
    rows = device_share(rows, "batch")
    fitting = (n for n in range(2, rows + 1) if rows % n == 0 and rows // n * positions <= _TOKENS)
    return next(fitting, rows)
