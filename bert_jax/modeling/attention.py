"""Multi-head self-attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2), and the choice of its backend.

    xla     any platform and length, with dropout and attention maps; writes the scores [B, N, S, S] to memory, except
            for a small window in a long sequence (`bert_jax.modeling.kernels.local`), block-sparse attention
            (`bert_jax.modeling.kernels.block_sparse`) and disentangled attention of a long sequence
            (`bert_jax.modeling.kernels.disentangled`)
    fused   TPU: `bert_jax.modeling.kernels.fused`, with dropout; for disentangled attention `fused_disentangled`
    splash  TPU: `bert_jax.modeling.kernels.splash`, for long sequences and local windows; no dropout
    cudnn   GPU: `jax.nn.dot_product_attention`; no dropout

All backends give the same result up to rounding. docs/attention.md describes their costs and the choice of `auto`.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from bert_jax.config import BertConfig
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import BLOCK_SPARSE, BLOCKS, LOCAL, AttentionPlan
from bert_jax.modeling.compute import CONTEXT, Compute
from bert_jax.modeling.dropout import bits_of_scores, dropout
from bert_jax.modeling.global_tokens import global_rows, put_rows
from bert_jax.modeling.kernels import block_sparse, disentangled, fused, fused_disentangled, local, splash
from bert_jax.modeling.kernels.plain import plain_attention
from bert_jax.modeling.layers import Dense, LayerNorm
from bert_jax.modeling.positions import alibi_slopes
from bert_jax.sharding import constrain, device_kind, mapped

# Embeddings of relative positions, projected to `[R, N, H]`: as keys for content to position, and as queries for
# position to content.
PositionTerms = tuple[jax.Array | None, jax.Array | None]


def rotary_speeds(size: int, theta: float, factor: float = 1.0) -> jax.Array:
    """Return the angles `[H / 2]` by which a position rotates the points of a head."""
    return theta ** -(jnp.arange(0, size, 2, dtype=jnp.float32) / size) / factor


def rotation(length: int, position_ids: jax.Array | None, speeds: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cosines and sines `[B or 1, S, 1, H / 2]` of rotary positions; `position_ids` None means 0, 1, ..."""
    places = jnp.arange(length)[None] if position_ids is None else position_ids
    angles = (places[..., None].astype(jnp.float32) * speeds)[:, :, None]
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, turn: tuple[jax.Array, jax.Array] | None, interleaved: bool) -> jax.Array:
    """Apply rotary positions to `x [B, S, N, H]`, where a head has the coordinates of H / 2 points.

    These are its two halves, or if `interleaved` its even and its odd columns.
    """
    if turn is None:
        return x
    wide, (cosines, sines) = x.astype(jnp.float32), turn
    a, b = (wide[..., 0::2], wide[..., 1::2]) if interleaved else jnp.split(wide, 2, axis=-1)
    points = a * cosines - b * sines, b * cosines + a * sines
    rotated = jnp.stack(points, axis=-1).reshape(x.shape) if interleaved else jnp.concatenate(points, axis=-1)
    return rotated.astype(x.dtype)


def relative_buckets(length: int, buckets: int) -> np.ndarray:
    """Return the bucket `[S, S]` of the distance from each query to each key.

    Half of the buckets are for keys after the query. In each half, the first buckets hold one distance each; the others
    hold ranges that grow by a constant factor up to 128, and the last holds all larger distances (Raffel et al. 2019,
    arXiv:1910.10683).
    """
    distance = np.arange(length)[None] - np.arange(length)[:, None]
    half, exact = buckets // 2, buckets // 4
    far = np.log(np.maximum(abs(distance), 1).astype(np.float32) / exact) / np.float32(np.log(128 / exact))
    far = exact + (far * (half - exact)).astype(np.int32)
    return np.where(distance > 0, half, 0) + np.where(abs(distance) < exact, abs(distance), np.minimum(far, half - 1))


class SelfAttention(nnx.Module):
    """The attention block, `[B, S, D] -> [B, S, D]`: attention, output projection, dropout, residual, LayerNorm.

    With query positions, the output is `[B, P, D]`.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        size, width, narrow = config.inner_size, config.attention_width, config.key_value_width
        biased = config.attention_bias and config.qkv_bias
        dense = functools.partial(Dense, config, use_bias=biased, rngs=rngs)
        key_dense = functools.partial(dense, use_bias=biased and config.key_bias)
        self.query, self.key = dense(size, width), key_dense(size, narrow)
        self.value = dense(config.value_input_size, narrow)
        if config.max_global_tokens:
            self.global_query, self.global_key = dense(size, width), dense(size, width)
            self.global_value = dense(size, width)
        if not config.share_att_key:
            if "c2p" in config.pos_att_type:
                self.position_key = key_dense(size, width)
            if "p2c" in config.pos_att_type:
                self.position_query = dense(size, width)
        self.output = Dense(config, width, size, use_bias=config.attention_bias, rngs=rngs)
        self.layer_norm = LayerNorm(config, size)
        if config.qk_norm:
            self.query_norm, self.key_norm = LayerNorm(config, width), LayerNorm(config, narrow)
        if config.attention_output_norm:
            self.output_norm = LayerNorm(config, size)

    def __call__(
        self,
        x: jax.Array,  # [B, S, D]
        plan: AttentionPlan,
        is_first: jax.Array | bool | None,
        dropout_keys: tuple[jax.Array | None, jax.Array | None],
        compute: Compute,
        inputs: tuple[jax.Array, jax.Array] | None = None,
    ) -> tuple[jax.Array, jax.Array | None, tuple[jax.Array, ...]]:
        """Return the block's output, for xla the attention probabilities `[B, N, S, S]`, and the projections.

        With `inputs`, queries and keys are projections of the first, and values of the second, instead of `x`, which
        is only added to the output: it then has only the query positions. The projections are query, key and value,
        `[B, S, heads * H]`, before rotary positions and after their norms.
        """
        pre = self.config.norm_placement == "pre"
        normed = self.layer_norm(x) if pre else x
        if is_first is not None:  # the embeddings have normalised the first layer's input
            normed = jnp.where(is_first, x, normed)
        of_keys, of_values = (normed, normed) if inputs is None else inputs
        queries = of_keys if plan.query_positions is None else plan.query_positions.of(of_keys)
        projected = tuple(
            constrain(project(states, compute), "batch", None, "heads")
            for project, states in ((self.query, queries), (self.key, of_keys), (self.value, of_values))
        )
        if self.config.qk_norm:
            query, key, value = projected
            projected = (self.query_norm(query), self.key_norm(key), value)
        positions = self._positions(plan, dropout_keys[1], compute)
        context, probabilities = attend(plan, projected, self.config, dropout_keys[0], compute, positions)
        if plan.mask.global_tokens is not None:
            context, probabilities = self._with_global_rows(
                normed, context, probabilities, plan, dropout_keys[0], compute
            )
        context = checkpoint_name(context, CONTEXT)
        at = plan.query_positions
        x = x if at is None or inputs is not None else at.of(x)
        y = dropout(self.output(context, compute), self.config.hidden_dropout_prob, dropout_keys[1], at)
        x += self.output_norm(y + x) if self.config.attention_output_norm else y
        return x if pre else self.layer_norm(x), probabilities, projected

    def _with_global_rows(
        self, x: jax.Array, context: jax.Array, probabilities: jax.Array | None, plan: AttentionPlan,
        dropout_key: jax.Array | None, compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
        """Return context and probabilities with the rows of the tokens that have global attention replaced."""
        mask, at = plan.mask, plan.query_positions
        projected = tuple(
            constrain(project(states, compute), "batch", None, "heads")
            for project, states in (
                (self.global_query, mask.global_queries(x.shape[1]).of(x)), (self.global_key, x),
                (self.global_value, x),
            )
        )  # fmt: skip
        key = None if dropout_key is None else jax.random.fold_in(dropout_key, 1)
        rows, row_probabilities = global_rows(mask, projected, self.config, key, compute)
        if probabilities is not None:
            probabilities = put_rows(probabilities, row_probabilities, mask, at)
        return put_rows(context, rows, mask, at), probabilities

    def _positions(self, plan: AttentionPlan, dropout_key: jax.Array | None, compute: Compute) -> PositionTerms | None:
        """Return the projections of the embeddings of relative positions; None without disentangled attention."""
        if plan.relative_embeddings is None:
            return None
        config = self.config
        key = None if dropout_key is None else jax.random.fold_in(dropout_key, 1)
        x = dropout(plan.relative_embeddings, config.hidden_dropout_prob, key)

        def term(kind: str, shared: str, own: str) -> jax.Array | None:
            if kind not in config.pos_att_type:
                return None
            projected = getattr(self, shared if config.share_att_key else own)(x, compute)
            return projected.reshape(len(x), config.num_attention_heads, config.head_size)

        return term("c2p", "key", "position_key"), term("p2c", "query", "position_query")


def attend(
    plan: AttentionPlan,
    projected: tuple[jax.Array, ...],  # query [B, S or P, N * H]; key, value [B, S, heads of keys * H]
    config: BertConfig,
    dropout_key: jax.Array | None,
    compute: Compute,
    positions: PositionTerms | None = None,
) -> tuple[jax.Array, jax.Array | None]:
    """Compute scaled dot-product attention with the plan's backend.

    With `positions` the attention is disentangled: the scores are the sum of one to three products, scaled by the root
    of their number besides that of the head size (He et al. 2020, arXiv:2006.03654, equation 4).

    Returns:
        The context `[B, S or P, N * H]` and, for xla, the attention probabilities `[B, N, S or P, S]`.
    """
    batch, length, size = projected[0].shape
    heads, rate = config.num_attention_heads, config.attention_probs_dropout_prob
    words = None
    if dropout_key is not None and rate > 0:
        words = constrain(jax.random.bits(dropout_key, (batch, heads, 2), jnp.uint32), "batch", "heads", None)
    dtype = compute.activation_dtype
    query, key, value = (x.reshape(*x.shape[:2], -1, config.head_size) for x in projected)
    turn = plan.rotation if plan.query_positions is None else jax.tree.map(plan.query_positions.of, plan.rotation)
    pairs = config.rotary_interleaved
    query, key = rotate(query, turn, pairs), rotate(key, plan.rotation, pairs)
    if config.rotary_value:
        value = rotate(value, plan.rotation, pairs)
    if plan.backend == "fused":
        # The kernel reads a head of keys for each head of queries.
        key, value = (jnp.repeat(x, heads // x.shape[2], axis=2) for x in (key, value))
        projected = tuple(x.reshape(batch, length, size) for x in (query, key, value))
        return _fused(plan.mask, projected, positions, config, words, compute).astype(dtype), None
    if plan.backend == "cudnn":
        return _cudnn(plan.mask, query, key, value, compute).reshape(batch, length, size), None
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    if plan.backend == "splash":
        context, probabilities = _splash(plan.mask, query, key, value, compute).astype(dtype), None
    elif plan.backend == LOCAL:
        assert plan.bias is not None
        context = local.local_attention(plan.bias, plan.mask, query, key, value, words, rate, compute)
        probabilities = None
    elif plan.backend == BLOCK_SPARSE:
        assert plan.blocks is not None
        context = block_sparse.block_sparse_attention(plan.blocks, plan.mask, query, key, value, compute)
        probabilities = None
    elif plan.backend == BLOCKS:
        assert positions is not None
        query, terms = _scaled(query, positions, key.shape[2], config)
        context, probabilities = _in_blocks(plan.mask, (query, key, value), terms, words, rate, compute), None
    else:
        if positions is not None:
            query, terms = _scaled(query, positions, key.shape[2], config)
            scaled, at = query * config.head_size**-0.5, plan.query_positions
            plan = plan.with_bias(disentangled.position_scores(scaled, key, *terms, at, compute))
        if plan.blocks is not None:  # without dropout of probabilities, as in transformers
            words = None
            plan = plan.with_bias(block_sparse.dense_bias(plan.blocks, key.shape[2], plan.query_positions))
        if config.position_embedding_type == "alibi":
            plan = _with_alibi(plan, key.shape[2], heads)
        context, probabilities = _xla(plan, query, key, value, words, rate, compute)
    context = constrain(context, "batch", "heads", None, None)  # its gradient stays split by heads too
    return context.swapaxes(1, 2).reshape(batch, length, size), probabilities


def _scaled(
    query: jax.Array, positions: PositionTerms, length: int, config: BertConfig
) -> tuple[jax.Array, tuple[jax.Array | None, jax.Array | None, np.ndarray]]:
    """Scale queries and position queries by the number of terms; return the queries, and both tables with their rows.

    The tables and their rows by distance are those of `disentangled.position_scores`.
    """
    scale = (1 + len(config.pos_att_type)) ** -0.5
    position_key, position_query = positions
    if position_query is not None:
        position_query *= config.head_size**-0.5 * scale
    most = config.max_relative_positions or config.max_position_embeddings
    # A symbolic length (`jax.export`) is at most the model's positions.
    longest = length if isinstance(length, int) else config.max_position_embeddings
    rows = disentangled.distance_rows(longest, config.relative_span, config.position_buckets, most)
    return query * scale, (position_key, position_query, rows)


def _in_blocks(
    mask: AttentionMask,
    projected: tuple[jax.Array, ...],  # query, key, value [B, N, S, H]
    terms: tuple[jax.Array | None, jax.Array | None, np.ndarray],  # of `_scaled`
    words: jax.Array | None,
    rate: float,
    compute: Compute,
) -> jax.Array:
    *tables, rows = terms

    def run(ids, projected, tables, words):
        (query_ids, key_ids), (query, key, value), (position_key, position_query) = ids, projected, tables
        own = AttentionMask(query_ids, key_ids, mask.window)
        return disentangled.attention_in_blocks(
            own, query, key, value, position_key, position_query, rows, words, rate, compute
        )

    # On each device by itself: the compiler would sum the tables' gradients over devices in every block.
    heads = ("batch", "heads", None, None)
    run = mapped(run, (("batch", None), heads, (None, "heads", None), ("batch", "heads", None)), heads)
    return run((mask.query_ids, mask.key_ids), projected, tuple(tables), words)


def _with_alibi(plan: AttentionPlan, length: int, heads: int) -> AttentionPlan:
    """Return the plan with ALiBi in its bias; in the layer, so that the compiler fuses it with the scores."""
    keys = jnp.arange(length)
    queries = keys[None] if plan.query_positions is None else plan.query_positions.index
    distances = abs(queries[:, None, :, None] - keys).astype(jnp.float32)  # [1 or B, 1, S or P, S]
    return plan.with_bias(-jnp.asarray(alibi_slopes(heads))[:, None, None] * distances)


def _xla(
    plan: AttentionPlan,
    query: jax.Array,  # [B, N, S, H], as are the next two; or [B, N, P, H]
    key: jax.Array,  # N or fewer heads
    value: jax.Array,
    words: jax.Array | None,  # [B, N, 2] uint32, random words for dropout
    rate: float,
    compute: Compute,
) -> tuple[jax.Array, jax.Array]:
    bits = None
    if words is not None:
        place = functools.partial(jax.lax.broadcasted_iota, jnp.uint32)
        length = key.shape[2]
        at = plan.query_positions
        queries = place((1, 1, length, 1), 2) if at is None else at.index.astype(jnp.uint32)[:, None, :, None]
        bits = bits_of_scores((words[..., :1, None], words[..., 1:, None]), queries, place((1, 1, 1, length), 3))
    return plain_attention(query, key, value, plan.bias, bits, rate, compute)


def _fused(
    mask: AttentionMask,
    projected: tuple[jax.Array, ...],  # query, key, value [B, S, N * H]
    positions: PositionTerms | None,
    config: BertConfig,
    words: jax.Array | None,
    compute: Compute,
) -> jax.Array:
    query, key, value = projected
    batch, length, size = query.shape
    rate = 0.0 if words is None else config.attention_probs_dropout_prob
    form = fused.Form(config.head_size, compute.dtype, rate, mask.window)
    if words is None:
        words = jnp.zeros((batch, config.num_attention_heads, 2), jnp.uint32)
    rows, columns, by_head = ("batch", None), ("batch", None, "heads"), ("batch", "heads", None)
    others = (*mask.ids(batch, length), words)
    if positions is None:
        run = mapped(functools.partial(fused.fused_attention, form), (*[columns] * 3, rows, rows, by_head), columns)
        return run(query, key, value, *others)
    query, terms = _scaled(query, positions, length, config)
    tables = [
        jnp.zeros((2 * length, size), query.dtype) if table is None else table.reshape(2 * length, size)
        for table in disentangled.laid_out(*terms)
    ]
    form = dataclasses.replace(form, strided=fused_disentangled.rotates_by_row(device_kind()))
    run = mapped(
        functools.partial(fused_disentangled.fused_disentangled_attention, form),
        (*[columns] * 3, *[(None, "heads")] * 2, rows, rows, by_head),
        columns,
    )
    return run(query, key, value, *tables, *others)


def _splash(mask: AttentionMask, query, key, value, compute: Compute) -> jax.Array:
    batch, _, length, _ = query.shape
    rows, heads = ("batch", None), ("batch", "heads", None, None)
    run = mapped(functools.partial(splash.splash_attention, window=mask.window), (*[heads] * 3, rows), heads)
    # Padding attends to padding, and in the other backends to tokens; outputs of padding are not used.
    _, ids = mask.ids(batch, length)
    return run(*(x.astype(compute.dtype) for x in (query, key, value)), ids)


def _cudnn(mask: AttentionMask, query, key, value, compute: Compute) -> jax.Array:
    length = query.shape[1]
    seen = mask.seen(length)
    if seen is not None:  # which cuDNN reads for each query
        seen = jnp.broadcast_to(seen, (*seen.shape[:2], length, length))
    query, key, value = (x.astype(compute.dtype) for x in (query, key, value))
    return jax.nn.dot_product_attention(query, key, value, mask=seen, implementation="cudnn")
