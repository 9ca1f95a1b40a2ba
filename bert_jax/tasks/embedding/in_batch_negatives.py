"""The loss whose negatives are the other rows of the batch (Henderson et al. 2017, arXiv:1705.00652, section 4).

A row's choices are the vectors among which its pair is to be found. Computed in parts (Gao et al. 2021,
arXiv:2101.06983), the loss never holds all logits: the encoder runs over one part of the batch at a time, and
again in the backward pass with the same dropout. A guide masks false negatives (Solatorio 2024, arXiv:2402.16829).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.modeling.pooling import l2_normalize
from bert_jax.sharding import join_rows, split_rows

_EXCLUDED = -1e9  # the logit of a masked choice


@dataclasses.dataclass(frozen=True)
class Contrast:
    """A row's choices in addition to the pairs and negatives of all rows, and the rule that masks false negatives.

    Attributes:
        anchors: whether the texts of the other rows are negatives of a row's text.
        positives: whether the pairs of the other rows are negatives of a row's pair.
        margin: a choice is masked if the guide's similarity to it exceeds s - margin (`absolute`) or s - margin * |s|
            (`relative`), where s is the guide's similarity of text and pair.
        strategy: `absolute` or `relative`.
    """

    anchors: bool = False
    positives: bool = False
    margin: float = 0.0
    strategy: str = "absolute"

    def threshold(self, similarity: jax.Array) -> jax.Array:
        """Return the similarity above which a choice is masked, from the similarity of text and pair."""
        return similarity - self.margin * (jnp.abs(similarity) if self.strategy == "relative" else 1.0)


class _Sides(NamedTuple):
    """The vectors to compare, `[B, K, D]`: `asking[i, k]` is compared with `choices[j, k]` for all rows j.

    Attributes:
        asking: for each choice the text, but the pair for the choice of `positives`.
        choices: pair and negatives; with `anchors`, the text; with `positives`, the pair.
    """

    asking: jax.Array
    choices: jax.Array


def in_batch_negatives(
    embeddings: jax.Array,
    real: jax.Array,
    scale: float,
    parts: int = 1,
    contrast: Contrast | None = None,
    guide: jax.Array | None = None,
    texts: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return the cross entropy of each row's pair among all choices, `[B]`, and 1 where no choice is nearer.

    The choices are the pairs and negatives of all rows; on a mesh, of the rows of all devices.

    Args:
        embeddings: the vectors of text, pair and negatives `[B, T, D]`.
        real: 1 for rows, 0 for padding, `[B]`.
        scale: factor of the cosines, which are the logits.
        parts: number of parts of the choices, with logits `[B, B / parts, T - 1]`, one at a time.
        contrast: further choices, and the rule of the guide.
        guide: vectors `[B, T, G]` of the same texts by a guide, whose similarities mask choices; None = none.
        texts: a number for each text, `[B, T]`, where equal texts have equal numbers. Choices equal to a row's text or
            pair are masked. None = such choices are not masked.
    """
    contrast, numbers = contrast or Contrast(), jnp.arange(len(real))
    sides, guides, threshold = _sides(embeddings, contrast), None, None
    asking = sides.asking * scale
    if guide is not None:
        guides = _sides(jax.lax.stop_gradient(guide), contrast)
        threshold = contrast.threshold((guides.asking[:, 0] * guides.choices[:, 0]).sum(-1))
    named = None if texts is None else _of_choices(texts, contrast)
    negatives = embeddings.shape[1] - 1  # a row's own text and pair follow these choices, and are masked

    def logits_of(part: tuple[Any, ...]) -> tuple[jax.Array, jax.Array, jax.Array]:
        choices, guided, named, real, number = part
        logits, is_own = _products(asking, choices), numbers[:, None] == number  # [B, n, K] and [B, n]
        masked = jnp.broadcast_to(real[:, None] == 0, logits.shape)
        masked |= is_own[..., None] & (jnp.arange(logits.shape[-1]) >= negatives)
        is_pair = is_own[..., None] & (jnp.arange(logits.shape[-1]) == 0)
        if guides is not None and threshold is not None:
            masked |= (_products(guides.asking, guided) > threshold[:, None, None]) & ~is_pair
        if texts is not None:
            same = [named == texts[:, i, None, None] for i in range(2)]  # [B, n, K]
            masked |= (same[0] | same[1]) & ~is_pair
        return logits, masked, is_own

    of_rows = (sides.choices, None if guides is None else guides.choices, named, real, numbers)
    return cross_entropy_in_parts(logits_of, of_rows, parts)


def cross_entropy_in_parts(
    logits_of: Callable[[Any], tuple[jax.Array, jax.Array, jax.Array]], choices: Any, parts: int
) -> tuple[jax.Array, jax.Array]:
    """Return the cross entropy of each row's first choice among the choices of all rows, `[B]`, and 1 where no logit is
    greater.

    Args:
        logits_of: function of the choices of n rows; it returns logits `[B, n, K]`, a mask of excluded logits (of the
            same shape, or one that broadcasts to it), and whether a row of choices is the row's own, `[B, n]`.
        choices: arrays `[B, ...]` for all rows.
        parts: number of parts of the choices, with logits `[B, B / parts, K]`, one at a time.
    """
    count = len(jax.tree.leaves(choices)[0])

    def add(sums: tuple[jax.Array, ...], part: Any) -> tuple[tuple[jax.Array, ...], None]:
        greatest, total, own = sums
        logits, masked, is_own = logits_of(part)
        logits = jnp.where(masked, _EXCLUDED, logits)
        most = jnp.maximum(greatest, jax.lax.stop_gradient(logits).max((1, 2)))
        total = total * jnp.exp(greatest - most) + jnp.exp(logits - most[:, None, None]).sum((1, 2))
        return (most, total, own + jnp.where(is_own, logits[..., 0], 0).sum(1)), None

    sums = (jnp.full(count, -jnp.inf), jnp.zeros(count), jnp.zeros(count))
    if parts == 1:
        sums, _ = add(sums, choices)
    else:
        split = jax.tree.map(lambda x: split_rows(x, parts), choices)
        sums, _ = jax.lax.scan(jax.checkpoint(add, prevent_cse=False), sums, split)
    greatest, total, own = sums
    return greatest + jnp.log(total) - own, (own >= greatest).astype(jnp.float32)


def embed_in_parts(embed: Callable[..., Any], inputs: Any, key: jax.Array | None, parts: int) -> Any:
    """Compute `embed(inputs, key)`, a tree of `[B, ...]`, for one part of the rows at a time, also backward.

    Args:
        embed: function of inputs and a dropout key.
        inputs: arrays `[B, ...]`.
        key: the dropout key; None = no dropout.
        parts: number of parts.
    """
    split = jax.tree.map(lambda x: split_rows(x, parts), inputs)
    keys = None if key is None else jax.random.split(key, parts)
    part = jax.checkpoint(lambda arguments: embed(*arguments), prevent_cse=False)
    return jax.tree.map(join_rows, jax.lax.map(part, (split, keys)))


def _sides(vectors: jax.Array, contrast: Contrast) -> _Sides:
    """Return the vectors to compare, from vectors `[B, T, D]` scaled to unit length."""
    vectors = l2_normalize(vectors)
    text, pair = vectors[:, :1], vectors[:, 1:2]
    asking = [text] * (vectors.shape[1] - 1 + contrast.anchors) + [pair] * contrast.positives
    return _Sides(jnp.concatenate(asking, axis=1), _of_choices(vectors, contrast))


def _of_choices(of_texts: jax.Array, contrast: Contrast) -> jax.Array:
    """Return the values for the choices of each row, `[B, K, ...]`, from values for its texts, `[B, T, ...]`."""
    more = [of_texts[:, :1]] * contrast.anchors + [of_texts[:, 1:2]] * contrast.positives
    return jnp.concatenate([of_texts[:, 1:], *more], axis=1)


def text_numbers(input_ids: jax.Array, attention_mask: jax.Array) -> jax.Array:
    """Return a hash of each text, uint32 `[...]`, of tokens `[..., S]`; padding does not change it."""
    words = (input_ids.astype(jnp.uint32) + 1) * attention_mask.astype(jnp.uint32)
    place = jnp.arange(1, words.shape[-1] + 1, dtype=jnp.uint32)
    mixed = words * np.uint32(0x9E3779B1) ^ place * np.uint32(0x85EBCA77)
    mixed = (mixed ^ (mixed >> 15)) * np.uint32(0xC2B2AE3D)
    return jnp.where(attention_mask > 0, mixed ^ (mixed >> 13), 0).sum(-1, dtype=jnp.uint32)


def _products(asking: jax.Array, choices: jax.Array) -> jax.Array:
    """Return the dot products `[B, n, K]` of vectors `[B, K, D]` and `[n, K, D]`, in float32."""
    return jnp.einsum("bkd,nkd->bnk", asking, choices, precision=jax.lax.Precision.HIGHEST)
