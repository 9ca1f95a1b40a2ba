"""Multi-head self-attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2)."""

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.layers import Dense, LayerNorm, dropout
from bert_jax.sharding import constrain

# Added to the scores of masked keys. Finite: a row whose keys are all masked is a uniform distribution, not NaN.
MASKED = -1e9


def mask_to_bias(attention_mask: jax.Array) -> jax.Array:
    """`[B, S]`, 1 for tokens and 0 for padding -> `[B, 1, 1, S]` float32, to be added to scores."""
    return jnp.where(attention_mask[:, None, None, :] > 0, 0.0, MASKED).astype(jnp.float32)


def attend(
    query: jax.Array,  # [B, N, S, H]
    key: jax.Array,  # [B, N, S, H]
    value: jax.Array,  # [B, N, S, H]
    bias: jax.Array | None,  # [B, 1, 1 or S, S]
    dropout_rate: float,
    dropout_key: jax.Array | None,
    compute: Compute,
) -> tuple[jax.Array, jax.Array]:
    """Scaled dot-product attention: the result `[B, N, S, H]` and the probabilities `[B, N, S, S]`."""
    exact = jax.lax.Precision.HIGHEST if compute.dtype == "float32" else None
    query, key, value = (t.astype(compute.dtype) for t in (query * query.shape[-1] ** -0.5, key, value))
    # The softmax is in float32, and so are the scores that it takes.
    scores = jnp.einsum("bnqh,bnkh->bnqk", query, key, precision=exact, preferred_element_type=jnp.float32)
    if bias is not None:
        scores += bias
    probabilities = jax.nn.softmax(scores, axis=-1)
    dropped = dropout(probabilities, dropout_rate, dropout_key).astype(compute.dtype)
    result = jnp.einsum(
        "bnqk,bnkh->bnqh", dropped, value, precision=exact, preferred_element_type=compute.activation_dtype
    )
    return result, probabilities


def segments_to_bias(segment_ids: jax.Array) -> jax.Array:
    """`[B, S]`, the number of each token's segment -> `[B, 1, S, S]` float32: scores stay within a segment."""
    same = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    return jnp.where(same, 0.0, MASKED).astype(jnp.float32)


class SelfAttention(nnx.Module):
    """`x [B, S, D] -> [B, S, D]`: attention, output projection, dropout, residual, LayerNorm."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        size = config.hidden_size
        self.query = Dense(config, size, size, rngs=rngs)
        self.key = Dense(config, size, size, rngs=rngs)
        self.value = Dense(config, size, size, rngs=rngs)
        self.output = Dense(config, size, size, rngs=rngs)
        self.layer_norm = LayerNorm(config, size)

    def __call__(
        self,
        x: jax.Array,  # [B, S, D]
        bias: jax.Array | None,  # [B, 1, 1 or S, S]
        dropout_keys: tuple[jax.Array | None, jax.Array | None],
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the block's output and the attention probabilities `[B, N, S, S]`."""
        batch, length, size = x.shape
        heads = (batch, length, self.config.num_attention_heads, self.config.head_size)
        query, key, value = (
            constrain(project(x, compute).reshape(heads), "batch", None, "heads", None).swapaxes(1, 2)
            for project in (self.query, self.key, self.value)
        )
        rate = self.config.attention_probs_dropout_prob
        context, probabilities = attend(query, key, value, bias, rate, dropout_keys[0], compute)
        context = constrain(context, "batch", "heads", None, None)  # and its gradient, which so stays by heads
        context = context.swapaxes(1, 2).reshape(batch, length, size)
        y = dropout(self.output(context, compute), self.config.hidden_dropout_prob, dropout_keys[1])
        return self.layer_norm(x + y), probabilities
