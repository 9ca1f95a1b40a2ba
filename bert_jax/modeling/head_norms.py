"""Norms of the query and the key of each attention head, before rotary positions."""

import jax
from flax import nnx

from bert_jax.modeling.attention import SelfAttention
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.layers import LayerNorm
from bert_jax.modeling.rotary import RotaryAttention


class HeadNorms(SelfAttention):
    """Attention with a norm of the query and of the key of each head."""

    def add_projections(self, rngs: nnx.Rngs) -> None:
        self.query_norm = LayerNorm(self.config, self.config.head_size)
        self.key_norm = LayerNorm(self.config, self.config.head_size)

    def split(self, projected: tuple[jax.Array, ...], plan: AttentionPlan) -> tuple[jax.Array, ...]:
        query, key, value = super().split(projected, plan)
        return self.query_norm(query), self.key_norm(key), value


class NormedRotaryAttention(RotaryAttention, HeadNorms):
    """Rotary attention with norms of each head's query and key, which come before the rotation."""
