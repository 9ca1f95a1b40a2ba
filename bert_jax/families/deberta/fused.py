"""A Pallas TPU kernel for disentangled attention (DeBERTa) that keeps scores and their position terms in VMEM.

It is `bert_jax.modeling.kernels.fused` with the two position terms of `bert_jax.families.deberta.blocks`. For the first
term, a block of 128 queries is multiplied by the embeddings of its distances to all keys, arranged by distance, and the
product is sheared: row q is shifted by q columns. The second term does the same with each block of 128 keys. The
backward pass shears the gradient of the scores the other way. An exchange matrix reverses its rows before that, since
the chip's rotation supports only shifts that grow from row to row.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.modeling.kernels import fused
from bert_jax.modeling.kernels.fused import (
    LANES,
    Form,
    dot,
    dropped,
    head_columns,
    probabilities_of,
    scaled,
    score_gradient,
    visible,
)

BLOCK = 128  # queries in a block of scores, and keys in a block of the position-to-content term
_LONGEST = 512  # the longest sequence that fits into the 16 MiB of a v4
_VMEM_BYTES = 64 * 2**20


def rotates_by_row(device_kind: str) -> bool:
    """Return whether a chip of this kind supports `Form.strided`; other chips rotate in several steps."""
    return device_kind.startswith("TPU") and not device_kind.startswith(("TPU v2", "TPU v3", "TPU v4"))


def longest(dtype: str, device_kind: str) -> int:
    """Return the longest sequence that fits into the VMEM of a chip of this kind."""
    return fused.LONGEST[dtype] if rotates_by_row(device_kind) else _LONGEST


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def fused_disentangled_attention(
    form: Form,
    query: jax.Array,  # [B, S, D]
    key: jax.Array,  # [B, S, D]
    value: jax.Array,  # [B, S, D]
    of_queries: jax.Array,  # [2S, D], embeddings of key minus query position = 1 - S, ..., S - 1, and an unused row
    of_keys: jax.Array,  # [2S, D], scaled, of query minus key position = 1 - S, ..., S - 1, and an unused row
    query_ids: jax.Array,  # [B, S] int32
    key_ids: jax.Array,  # [B, S] int32
    words: jax.Array,  # [B, N, 2] uint32, random words for dropout
) -> jax.Array:
    """Compute disentangled attention of queries to keys with the same id; returns `[B, S, D]`."""
    (context,) = _call(form, _forward, [query, key, value, of_queries, of_keys], query_ids, key_ids, words)
    return context


def _saved(form: Form, *arguments: jax.Array):
    return fused_disentangled_attention(form, *arguments), arguments


def _pulled(form: Form, arguments, cotangent: jax.Array):
    *operands, query_ids, key_ids, words = arguments
    operands.append(cotangent.astype(form.dtype))
    return *_call(form, _backward, operands, query_ids, key_ids, words), None, None, None


fused_disentangled_attention.defvjp(_saved, _pulled)


def _call(form: Form, kernel, operands, query_ids, key_ids, words) -> list[jax.Array]:
    """Run a kernel over (groups of heads, batch, blocks of queries)."""
    batch, length, size = operands[0].shape
    width = max(form.head_size, LANES)
    heads = width // form.head_size
    by_query = pl.BlockSpec((None, BLOCK, width), lambda group, b, i: (b, i, group))
    all_rows = pl.BlockSpec((None, length, width), lambda group, b, i: (b, 0, group))
    table = pl.BlockSpec((2 * length, width), lambda group, b, i: (0, group))
    backward = kernel is _backward
    results = [by_query, all_rows, all_rows, table, table] if backward else [by_query]
    scratch = [(length, width)] * 2 + [(2 * length, width)] * 2 if backward else []
    return pl.pallas_call(
        functools.partial(kernel, form),
        grid=(size // width, batch, length // BLOCK),
        in_specs=[
            pl.BlockSpec((None, BLOCK, 1), lambda group, b, i: (b, i, 0)),
            pl.BlockSpec((None, 1, length), lambda group, b, i: (b, 0, 0)),
            pl.BlockSpec((None, None, heads, 2), lambda group, b, i: (b, group, 0, 0)),
            by_query,
            all_rows,
            all_rows,
            table,
            table,
            *([by_query] if backward else []),
        ],
        out_specs=results,
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands[: len(results)]],
        scratch_shapes=[pltpu.VMEM(sizes, jnp.float32) for sizes in scratch],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary", "arbitrary"), vmem_limit_bytes=_VMEM_BYTES
        ),
        name="fused_disentangled_attention_backward" if backward else "fused_disentangled_attention",
    )(query_ids[..., None], key_ids[:, None], words.reshape(batch, -1, heads, 2), *operands)


def _forward(form: Form, query_ids, key_ids, words, query, key, value, of_queries, of_keys, context) -> None:
    """Compute a block `[128, width]` of the result."""
    seen, results = visible(form, query_ids, key_ids), []
    for head in range(words.shape[0]):
        q, k, v = head_columns(form, head, query, key, value)
        tables = _tables(form, head, k.shape[0], of_queries, of_keys)
        probabilities = probabilities_of(_scores(form, scaled(form, q), k, tables), seen)
        results.append(dot(dropped(form, words[head : head + 1], probabilities).astype(form.dtype), v, 1, 0))
    context[...] = jnp.concatenate(results, axis=-1).astype(context.dtype)


def _backward(
    form: Form, query_ids, key_ids, words, query, key, value, of_queries, of_keys, cotangent,
    d_query, d_key, d_value, d_of_queries, d_of_keys, sum_key, sum_value, sum_of_queries, sum_of_keys,
) -> None:  # fmt: skip
    """Compute the gradient of a block of queries; sum that of keys, of values and, over the batch too, of tables."""
    length = key.shape[0]
    first, last = pl.program_id(2) == 0, pl.program_id(2) == pl.num_programs(2) - 1

    @pl.when(first)
    def _():
        sum_key[...] = jnp.zeros_like(sum_key)
        sum_value[...] = jnp.zeros_like(sum_value)

    @pl.when(first & (pl.program_id(1) == 0))
    def _():
        sum_of_queries[...] = jnp.zeros_like(sum_of_queries)
        sum_of_keys[...] = jnp.zeros_like(sum_of_keys)

    seen, by_head = visible(form, query_ids, key_ids), []
    for head in range(words.shape[0]):
        operands = head_columns(form, head, query, key, value, cotangent)
        tables = _tables(form, head, length, of_queries, of_keys)
        by_head.append(_gradients(form, words[head : head + 1], seen, operands, tables))
    queries, keys, values, tables_of_queries, tables_of_keys = (
        jnp.concatenate(parts, axis=-1) for parts in zip(*by_head, strict=True)
    )
    d_query[...] = queries.astype(d_query.dtype)
    sum_key[...] += keys
    sum_value[...] += values
    sum_of_queries[_span_of_queries(length), :] += tables_of_queries
    for block in range(length // BLOCK):
        sum_of_keys[_span_of_keys(length, block), :] += tables_of_keys[2 * block * BLOCK : 2 * (block + 1) * BLOCK]

    @pl.when(last)
    def _():
        d_key[...] = sum_key[...].astype(d_key.dtype)
        d_value[...] = sum_value[...].astype(d_value.dtype)

    @pl.when(last & (pl.program_id(1) == pl.num_programs(1) - 1))
    def _():
        d_of_queries[...] = sum_of_queries[...].astype(d_of_queries.dtype)
        d_of_keys[...] = sum_of_keys[...].astype(d_of_keys.dtype)


def _gradients(form: Form, words, seen, operands, tables) -> tuple[jax.Array, ...]:
    """Return a head's float32 gradients of queries, keys and values, and of both results of `_tables`, concatenated."""
    (q, k, v, d_context), (of_queries, of_keys) = operands, tables
    q = scaled(form, q)
    p = probabilities_of(_scores(form, q, k, tables), seen)
    d_scores, d_value = score_gradient(form, words, p, v, d_context)

    exchange = _exchange(form.dtype)
    d_sheared = _sheared_back(form, dot(exchange, d_scores, 1, 0))  # [queries from the last to the first, distances]
    d_of_queries = dot(d_sheared, dot(exchange, q, 1, 0).astype(form.dtype), 0, 0)
    d_query = dot(d_scores, k, 1, 0) + _reversed(dot(d_sheared, of_queries, 1, 0))

    d_keys, d_of_keys = [], []
    for block, table in enumerate(of_keys):
        here = slice(block * BLOCK, (block + 1) * BLOCK)
        d_sheared = _sheared_back(form, dot(exchange, d_scores[:, here], 1, 1))  # [keys in reverse, distances]
        d_of_keys.append(dot(d_sheared, dot(exchange, k[here], 1, 0).astype(form.dtype), 0, 0))
        d_keys.append(_reversed(dot(d_sheared, table, 1, 0)))
    d_key = dot(d_scores, q, 0, 0) + jnp.concatenate(d_keys)
    return d_query * form.head_size**-0.5, d_key, d_value, d_of_queries, jnp.concatenate(d_of_keys)


def _tables(form: Form, head: int, length: int, of_queries, of_keys) -> tuple[jax.Array, list[jax.Array]]:
    """Return a head's embeddings for the distances in a block of queries.

    Returns:
        Those of the queries' distances to all keys, `[S + 128, H]`; and for each block of keys those of its distances
        to the queries, `[256, H]`.
    """
    here = slice(head * form.head_size, (head + 1) * form.head_size)
    blocks = [of_keys[_span_of_keys(length, block), here] for block in range(length // BLOCK)]
    return of_queries[_span_of_queries(length), here].astype(form.dtype), [x.astype(form.dtype) for x in blocks]


def _span_of_queries(length: int):
    return pl.ds(pl.multiple_of(length - (pl.program_id(2) + 1) * BLOCK, BLOCK), length + BLOCK)


def _span_of_keys(length: int, block: int):
    return pl.ds(pl.multiple_of(length + (pl.program_id(2) - block - 1) * BLOCK, BLOCK), 2 * BLOCK)


def _scores(form: Form, query, key, tables: tuple[jax.Array, list[jax.Array]]) -> jax.Array:
    """Return the scores of a block of scaled queries, `[128, S]`, float32."""
    of_queries, of_keys = tables
    blocks = [
        _sheared(form, dot(key[block * BLOCK : (block + 1) * BLOCK], table, 1, 1)).T
        for block, table in enumerate(of_keys)
    ]
    terms = _sheared(form, dot(query, of_queries, 1, 1)) + jnp.concatenate(blocks, axis=-1)
    return dot(query, key, 1, 1) + terms


def _sheared(form: Form, x: jax.Array) -> jax.Array:
    """Drop the first 127 - q and the last q + 1 columns of each row q, `[128, n + 128] -> [128, n]`."""
    return _rotated(form, x, x.shape[1] - BLOCK + 1)[:, : x.shape[1] - BLOCK]


def _sheared_back(form: Form, x: jax.Array) -> jax.Array:
    """Apply the transpose of `_sheared` to `x [128, n]`; the rows of `x` and of the result are in reverse order."""
    return _rotated(form, jnp.concatenate([x, jnp.zeros_like(x[:, :BLOCK])], axis=1), 0).astype(form.dtype)


def _rotated(form: Form, x: jax.Array, first: int) -> jax.Array:
    """Rotate row q of `x [128, W]` by `first + q` columns to the right."""
    if form.strided:
        return pltpu.roll(x, first, 1, stride=1, stride_axis=0)
    x = pltpu.roll(x, first, 1) if first else x
    row = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
    for bit in range(BLOCK.bit_length() - 1):
        x = jnp.where((row >> bit) & 1 == 1, pltpu.roll(x, 1 << bit, 1), x)
    return x


def _exchange(dtype) -> jax.Array:
    """Return the matrix that reverses the order of 128 rows, which is exact in every dtype."""
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (BLOCK, BLOCK), axis) for axis in (0, 1))
    return (row + column == BLOCK - 1).astype(dtype)


def _reversed(x: jax.Array) -> jax.Array:
    return dot(_exchange(jnp.float32), x, 1, 0)
