"""A bias of attention scores for each range of distances (Raffel et al. 2019, arXiv:1910.10683, section 2.1)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.distance_bias import DistanceBiasConfig
from bert_jax.config.part import expect
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.layers import Embedding
from bert_jax.modeling.stack import Beside


def distance_buckets(length: int, buckets: int, longest: int) -> np.ndarray:
    """Return the bucket `[S, S]` of the distance from each query to each key.

    Half of the buckets are for keys after the query. In each half, the first buckets hold one distance each; the others
    hold ranges that grow by a constant factor up to the distance `longest`, and the last holds all larger distances.
    """
    distance = np.arange(length)[None] - np.arange(length)[:, None]
    half, exact = buckets // 2, buckets // 4
    far = np.log(np.maximum(abs(distance), 1).astype(np.float32) / exact) / np.float32(np.log(longest / exact))
    far = exact + (far * (half - exact)).astype(np.int32)
    return np.where(distance > 0, half, 0) + np.where(abs(distance) < exact, abs(distance), np.minimum(far, half - 1))


@dataclasses.dataclass(frozen=True)
class DistanceBias(Beside):
    """A bias for each bucket of distances and each head, which all layers share."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        buckets = expect(config.positions, DistanceBiasConfig).relative_attention_buckets
        return {"relative_attention_bias": Embedding(config, buckets, config.num_attention_heads, rngs=rngs)}

    def plan(self, encoder: Any, plan: AttentionPlan, length: int, position_ids: jax.Array | None) -> AttentionPlan:
        return with_distance_bias(plan, encoder.relative_attention_bias.table(), encoder.config, length)


def with_distance_bias(plan: AttentionPlan, table: jax.Array, config: BertConfig, length: int) -> AttentionPlan:
    """Return the plan with the biases of a table `[buckets, N]` for all distances in a row of S tokens."""
    # A symbolic length (`jax.export`) is at most the model's positions.
    rows = length if isinstance(length, int) else config.max_position_embeddings
    longest = expect(config.positions, DistanceBiasConfig).longest_distance
    buckets = jnp.asarray(distance_buckets(rows, len(table), longest))[None, :length, :length]
    if plan.query_positions is not None:
        buckets = plan.query_positions.of(buckets)
    return plan.with_bias(table[buckets].transpose(0, 3, 1, 2))
