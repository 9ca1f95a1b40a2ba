"""Block-sparse attention in plain XLA (Zaheer et al. 2020, arXiv:2007.14062, section 2): linear in the length.

The queries of the first and the last block attend to all keys. Those of any other block attend to 5 + R blocks, some
of which may coincide: the first, the last, their own, its two neighbours, and R random ones. As in transformers,
random blocks are drawn only in training. Without dropout, all of them are the first block, which counts 1 + R times.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.modeling.attention_mask import MASKED, AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.kernels.plain import plain_attention
from bert_jax.modeling.positions import Positions

_OLD_LENGTHS = (1024, 3072, 4096)  # lengths for which transformers draws from the first 1,024 positions


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BlockPattern:
    """The blocks to which each block attends.

    Attributes:
        size: tokens in a block.
        num_random: R, the number of random blocks.
        random: the random blocks of blocks 1 to C - 2, int32 `[N, C - 2, R]`; None = all are the first block.
    """

    size: int = dataclasses.field(metadata={"static": True})
    num_random: int = dataclasses.field(metadata={"static": True})
    random: jax.Array | None = None


@functools.lru_cache(maxsize=16)
def random_blocks(layers: int, heads: int, length: int, size: int, count: int, longest: int) -> np.ndarray:
    """Return the random blocks of each layer as transformers draws them in training, int32 `[L, N, C - 2, R]`.

    Args:
        layers: L; the seed of a layer is its number.
        heads: N.
        length: S, at least `5 + 2 * count` blocks.
        size: tokens in a block.
        count: R, the number of random blocks.
        longest: the model's max_position_embeddings.
    """
    blocks = -(-length // size)
    drawn = np.zeros((layers, heads, blocks - 2, count), np.int32)
    for layer in range(layers):
        generator = np.random.RandomState(layer)
        if blocks * size in _OLD_LENGTHS:  # draw by head, for all blocks of the longest sequence
            last = (1024 if size < 512 else longest) // size - 1
            for head in range(heads):
                rows = [generator.permutation(_old_choices(i, last, longest // size))[:count]
                        for i in range(1, longest // size - 1)]  # fmt: skip
                drawn[layer, head] = rows[: blocks - 2]
        else:  # for each block, then each head: draw among the first 5 + 2R blocks only
            first = 5 + 2 * count
            for i in range(1, blocks - 1):
                excluded = {0, first - 1, i - 1, i, i + 1} | {1: {first - 2}, first - 2: {1}}.get(i, set())
                for head in range(heads):
                    mixed = generator.permutation(first)
                    drawn[layer, head, i - 1] = [block for block in mixed if block not in excluded][:count]
    return drawn


def _old_choices(i: int, last: int, blocks: int) -> np.ndarray:
    """Return the candidates for the random blocks of block `i`, in a sequence of one of `_OLD_LENGTHS`."""
    middle = np.arange(1, blocks - 1)
    if i <= 2:
        return middle[i + 1 : last]
    if i >= blocks - 3:
        return middle[:last]
    if i - 2 > last:
        return middle[:last]
    return middle[: i - 2] if i + 1 == last else np.concatenate((middle[: i - 2], middle[i + 1 : last]))


def block_sparse_attention(
    pattern: BlockPattern,
    mask: AttentionMask,
    query: jax.Array,  # [B, N, S, H], as are the next two
    key: jax.Array,
    value: jax.Array,
    compute: Compute,
) -> jax.Array:
    """Compute block-sparse attention, `[B, N, S, H]`, without dropout of probabilities."""
    batch, heads, length, width = query.shape
    size, blocks = pattern.size, -(-length // pattern.size)
    padding = ((0, 0), (0, 0), (0, blocks * size - length), (0, 0))
    query, key, value = (jnp.pad(x, padding) for x in (query, key, value))
    seen = jnp.pad(mask.ids(batch, length)[1] > 0, (padding[0], padding[2]))  # [B, C * b]
    ends = query.reshape(batch, heads, blocks, size, width)[:, :, jnp.array([0, blocks - 1])]
    bias = jnp.where(seen, 0.0, MASKED).astype(jnp.float32)[:, None, None]
    ends, _ = plain_attention(ends.reshape(batch, heads, 2 * size, width), key, value, bias, None, 0.0, compute)
    bias = _bias(pattern, seen.reshape(batch, blocks, size))
    middle = query.reshape(batch, heads, blocks, size, width)[:, :, 1:-1]
    key, value = (_keys(pattern, x.reshape(batch, heads, blocks, size, width)) for x in (key, value))
    middle, _ = plain_attention(middle, key, value, bias, None, 0.0, compute)
    middle = middle.reshape(batch, heads, -1, width)
    return jnp.concatenate((ends[:, :, :size], middle, ends[:, :, size:]), axis=2)[:, :, :length]


def _keys(pattern: BlockPattern, x: jax.Array) -> jax.Array:
    """Return the keys that blocks 1 to C - 2 attend to, `[B, N, C, b, H] -> [B, N, C - 2, K, H]`."""
    batch, heads, blocks, _, width = x.shape
    first, last = (jnp.broadcast_to(end, x[:, :, 2:].shape) for end in (x[:, :, :1], x[:, :, -1:]))
    parts = [first, x[:, :, :-2], x[:, :, 1:-1], x[:, :, 2:], last]
    if pattern.random is not None:
        index = pattern.random.reshape(1, heads, -1, 1, 1)
        drawn = jnp.take_along_axis(x, index, axis=2)
        parts.append(drawn.reshape(batch, heads, blocks - 2, -1, width))
    return jnp.concatenate(parts, axis=3)


def _bias(pattern: BlockPattern, seen: jax.Array) -> jax.Array:
    """Return the bias of the scores of blocks 1 to C - 2, `[B, 1 or N, C - 2, 1, K]`, from `seen [B, C, b]`."""
    batch, blocks, size = seen.shape
    is_middle = (jnp.arange(blocks) > 0) & (jnp.arange(blocks) < blocks - 1)
    within = seen & is_middle[:, None]  # the first and the last block are among the keys already
    first, last = (jnp.broadcast_to(end, (batch, blocks - 2, size)) for end in (seen[:, :1], seen[:, -1:]))
    parts = [first, within[:, :-2], within[:, 1:-1], within[:, 2:], last]
    keys = jnp.concatenate(parts, axis=2)[:, None]  # [B, 1, C - 2, 5b]
    times = 1
    if pattern.random is not None:
        drawn = seen[:, pattern.random].reshape(batch, len(pattern.random), blocks - 2, -1)
        keys = jnp.concatenate((jnp.broadcast_to(keys, (*drawn.shape[:3], keys.shape[3])), drawn), axis=3)
    else:
        times += pattern.num_random
    weights = jnp.where(jnp.arange(keys.shape[3]) < size, np.log(times), 0.0)
    return jnp.where(keys, weights, MASKED).astype(jnp.float32)[:, :, :, None]


def dense_bias(pattern: BlockPattern, length: int, at: Positions | None) -> jax.Array:
    """Return the pattern as a float32 bias of all scores, `[1 or B, 1 or N, S or P, S]`, without the mask."""
    blocks = -(-length // pattern.size)
    place = np.arange(blocks)
    near = abs(place[:, None] - place) <= 1
    is_end = (place == 0) | (place == blocks - 1)
    times = jnp.asarray((near | is_end | is_end[:, None]).astype(np.float32))[None]  # [1, C, C]
    if pattern.random is None:
        times = times.at[:, 1:-1, 0].add(pattern.num_random)
    else:
        drawn = jax.nn.one_hot(pattern.random, blocks).sum(axis=2)  # [N, C - 2, C]
        times = times + jnp.pad(drawn, ((0, 0), (1, 1), (0, 0)))
    bias = jnp.where(times > 0, jnp.log(jnp.maximum(times, 1.0)), MASKED)
    columns = jnp.arange(length) // pattern.size
    bias = bias[:, :, columns]  # [1 or N, C, S]
    if at is None:
        return bias[:, columns][None]
    return bias[:, at.index // pattern.size].swapaxes(0, 1)  # [B, 1 or N, P, S]
