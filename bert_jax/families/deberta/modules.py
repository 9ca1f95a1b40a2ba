"""Disentangled attention (He et al. 2020, arXiv:2006.03654), and DeBERTa-v2's convolution.

The backends are those of `bert_jax.modeling.backends`, except that xla computes long sequences in blocks
(`bert_jax.families.deberta.blocks`), and that fused is `bert_jax.families.deberta.fused`.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.part import expect
from bert_jax.families.deberta import blocks, fused
from bert_jax.families.deberta.parts import DisentangledConfig
from bert_jax.modeling.accelerators import fused_form
from bert_jax.modeling.attention import DropoutKeys, SelfAttention, attention_projections
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.backends import by_xla, merge_heads, random_words, split_heads
from bert_jax.modeling.compute import Compute, matmul
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.factored_embeddings import FactoredEmbeddings
from bert_jax.modeling.layers import ACTIVATIONS, Embedding, LayerNorm, initializer
from bert_jax.modeling.positions import Positions
from bert_jax.modeling.stack import Beside, FirstInputs, Step
from bert_jax.sharding import device_kind, mapped

BLOCKS = "blocks"  # the backend that replaces xla for long sequences

# Embeddings of relative positions, projected to `[R, N, H]`: as keys for content to position, and as queries for
# position to content.
PositionTerms = tuple[jax.Array | None, jax.Array | None]


def _attention(config: BertConfig) -> DisentangledConfig:
    return expect(config.attention, DisentangledConfig)


class NormedLastEmbeddings(FactoredEmbeddings):
    """Embeddings whose LayerNorm follows their projection, which has no bias."""

    projection_bias = False

    def before_norm(self, x: jax.Array, compute: Compute) -> jax.Array:
        return self.projected(x, compute)

    def after_dropout(self, x: jax.Array, compute: Compute) -> jax.Array:
        return x


class DisentangledAttention(SelfAttention):
    """Attention whose scores add content-to-position and/or position-to-content terms to the usual products."""

    @staticmethod
    def unfit(backend: str, config: BertConfig, mask: AttentionMask, length: int) -> str | None:
        return None if backend == "fused" else "does not support relative positions"

    @staticmethod
    def longest_fused(compute: Compute) -> int:
        return fused.longest(compute.dtype, device_kind())

    @staticmethod
    def planned(plan: AttentionPlan, config: BertConfig, length: int, maps: bool) -> AttentionPlan:
        if plan.backend != "xla" or maps or not blocks.supports(length):
            return plan
        return dataclasses.replace(plan, backend=BLOCKS)

    def add_projections(self, rngs: nnx.Rngs) -> None:
        config, part = self.config, _attention(self.config)
        size, width = config.inner_size, config.attention_width
        dense, key_dense = attention_projections(config, rngs)
        if not part.share_att_key:
            if "c2p" in part.pos_att_type:
                self.position_key = key_dense(size, width)
            if "p2c" in part.pos_att_type:
                self.position_query = dense(size, width)

    def attend(
        self, x: jax.Array, plan: AttentionPlan, projected: tuple[jax.Array, ...], dropout_keys: DropoutKeys,
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
        positions = self._positions(plan, dropout_keys[1], compute)
        return attend_disentangled(plan, projected, self.config, dropout_keys[0], compute, positions)

    def _positions(self, plan: AttentionPlan, dropout_key: jax.Array | None, compute: Compute) -> PositionTerms:
        """Return the projections of the embeddings of relative positions."""
        config, part = self.config, _attention(self.config)
        key = None if dropout_key is None else jax.random.fold_in(dropout_key, 1)
        x = dropout(plan.extra, config.hidden_dropout_prob, key)

        def term(kind: str, shared: str, own: str) -> jax.Array | None:
            if kind not in part.pos_att_type:
                return None
            projected = getattr(self, shared if part.share_att_key else own)(x, compute)
            return projected.reshape(len(x), config.num_attention_heads, config.head_size)

        return term("c2p", "key", "position_key"), term("p2c", "query", "position_query")


def attend_disentangled(
    plan: AttentionPlan,
    projected: tuple[jax.Array, ...],  # query [B, S or P, N * H]; key, value [B, S, N * H]
    config: BertConfig,
    dropout_key: jax.Array | None,
    compute: Compute,
    positions: PositionTerms,
) -> tuple[jax.Array, jax.Array | None]:
    """Compute disentangled attention with the plan's backend; returns what `attend` returns.

    The scores are divided by the square root of the head size times their number of products (equation 4).
    """
    batch, length, size = projected[0].shape
    words = random_words(config, batch, dropout_key)
    query, key, value = split_heads(projected, config)
    if plan.backend == "fused":
        projected = tuple(x.reshape(batch, length, size) for x in (query, key, value))
        context = _fused(plan.mask, projected, positions, config, words, compute)
        return context.astype(compute.activation_dtype), None
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    query, terms = _scaled(query, positions, key.shape[2], config)
    if plan.backend == BLOCKS:
        rate = config.attention_probs_dropout_prob
        return merge_heads(_in_blocks(plan.mask, (query, key, value), terms, words, rate, compute)), None
    scaled, at = query * config.head_size**-0.5, plan.query_positions
    plan = plan.with_bias(blocks.position_scores(scaled, key, *terms, at, compute))
    context, probabilities = by_xla(plan, query, key, value, config, words, compute)
    return merge_heads(context), probabilities


def _scaled(
    query: jax.Array, positions: PositionTerms, length: int, config: BertConfig
) -> tuple[jax.Array, tuple[jax.Array | None, jax.Array | None, np.ndarray]]:
    """Scale queries and position queries for the number of products; return the queries, both tables and their rows.

    Tables and rows are arguments of `blocks.position_scores`.
    """
    part = _attention(config)
    scale = (1 + len(part.pos_att_type)) ** -0.5
    position_key, position_query = positions
    if position_query is not None:
        position_query *= config.head_size**-0.5 * scale
    most = part.max_relative_positions or config.max_position_embeddings
    # A symbolic length (`jax.export`) is at most the model's positions.
    longest = length if isinstance(length, int) else config.max_position_embeddings
    rows = blocks.distance_rows(
        longest, part.relative_span(config.max_position_embeddings), part.position_buckets, most
    )
    return query * scale, (position_key, position_query, rows)


def _in_blocks(
    mask: AttentionMask,
    projected: tuple[jax.Array, ...],  # query, key, value [B, N, S, H]
    terms: tuple[jax.Array | None, jax.Array | None, np.ndarray],  # the result of `_scaled`
    words: jax.Array | None,
    rate: float,
    compute: Compute,
) -> jax.Array:
    *tables, rows = terms

    def run(ids, projected, tables, words):
        (query_ids, key_ids), (query, key, value), (position_key, position_query) = ids, projected, tables
        mask_of_device = AttentionMask(query_ids, key_ids, mask.window)
        return blocks.attention_in_blocks(
            mask_of_device, query, key, value, position_key, position_query, rows, words, rate, compute
        )

    # Each device runs by itself; otherwise the compiler would sum the tables' gradients over devices in every block.
    heads = ("batch", "heads", None, None)
    run = mapped(run, (("batch", None), heads, (None, "heads", None), ("batch", "heads", None)), heads)
    return run((mask.query_ids, mask.key_ids), projected, tuple(tables), words)


def _fused(
    mask: AttentionMask,
    projected: tuple[jax.Array, ...],  # query, key, value [B, S, N * H]
    positions: PositionTerms,
    config: BertConfig,
    words: jax.Array | None,
    compute: Compute,
) -> jax.Array:
    query, key, value = projected
    batch, length, size = query.shape
    form, words = fused_form(mask, config, batch, words, compute)
    query, terms = _scaled(query, positions, length, config)
    tables = [
        jnp.zeros((2 * length, size), query.dtype) if table is None else table.reshape(2 * length, size)
        for table in blocks.laid_out(*terms)
    ]
    form = dataclasses.replace(form, strided=fused.rotates_by_row(device_kind()))
    rows, columns, by_head = ("batch", None), ("batch", None, "heads"), ("batch", "heads", None)
    run = mapped(
        functools.partial(fused.fused_disentangled_attention, form),
        (*[columns] * 3, *[(None, "heads")] * 2, rows, rows, by_head),
        columns,
    )
    return run(query, key, value, *tables, *mask.ids(batch, length), words)


class RelativeEmbeddings(Embedding):
    """The embeddings of relative positions of disentangled attention, `[R, D]`, with an optional LayerNorm."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        part = _attention(config)
        super().__init__(config, 2 * part.relative_span(config.max_position_embeddings), config.hidden_size, rngs=rngs)
        if part.norm_rel_ebd:
            self.layer_norm = LayerNorm(config, config.hidden_size)

    def rows(self) -> jax.Array:
        """Return all rows, normalised if the model does so."""
        return self.layer_norm(self.table()) if hasattr(self, "layer_norm") else self.table()


class Convolution(nnx.Module):
    """A convolution over the tokens, `[B, S, D] -> [B, S, D]`, as in DeBERTa-v2 (github.com/microsoft/DeBERTa).

    Its output is added to that of the first layer, and a LayerNorm follows. A token sees only tokens that its mask
    shows: no padding, and in packed rows only its own example.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.part = _attention(config)
        shape = (self.part.conv_kernel_size, config.hidden_size, config.hidden_size)  # [K, in, out]
        self.kernel = nnx.Param(initializer(config)(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros((config.hidden_size,), jnp.float32))
        self.layer_norm = LayerNorm(config, config.hidden_size)

    def __call__(
        self,
        x: jax.Array,  # [B, S, D], the embeddings
        residual: jax.Array,  # [B, S, D], or [B, P, D] with `at`
        mask: AttentionMask,
        dropout_key: jax.Array | None,
        compute: Compute,
        at: Positions | None,
    ) -> jax.Array:
        taps = mask.neighbours(x, self.part.conv_kernel_size // 2)
        y = matmul(jnp.concatenate(taps, axis=-1), self.kernel[...].reshape(-1, x.shape[-1]), compute)
        y += self.bias[...].astype(y.dtype)
        y = ACTIVATIONS[self.part.conv_act](dropout(y, self.config.hidden_dropout_prob, dropout_key))
        return self.layer_norm(residual + (y if at is None else at.of(y)))


@dataclasses.dataclass(frozen=True)
class Disentangled(Beside):
    """The embeddings of relative positions, which all layers read."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"relative_embeddings": RelativeEmbeddings(config, rngs=rngs)}

    def plan(self, encoder: Any, plan: AttentionPlan, length: int, position_ids: jax.Array | None) -> AttentionPlan:
        return dataclasses.replace(plan, extra=encoder.relative_embeddings.rows())


@dataclasses.dataclass(frozen=True)
class Convolving(Beside):
    """The convolution over the embeddings, in parallel with the first layer."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"conv": Convolution(config, rngs=rngs)}

    def first(self, encoder: Any, step: Step, inputs: FirstInputs) -> Step:
        it, key = inputs, inputs.dropout_key
        if key is not None:
            key = jax.random.fold_in(key, encoder.config.num_hidden_layers)

        def run(x: jax.Array, layer: Any) -> tuple[jax.Array, Any]:
            y, (state, *others) = step(x, layer)
            y = encoder.conv(it.x, y, it.plan.mask, key, it.compute, it.at)
            return y, (None if state is None else y, *others)

        return run
