"""The loss whose negatives are the other rows of the batch (Henderson et al. 2017, arXiv:1705.00652, section 4).

In parts, as Gao et al. 2021 (arXiv:2101.06983) compute it, its memory does not grow with the square of the batch: the
encoder runs over one part of the batch at a time, and again in the backward pass with the same dropout; logits exist
for one part of the choices at a time.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.modeling.heads import l2_normalize
from bert_jax.modeling.losses import cross_entropy
from bert_jax.sharding import join_rows, split_rows

_EXCLUDED = -1e9  # the logit of a padded row


def in_batch_negatives(
    embeddings: jax.Array, real: jax.Array, scale: float, parts: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Return the cross entropy of each row's pair among all choices, `[B]`, and 1 where no choice is nearer.

    The choices are the pairs and negatives of all rows; on a mesh, of the rows of all devices.

    Args:
        embeddings: the vectors of text, pair and negatives `[B, T, D]`.
        real: 1 for rows, 0 for padding, `[B]`.
        scale: factor of the cosines, which are the logits.
        parts: number of parts of the choices whose logits `[B, B / parts * (T - 1)]` exist at a time.
    """
    vectors = l2_normalize(embeddings)
    texts, choices = vectors[:, 0] * scale, vectors[:, 1:]
    if parts == 1:
        pairs_first = choices.swapaxes(0, 1).reshape(-1, choices.shape[-1])  # [(T - 1) B, D]
        logits = jnp.where(jnp.tile(real, choices.shape[1]) > 0, _product(texts, pairs_first), _EXCLUDED)
        return cross_entropy(logits, jnp.arange(len(vectors)))
    log_sums, right = _log_sums(texts, choices, real, parts)
    return log_sums - (texts * choices[:, 0]).sum(-1), right


def embed_in_parts(embed: Callable[..., jax.Array], inputs: Any, key: jax.Array | None, parts: int) -> jax.Array:
    """Return `embed(inputs, key)` `[B, ...]`, computed for one part of the rows at a time in both passes.

    Args:
        embed: function of inputs and a dropout key.
        inputs: arrays `[B, ...]`.
        key: the dropout key; None = no dropout.
        parts: number of parts.
    """
    split = jax.tree.map(lambda x: split_rows(x, parts), inputs)
    keys = None if key is None else jax.random.split(key, parts)
    part = jax.checkpoint(lambda given: embed(*given), prevent_cse=False)
    return join_rows(jax.lax.map(part, (split, keys)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _log_sums(texts: jax.Array, choices: jax.Array, real: jax.Array, parts: int) -> tuple[jax.Array, jax.Array]:
    """Return the logarithm of the sum of the exponentials of each text's logits, and 1 where its own is the greatest.

    Args:
        texts: scaled vectors `[B, D]`.
        choices: vectors `[B, T - 1, D]`.
        real: as for `in_batch_negatives`.
        parts: as for `in_batch_negatives`.
    """

    def add(carry: tuple[jax.Array, jax.Array], part: tuple[Any, ...]) -> tuple[Any, jax.Array]:
        greatest, total = carry
        number, logits = part[0], _logits(texts, *part[1:])
        own = split_rows(logits[..., 0], parts)[number]  # row i's pair is row i // parts of part i % parts
        most = jnp.maximum(greatest, logits.max((1, 2)))
        total = total * jnp.exp(greatest - most) + jnp.exp(logits - most[:, None, None]).sum((1, 2))
        return (most, total), jnp.diagonal(own)

    start = (jnp.full(len(texts), -jnp.inf), jnp.zeros(len(texts)))
    (greatest, total), own = jax.lax.scan(add, start, (jnp.arange(parts), *_parts(choices, real, parts)))
    return greatest + jnp.log(total), (join_rows(own) >= greatest).astype(jnp.float32)


def _log_sums_forward(texts: jax.Array, choices: jax.Array, real: jax.Array, parts: int) -> tuple[Any, Any]:
    found = _log_sums(texts, choices, real, parts)
    return found, (texts, choices, real, found[0])


def _log_sums_backward(parts: int, kept: Any, gradients: tuple[jax.Array, jax.Array]) -> tuple[Any, ...]:
    texts, choices, real, log_sums = kept

    def add(total: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        weights = jnp.exp(_logits(texts, *part) - log_sums[:, None, None]) * gradients[0][:, None, None]
        flat = weights.reshape(len(texts), -1)
        of_choices = _product(flat.T, texts.T).reshape(part[0].shape)
        return total + _product(flat, part[0].reshape(flat.shape[1], -1).T), of_choices

    of_texts, of_choices = jax.lax.scan(add, jnp.zeros_like(texts), _parts(choices, real, parts))
    return of_texts, join_rows(of_choices), jnp.zeros_like(real)


_log_sums.defvjp(_log_sums_forward, _log_sums_backward)


def _parts(choices: jax.Array, real: jax.Array, parts: int) -> tuple[jax.Array, jax.Array]:
    return split_rows(choices, parts), split_rows(real, parts)


def _logits(texts: jax.Array, choices: jax.Array, real: jax.Array) -> jax.Array:
    """Return the logits `[B, n, T - 1]` of choices `[n, T - 1, D]`."""
    logits = _product(texts, choices.reshape(-1, choices.shape[-1])).reshape(len(texts), *choices.shape[:2])
    return jnp.where(real[:, None] > 0, logits, _EXCLUDED)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return `a @ b.T` in float32."""
    return jnp.matmul(a, b.T, precision=jax.lax.Precision.HIGHEST)
