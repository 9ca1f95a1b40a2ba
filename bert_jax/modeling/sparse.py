"""SPLADE: sparse embeddings from masked-LM logits, without ever holding all logits."""

import jax
import jax.numpy as jnp

from bert_jax.modeling.compute import Compute, matmul
from bert_jax.modeling.losses import number_of_parts
from bert_jax.sharding import constrain, join_rows, split_rows


def splade(
    x: jax.Array,  # [B, S, E]
    attention_mask: jax.Array,  # [B, S]
    table: jax.Array,  # [V, E]
    bias: jax.Array,  # [V]
    pooling: str,
    compute: Compute,
) -> jax.Array:
    """Pool the logits `x @ table.T + bias` of tokens to weights of the vocabulary, float32 `[B, V]`, none negative.

    The weight of a logit is log(1 + relu(logit)) (Formal et al. 2021, arXiv:2107.05720, section 3.2), summed over the
    tokens of a text, or their maximum (arXiv:2109.10086, section 3.1). A second logarithm makes weights sparser (Geng
    et al. 2025, arXiv:2411.04403).

    Logits exist for only some rows at a time, and are computed again in the backward pass. CPUs compute all rows at
    once, which is faster there.

    Args:
        x: token vectors after the transform of the masked-LM head.
        attention_mask: 1 for tokens, 0 for padding.
        table: the output matrix.
        bias: a bias for each token of the vocabulary.
        pooling: one of `bert_jax.config.values.SPLADE_POOLINGS`; any other pooling means `splade_max`.
        compute: dtype and platform.
    """
    table = constrain(table, "vocab", None)  # gathered once, before the loop; float32, as its gradient is a float32 sum
    summed, twice = "sum" in pooling, pooling.endswith("log1p")

    def weights(logits: jax.Array) -> jax.Array:
        saturated = jnp.log1p(jax.nn.relu(logits))
        return jnp.log1p(saturated) if twice else saturated

    @jax.checkpoint
    def part(_: None, rows: tuple[jax.Array, jax.Array]) -> tuple[None, jax.Array]:
        x, mask = rows
        logits = matmul(x, table, compute, transposed=True, dtype=jnp.float32) + bias
        logits = constrain(jnp.where(mask[..., None] > 0, logits, 0.0), "batch", None, "vocab")
        # The weight grows with the logit, so the greatest logit has the greatest weight.
        return None, weights(logits).sum(axis=1) if summed else weights(logits.max(axis=1))

    rows, length = attention_mask.shape
    parts = 1 if compute.on_cpu or not isinstance(rows, int) else number_of_parts(rows, length)
    split = jax.tree.map(lambda array: split_rows(array, parts), (x, attention_mask))
    return join_rows(jax.lax.scan(part, None, split, unroll=parts == 1)[1])
