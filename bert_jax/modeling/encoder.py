"""The encoder: layers stacked on a leading axis, scanned or unrolled."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.attention import Attending, SelfAttention
from bert_jax.modeling.compute import Compute, checkpointed
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import ACTIVATIONS, Dense, LayerNorm
from bert_jax.sharding import constrain


class FeedForward(nnx.Module):
    """`x [B, S, D] -> [B, S, D]`: up to F, activation, down, dropout, residual, LayerNorm."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.up = Dense(config, config.hidden_size, config.intermediate_size, rngs=rngs)
        self.down = Dense(config, config.intermediate_size, config.hidden_size, rngs=rngs)
        self.layer_norm = LayerNorm(config, config.hidden_size)

    def __call__(self, x: jax.Array, dropout_key: jax.Array | None, compute: Compute) -> jax.Array:
        y = constrain(self.up(x, compute), "batch", None, "mlp")
        y = self.down(ACTIVATIONS[self.config.hidden_act](y), compute)
        return self.layer_norm(x + dropout(y, self.config.hidden_dropout_prob, dropout_key))


class EncoderLayer(nnx.Module):
    """One post-LayerNorm transformer layer."""

    def __init__(self, config: BertConfig, rngs: nnx.Rngs):
        self.attention = SelfAttention(config, rngs=rngs)
        self.mlp = FeedForward(config, rngs=rngs)

    def __call__(
        self, x: jax.Array, how: Attending, dropout_key: jax.Array | None, compute: Compute
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns `[B, S, D]` and, where they are at hand, the attention probabilities `[B, N, S, S]`."""
        keys = (None, None, None) if dropout_key is None else jax.random.split(dropout_key, 3)
        x, probabilities = self.attention(x, how, (keys[0], keys[1]), compute)
        x = constrain(x, "batch", "length", "embed")
        x = self.mlp(x, keys[2], compute)
        return constrain(x, "batch", "length", "embed"), probabilities


class Encoder(nnx.Module):
    """`x [B, S, D] -> [B, S, D]` through `num_hidden_layers` layers, whose parameters are stacked `[L, ...]`."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.num_layers = config.num_hidden_layers

        @nnx.split_rngs(splits=config.num_hidden_layers)
        @nnx.vmap(in_axes=0, out_axes=0)
        def stacked(rngs: nnx.Rngs) -> EncoderLayer:
            return EncoderLayer(config, rngs)

        self.layers = stacked(rngs)

    def __call__(
        self,
        x: jax.Array,  # [B, S, D]
        how: Attending,
        dropout_key: jax.Array | None,
        compute: Compute,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> tuple[jax.Array, tuple[jax.Array, ...] | None, tuple[jax.Array, ...] | None]:
        """Returns the last hidden state, all `L + 1` hidden states and all `L` attention maps, or None for these."""
        layer_graph, layers = nnx.split(self.layers)
        keys = None if dropout_key is None else jax.random.split(dropout_key, self.num_layers)

        def body(x, layer_and_key):
            layer, key = layer_and_key
            y, probabilities = nnx.merge(layer_graph, layer)(x, how, key, compute)
            return y, (y if output_hidden_states else None, probabilities if output_attentions else None)

        body = checkpointed(body, compute)
        first = x
        if compute.layers == "scan":
            x, (states, attentions) = jax.lax.scan(body, x, (layers, keys))
        else:
            states, attentions = [], []
            for layer in zip(
                _unstack(self.num_layers, layers), keys if keys is not None else [None] * self.num_layers, strict=True
            ):
                x, (state, attention) = body(x, layer)
                states.append(state)
                attentions.append(attention)
        return (
            x,
            (first, *states) if output_hidden_states else None,
            tuple(attentions) if output_attentions else None,
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unstack(length: int, tree):
    """A list of `length` trees from one with stacked leaves; its gradient stacks, where indexing's pads and adds."""
    return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(length)]


_unstack.defvjp(
    lambda length, tree: (_unstack(length, tree), None),
    lambda length, _, cotangents: (jax.tree.map(lambda *leaves: jnp.stack(leaves), *cotangents),),
)
