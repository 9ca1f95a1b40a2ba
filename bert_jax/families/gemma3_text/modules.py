"""The modules of Gemma 3 (Gemma Team 2025, arXiv:2503.19786, section 2)."""

import math
from typing import Any

import jax
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.part import expect
from bert_jax.families.gemma3_text.parts import GemmaAttentionConfig
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.gated import GatedFeedForward
from bert_jax.modeling.head_norms import NormedRotaryAttention
from bert_jax.modeling.layers import Dense, LayerNorm


class NormedDense(Dense):
    """A dense layer whose output has a norm, `[..., in] -> [..., out]`."""

    def __init__(self, config: BertConfig, features_in: int, features_out: int, **options: Any):
        super().__init__(config, features_in, features_out, **options)
        self.layer_norm = LayerNorm(config, features_out)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return self.layer_norm(super().__call__(x, compute))


class GemmaAttention(NormedRotaryAttention):
    """Rotary attention with norms of heads and of the output, and a scale of its own for scores."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        has_bias = config.attention.attention_bias
        self.output = NormedDense(config, config.attention_width, config.hidden_size, use_bias=has_bias, rngs=rngs)

    def split(self, projected: tuple[jax.Array, ...], plan: AttentionPlan) -> tuple[jax.Array, ...]:
        query, key, value = super().split(projected, plan)
        scalar = expect(self.config.attention, GemmaAttentionConfig).query_pre_attn_scalar
        return query * math.sqrt(self.config.head_size / scalar), key, value  # the backends divide by the root of H


class NormedGatedFeedForward(GatedFeedForward):
    """A gated feed-forward block whose output has a norm."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs, epsilon: float | None = None):
        super().__init__(config, rngs=rngs, epsilon=epsilon)
        has_bias = config.feed_forward.mlp_bias
        self.down = NormedDense(config, config.intermediate_size, config.hidden_size, use_bias=has_bias, rngs=rngs)
