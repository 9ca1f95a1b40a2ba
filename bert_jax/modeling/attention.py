"""Multi-head self-attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2)."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from bert_jax.config import BertConfig
from bert_jax.modeling.attention_plan import AttentionPlan, KindOfAttention
from bert_jax.modeling.backends import attend, split_heads
from bert_jax.modeling.compute import CONTEXT, Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import Dense, LayerNorm
from bert_jax.sharding import constrain

DropoutKeys = tuple[jax.Array | None, jax.Array | None]  # keys for dropout of probabilities and of the output


class SelfAttention(nnx.Module, KindOfAttention):
    """The attention block, `[B, S, D] -> [B, S, D]`: attention, output projection, dropout, residual, LayerNorm.

    With query positions, the output is `[B, P, D]`.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        size, width, narrow = config.inner_size, config.attention_width, config.key_value_width
        dense, key_dense = attention_projections(config, rngs)
        self.query, self.key = dense(size, width), key_dense(size, narrow)
        self.value = dense(config.value_input_size, narrow)
        self.add_projections(rngs)
        self.output = Dense(config, width, size, use_bias=config.attention.attention_bias, rngs=rngs)
        self.layer_norm = LayerNorm(config, size)
        if config.attention.qk_norm:
            self.query_norm, self.key_norm = LayerNorm(config, width), LayerNorm(config, narrow)
        if config.attention.attention_output_norm:
            self.output_norm = LayerNorm(config, size)

    def add_projections(self, rngs: nnx.Rngs) -> None:
        """Create the further projections of a subclass."""

    def attend(
        self,
        x: jax.Array,  # [B, S, D], the normalised input
        plan: AttentionPlan,
        projected: tuple[jax.Array, ...],  # query [B, S or P, N * H]; key, value [B, S, heads of keys * H]
        dropout_keys: DropoutKeys,
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Return the context `[B, S or P, N * H]` and, for xla, the attention probabilities `[B, N, S or P, S]`."""
        return attend(plan, self.split(projected, plan), self.config, dropout_keys[0], compute)

    def split(self, projected: tuple[jax.Array, ...], plan: AttentionPlan) -> tuple[jax.Array, ...]:
        """Return query, key and value as `[B, S or P, heads, H]`."""
        return split_heads(projected, self.config)

    def __call__(
        self,
        x: jax.Array,  # [B, S, D]
        plan: AttentionPlan,
        skip_norm: jax.Array | bool | None,
        dropout_keys: DropoutKeys,
        compute: Compute,
        sources: tuple[jax.Array, jax.Array] | None = None,
    ) -> tuple[jax.Array, jax.Array | None, tuple[jax.Array, ...]]:
        """Return the block's output, for xla the attention probabilities `[B, N, S, S]`, and the projections.

        With `sources`, queries and keys are projections of its first array, and values of its second. `x` is then only
        the residual, and has only the query positions. The projections returned are query, key and value,
        `[B, S, heads * H]`, after their norms and before rotary positions.
        """
        pre = self.config.norms.norm_placement == "pre"
        normed = self.layer_norm(x) if pre else x
        if skip_norm is not None:  # the embeddings have normalised the first layer's input
            normed = jnp.where(skip_norm, x, normed)
        of_keys, of_values = (normed, normed) if sources is None else sources
        queries = of_keys if plan.query_positions is None else plan.query_positions.of(of_keys)
        projected = tuple(
            constrain(project(states, compute), "batch", None, "heads")
            for project, states in ((self.query, queries), (self.key, of_keys), (self.value, of_values))
        )
        if self.config.attention.qk_norm:
            query, key, value = projected
            projected = (self.query_norm(query), self.key_norm(key), value)
        context, probabilities = self.attend(normed, plan, projected, dropout_keys, compute)
        context = checkpoint_name(context, CONTEXT)
        at = plan.query_positions
        x = x if at is None or sources is not None else at.of(x)
        y = dropout(self.output(context, compute), self.config.hidden_dropout_prob, dropout_keys[1], at)
        x += self.output_norm(y + x) if self.config.attention.attention_output_norm else y
        return x if pre else self.layer_norm(x), probabilities, projected


def attention_projections(
    config: BertConfig, rngs: nnx.Rngs
) -> tuple[functools.partial[Dense], functools.partial[Dense]]:
    """Return two constructors of dense layers: for queries and values, and for keys."""
    has_bias, has_key_bias = config.attention.has_bias
    dense = functools.partial(Dense, config, use_bias=has_bias, rngs=rngs)
    return dense, functools.partial(dense, use_bias=has_key_bias)
