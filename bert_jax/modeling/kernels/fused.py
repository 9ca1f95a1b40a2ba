"""A Pallas TPU kernel for attention that keeps whole rows of scores in VMEM, with dropout of the probabilities.

Flash kernels iterate over the keys and never hold the softmax of a whole row. BERT's rows are short enough for VMEM
(512 keys for 512 queries are 1 MiB in float32), so this kernel is exact, simple, and supports dropout. It reads
projections as `[B, S, D]`, without a transposition to heads and without padding heads of 64 to the chip's 128 lanes.

It drops the same elements as plain XLA, since both hash the same words (`bert_jax.modeling.dropout`).
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.modeling.attention_mask import MASKED
from bert_jax.modeling.dropout import bits_of_scores, drop

LONGEST = {"bfloat16": 2048, "float32": 1024}  # longest sequence that fits into the 16 MiB of VMEM of a v4
LANES = 128  # lanes of the chip's registers; heads are processed in groups of this number of columns
_SCORES = 2**18  # elements in a block of scores: 1 MiB in float32; the backward pass holds several blocks
_VMEM_BYTES = 64 * 2**20


@dataclasses.dataclass(frozen=True)
class Form:
    """Static arguments of the kernel.

    Attributes:
        head_size: H, a divisor or a multiple of 128.
        dtype: dtype of the operands of products.
        rate: dropout rate.
        window: greatest distance between a query and a key; None means no limit.
        strided: whether the chip rotates each row by a different number of columns in one operation (v5e or later); for
            disentangled attention.
    """

    head_size: int
    dtype: str
    rate: float = 0.0
    window: int | None = None
    strided: bool = False


def supports(length: int, size: int, head_size: int, dtype: str) -> bool:
    """Return whether the kernel supports sequences of `length` with `size` columns per device."""
    whole_groups = head_size % LANES == 0 or (LANES % head_size == 0 and size % LANES == 0)
    return length % LANES == 0 and length <= LONGEST[dtype] and whole_groups


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def fused_attention(
    form: Form,
    query: jax.Array,  # [B, S, D]
    key: jax.Array,  # [B, S, D]
    value: jax.Array,  # [B, S, D]
    query_ids: jax.Array,  # [B, S] int32
    key_ids: jax.Array,  # [B, S] int32
    words: jax.Array,  # [B, N, 2] uint32, random words for dropout
) -> jax.Array:
    """Compute scaled dot-product attention of queries to keys with the same id; returns `[B, S, D]`."""
    (context,) = _call(form, _forward, [query, key, value], query_ids, key_ids, words)
    return context


def _fused_forward(form: Form, *arguments: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return fused_attention(form, *arguments), arguments


def _fused_backward(form: Form, arguments: tuple[jax.Array, ...], cotangent: jax.Array) -> tuple[jax.Array | None, ...]:
    query, key, value, query_ids, key_ids, words = arguments
    operands = [query, key, value, cotangent.astype(form.dtype)]
    return *_call(form, _backward, operands, query_ids, key_ids, words), None, None, None


fused_attention.defvjp(_fused_forward, _fused_backward)


def _call(
    form: Form, kernel: Any, operands: list[jax.Array], query_ids: jax.Array, key_ids: jax.Array, words: jax.Array
) -> list[jax.Array]:
    """Run a kernel over (batch, groups of heads, blocks of queries)."""
    batch, length, size = operands[0].shape
    width = max(form.head_size, LANES)
    heads = width // form.head_size
    rows = _rows(form, length)
    by_query = pl.BlockSpec((None, rows, width), lambda b, group, i: (b, i, group))
    all_keys = pl.BlockSpec((None, length, width), lambda b, group, i: (b, 0, group))
    backward = kernel is _backward
    results: list[jax.Array] = pl.pallas_call(
        functools.partial(kernel, form),
        grid=(batch, size // width, length // rows),
        in_specs=[
            pl.BlockSpec((None, rows, 1), lambda b, group, i: (b, i, 0)),
            pl.BlockSpec((None, 1, length), lambda b, group, i: (b, 0, 0)),
            pl.BlockSpec((None, None, heads, 2), lambda b, group, i: (b, group, 0, 0)),
            by_query,
            all_keys,
            all_keys,
            *([by_query] if backward else []),
        ],
        out_specs=[by_query, all_keys, all_keys] if backward else [by_query],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands[: 3 if backward else 1]],
        scratch_shapes=[pltpu.VMEM((length, width), jnp.float32)] * (2 if backward else 0),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=_VMEM_BYTES
        ),
        name="fused_attention_backward" if backward else "fused_attention",
    )(query_ids[..., None], key_ids[:, None], words.reshape(batch, -1, heads, 2), *operands)
    return results


def _rows(form: Form, length: int) -> int:
    """Return the number of queries in a block: fewer if many heads share a block, or operands are float32."""
    most = _SCORES // max(1, LANES // form.head_size // 2) // (2 if form.dtype == "float32" else 1)
    return max(n for n in range(32, length + 1, 32) if length % n == 0 and (n == 32 or n * length <= most))


def _forward(form: Form, *blocks: Any) -> None:
    """Compute a block `[rows, width]` of the result."""
    query_ids, key_ids, words, query, key, value, context = blocks
    seen = visible(form, query_ids, key_ids)
    results = []
    for head in range(words.shape[0]):
        q, k, v = head_columns(form, head, query, key, value)
        probabilities = dropped(form, words[head : head + 1], probabilities_of(dot(scaled(form, q), k, 1, 1), seen))
        results.append(dot(probabilities.astype(form.dtype), v, 1, 0))
    context[...] = jnp.concatenate(results, axis=-1).astype(context.dtype)


def _backward(form: Form, *blocks: Any) -> None:
    """Compute the gradient of a block of queries; sum those of keys and values over blocks in float32."""
    query_ids, key_ids, words, query, key, value, cotangent, d_query, d_key, d_value, sum_key, sum_value = blocks

    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        sum_key[...] = jnp.zeros_like(sum_key)
        sum_value[...] = jnp.zeros_like(sum_value)

    seen = visible(form, query_ids, key_ids)
    by_query, by_key, by_value = [], [], []
    for head in range(words.shape[0]):
        q, k, v, d_context = head_columns(form, head, query, key, value, cotangent)
        p = probabilities_of(dot(scaled(form, q), k, 1, 1), seen)
        d_scores, d_v = score_gradient(form, words[head : head + 1], p, v, d_context)
        by_value.append(d_v)
        by_query.append(dot(d_scores, k, 1, 0) * form.head_size**-0.5)
        by_key.append(dot(d_scores, scaled(form, q), 0, 0))
    d_query[...] = jnp.concatenate(by_query, axis=-1).astype(d_query.dtype)
    sum_key[...] += jnp.concatenate(by_key, axis=-1)
    sum_value[...] += jnp.concatenate(by_value, axis=-1)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _() -> None:
        d_key[...] = sum_key[...].astype(d_key.dtype)
        d_value[...] = sum_value[...].astype(d_value.dtype)


def head_columns(form: Form, head: int, *blocks: Any) -> list[jax.Array]:
    """Return the columns of a head in each block."""
    return [block[:, head * form.head_size : (head + 1) * form.head_size].astype(form.dtype) for block in blocks]


def scaled(form: Form, query: jax.Array) -> jax.Array:
    return query * jnp.asarray(form.head_size**-0.5, query.dtype)


def visible(form: Form, query_ids: Any, key_ids: Any) -> jax.Array:
    """Return bool `[rows, S]`: whether a query attends to a key."""
    seen: jax.Array = query_ids[...] == key_ids[...]
    if form.window is not None:
        row, column = _places(seen.shape, jnp.int32)
        seen &= abs(row - column) <= form.window
    return seen


def _places(shape: tuple[int, ...], dtype: jax.typing.DTypeLike) -> tuple[jax.Array, jax.Array]:
    """Return the positions of queries `[rows, 1]` and keys `[1, S]` for a block of scores `[rows, S]`."""
    rows, length = shape
    first = (pl.program_id(2) * rows).astype(dtype)
    return first + jax.lax.broadcasted_iota(dtype, (rows, 1), 0), jax.lax.broadcasted_iota(dtype, (1, length), 1)


def probabilities_of(scores: jax.Array, seen: jax.Array) -> jax.Array:
    """Return the attention probabilities `[rows, S]`, float32, of keys that a query attends to."""
    scores = jnp.where(seen, scores, MASKED)
    exponentials = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def score_gradient(
    form: Form, words: jax.Array, p: jax.Array, value: jax.Array, d_context: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the gradient of the scores `[rows, S]`, and in float32 that of the values, from the probabilities `p`."""
    drop = functools.partial(dropped, form, words)
    d_value = dot(drop(p).astype(form.dtype), d_context, 0, 0)
    d_p = drop(dot(d_context, value, 1, 1))
    return (p * (d_p - (p * d_p).sum(axis=-1, keepdims=True))).astype(form.dtype), d_value


def dropped(form: Form, words: jax.Array, x: jax.Array) -> jax.Array:
    if form.rate == 0.0:
        return x
    return drop(x, bits_of_scores((words[:, :1], words[:, 1:]), *_places(x.shape, jnp.uint32)), form.rate)


def dot(a: jax.Array, b: jax.Array, axis_a: int, axis_b: int) -> jax.Array:
    """Contract two matrices over an axis of each, with a float32 result."""
    exact = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    contracted = (((axis_a,), (axis_b,)), ((), ()))
    return jax.lax.dot_general(a, b, contracted, precision=exact, preferred_element_type=jnp.float32)
