"""The dense layer between an encoder and a decoder of different widths."""

import jax
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.spec import Params


def init_projection(features: int, config: BertConfig, key: jax.Array) -> Params:
    """Initialise the layer that maps states of width `features` to the width of a decoder."""
    dense = Dense(config, features, config.hidden_size, rngs=nnx.Rngs(params=key))
    return nnx.to_pure_dict(nnx.state(dense))


def project(params: Params, states: jax.Array, config: BertConfig, compute: Compute) -> jax.Array:
    """Return the encoder's states `[B, S, E]` as states of the decoder's width, `[B, S, D]`."""

    def layer() -> Dense:
        return Dense(config, states.shape[-1], config.hidden_size, rngs=nnx.Rngs(params=jax.random.key(0)))

    graph, state = nnx.split(nnx.eval_shape(layer))
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)(states, compute)
