"""Cross entropy, in float32: of given logits, and of logits over a vocabulary that are never held all at once."""

import functools

import jax
import jax.numpy as jnp

from bert_jax.modeling.compute import Compute, matmul
from bert_jax.sharding import constrain, device_share, join_rows, split_rows

_TOKENS = 512  # scored at once on a device: enough to keep its matrix units busy


def cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """-log softmax(logits [..., C])[labels [...]], and 1 where the label's logit is greatest (a tie counts); float32.

    Greatest by value rather than by argmax, which takes half as long as the whole vocabulary projection on CPUs.
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
    """`cross_entropy` of the logits `x @ table.T + bias`, both results `[B, P]`.

    The logits are float32, but only those of some tokens at a time: what is kept of them for the backward pass is
    their gradient, in the operand precision of `compute`. CPUs take all tokens at once, which is faster there.
    """
    return _losses(compute, x, labels, table, bias)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _losses(compute: Compute, x, labels, table, bias):
    losses, right, _ = _in_parts(compute, x, labels, table, bias, with_gradient=False)
    return losses, right


def _losses_forward(compute: Compute, x, labels, table, bias):
    losses, right, gradient = _in_parts(compute, x, labels, table, bias, with_gradient=True)
    return (losses, right), (x, table, bias, gradient)


def _losses_backward(compute: Compute, residuals, cotangents):
    x, table, bias, gradient = residuals  # the last [parts, B / parts, P, V]
    # A token's cotangent scales its row of the small factors instead of its row of the large one.
    scale = split_rows(cotangents[0][..., None], len(gradient))
    score = functools.partial(matmul, compute=compute, transposed=True, dtype=gradient.dtype)
    _, pull = jax.vjp(score, (scale * split_rows(x, len(gradient))).astype(x.dtype), table)
    x_gradient, table_gradient = pull(gradient)
    bias_gradient = (scale * gradient).sum((0, 1, 2), dtype=bias.dtype)
    return join_rows((scale * x_gradient).astype(x.dtype)), None, table_gradient, bias_gradient


_losses.defvjp(_losses_forward, _losses_backward)


def _in_parts(compute: Compute, x, labels, table, bias, with_gradient: bool):
    """Losses, whether labels were greatest and, where asked for, the gradients `[parts, B / parts, P, V]` by logits."""
    table = constrain(table.astype(compute.dtype), "vocab", None)  # gathered once, outside of the loop

    def part(_, x_and_labels):
        x, labels = x_and_labels
        logits = matmul(x, table, compute, transposed=True, dtype=jnp.float32) + bias
        logits = constrain(logits, "batch", None, "vocab")
        losses, right = cross_entropy(logits, labels)
        if not with_gradient:
            return None, (losses, right, None)
        is_label = jax.lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1) == labels[..., None]
        gradient = jax.nn.softmax(logits, axis=-1) - is_label
        return None, (losses, right, gradient.astype(compute.dtype))

    parts = 1 if compute.on_cpu else _number_of_parts(*labels.shape)
    split = (split_rows(x, parts), split_rows(labels, parts))
    _, (losses, right, gradient) = jax.lax.scan(part, None, split, unroll=parts == 1)
    return join_rows(losses), join_rows(right), gradient


def _number_of_parts(rows: int, positions: int) -> int:
    """At least two, where a device has two rows."""
    rows = device_share(rows, "batch")
    fitting = (n for n in range(2, rows + 1) if rows % n == 0 and rows // n * positions <= _TOKENS)
    return next(fitting, rows)
