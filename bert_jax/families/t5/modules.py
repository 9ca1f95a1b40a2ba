"""The attention of T5 (Raffel et al. 2019, arXiv:1910.10683, section 2.1) and UMT5 (2023, arXiv:2304.09151)."""

import math

import jax
from flax import nnx

from bert_jax.config.part import expect
from bert_jax.families.t5.parts import T5PositionsConfig
from bert_jax.modeling.attention import DropoutKeys, SelfAttention
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.distance_bias import with_distance_bias
from bert_jax.modeling.layers import Embedding


class UnscaledAttention(SelfAttention):
    """Attention whose scores are not scaled; in UMT5 each layer has biases of distances."""

    def add_projections(self, rngs: nnx.Rngs) -> None:
        part = expect(self.config.positions, T5PositionsConfig)
        if part.relative_attention_layers:
            buckets, heads = part.relative_attention_buckets, self.config.num_attention_heads
            self.relative_attention_bias = Embedding(self.config, buckets, heads, rngs=rngs)

    def attend(
        self,
        x: jax.Array,
        plan: AttentionPlan,
        projected: tuple[jax.Array, ...],
        dropout_keys: DropoutKeys,
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None]:
        if hasattr(self, "relative_attention_bias"):
            plan = with_distance_bias(plan, self.relative_attention_bias.table(), self.config, x.shape[1])
        return super().attend(x, plan, projected, dropout_keys, compute)

    def split(self, projected: tuple[jax.Array, ...], plan: AttentionPlan) -> tuple[jax.Array, ...]:
        query, key, value = super().split(projected, plan)
        return query * math.sqrt(self.config.head_size), key, value  # the backends divide by this root
