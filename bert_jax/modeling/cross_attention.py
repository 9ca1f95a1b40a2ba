"""Cross-attention of a decoder to the states of an encoder (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.3)."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.attention_mask import MASKED, AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.backends import attend, split_heads
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import Dense, LayerNorm
from bert_jax.modeling.positions import Positions
from bert_jax.modeling.task_heads import MaskedLM
from bert_jax.sharding import constrain

KeysValues = tuple[jax.Array, jax.Array]  # keys and values, `[B, S, N * H]` each


class DecoderCrossAttention(nnx.Module):
    """The cross-attention block, `[B, T, D] -> [B, T, D]`: attention, output projection, dropout, residual, LayerNorm.

    Queries are projections of the decoder's states; keys and values are projections of the encoder's.
    """

    def __init__(self, config: BertConfig, rngs: nnx.Rngs):
        self.config = config
        size, width = config.hidden_size, config.attention_width
        dense = functools.partial(Dense, config, use_bias=config.attention.attention_bias, rngs=rngs)
        self.query, self.key, self.value = (dense(size, width) for _ in range(3))
        self.output = dense(width, size)
        self.layer_norm = LayerNorm(config, size)

    def project(self, states: jax.Array, compute: Compute) -> KeysValues:
        """Return keys and values of the encoder's states `[B, S, D]`."""
        key, value = (
            constrain(dense(states, compute), "batch", None, "heads") for dense in (self.key, self.value)
        )  # fmt: skip
        return key, value

    def __call__(
        self,
        x: jax.Array,
        projected: KeysValues,
        bias: jax.Array | None,
        keys: tuple[jax.Array | None, jax.Array | None],
        compute: Compute,
    ) -> jax.Array:
        """Return the block's output.

        Args:
            x: the decoder's states `[B, T, D]`.
            projected: keys and values of `project`.
            bias: bias of the scores, `[B, 1, 1, S]`; None = there is no padding.
            keys: dropout keys, for the probabilities and for the output.
            compute: compute options.
        """
        query = constrain(self.query(x, compute), "batch", None, "heads")
        # Queries and keys differ in number, so the plan needs the positions of the queries.
        queries = Positions(jnp.arange(x.shape[1])[None], projected[0].shape[1])
        plan = AttentionPlan("xla", AttentionMask(), bias, query_positions=queries)
        context, _ = attend(plan, split_heads((query, *projected), self.config), self.config, keys[0], compute)
        return self.layer_norm(x + dropout(self.output(context, compute), self.config.hidden_dropout_prob, keys[1]))


def stacked_cross_attention(config: BertConfig, rngs: nnx.Rngs) -> DecoderCrossAttention:
    """Return the cross-attention blocks of all layers, with parameters `[L, ...]`."""

    @nnx.split_rngs(splits=config.num_hidden_layers)
    @nnx.vmap(in_axes=0, out_axes=0)
    def blocks(rngs: nnx.Rngs) -> DecoderCrossAttention:
        return DecoderCrossAttention(config, rngs)

    return blocks(rngs)


def padding_bias(attention_mask: jax.Array | None) -> jax.Array | None:
    """Return the bias `[B, 1, 1, S]` of scores that masks padding; None without a mask."""
    if attention_mask is None:
        return None
    return jnp.where(attention_mask[:, None, None] > 0, 0.0, MASKED).astype(jnp.float32)


class DecoderHead(MaskedLM):
    """The modules that a decoder adds to a BERT: masked-LM head and cross-attention; `EncoderDecoder` applies them."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return super().build(config, rngs) | {"cross_attention": stacked_cross_attention(config, rngs)}
