"""The decoder of a denoising autoencoder, which reconstructs a text from its sentence embedding (Wang et al. 2021,
arXiv:2104.06979, section 3).

Its embeddings and layers are those of the encoder. Each layer has a causal attention mask, and a cross-attention block
of its own between self-attention and feed-forward block. Cross-attention attends to one vector, with probability 1, so
it needs no queries and keys.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.layers import LayerConfig, StackConfig
from bert_jax.errors import InputError
from bert_jax.lazy import import_object
from bert_jax.modeling.attention_mask import MASKED, AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.compute import Compute, checkpointed
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.forward import merge_params
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.layers import Dense, LayerNorm
from bert_jax.modeling.models import Bert
from bert_jax.modeling.spec import Params
from bert_jax.sharding import constrain


class CrossAttention(nnx.Module):
    """Attention to one vector `[B, E]`, `[B, S, D] -> [B, S, D]`: values, output, dropout, residual, LayerNorm."""

    def __init__(self, config: BertConfig, rngs: nnx.Rngs):
        self.config = config
        dense = functools.partial(Dense, config, use_bias=config.attention.attention_bias, rngs=rngs)
        self.value = dense(config.sentence_embedding_size, config.attention_width)
        self.output = dense(config.attention_width, config.hidden_size)
        self.layer_norm = LayerNorm(config, config.hidden_size)

    def __call__(
        self, x: jax.Array, vectors: jax.Array, keys: tuple[jax.Array | None, jax.Array | None], compute: Compute
    ) -> jax.Array:
        """Return the block's output; `keys` are the dropout keys for the probabilities and for the output."""
        config = self.config
        values = self.value(vectors.astype(compute.activation_dtype), compute)  # [B, N * H]
        heads = values.reshape(len(values), 1, config.num_attention_heads, -1)
        probabilities = jnp.ones((*x.shape[:2], config.num_attention_heads), x.dtype)  # [B, S, N]
        probabilities = dropout(probabilities, config.attention_probs_dropout_prob, keys[0])
        context = (probabilities[..., None] * heads).reshape(*x.shape[:2], -1)
        return self.layer_norm(x + dropout(self.output(context, compute), config.hidden_dropout_prob, keys[1]))


class _Decoder(nnx.Module):
    """The parameters of the decoder that are not the encoder's."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        @nnx.split_rngs(splits=config.num_hidden_layers)
        @nnx.vmap(in_axes=0, out_axes=0)
        def stacked(rngs: nnx.Rngs) -> CrossAttention:
            return CrossAttention(config, rngs)

        self.cross_attention = stacked(rngs)
        self.mlm = import_object(config.heads.masked_lm())(config, rngs=rngs)


def check_reconstruction(config: BertConfig) -> None:
    """Raise InputError when a model's layers cannot be those of a decoder."""
    expected = (
        ("norm_placement", "post"), ("stack", StackConfig()), ("relative_attention_buckets", 0), ("local_window", None),
        ("first_layer_norm", True), ("position_embedding_type", "absolute"), ("trigram_input", False),
        ("layer", LayerConfig()),
    )  # fmt: skip
    values = config.settings() | config.parts
    for name, value in expected:
        if (actual := values.get(name)) != value and (actual or value):
            raise InputError(
                f"config.model.{name}: expected {value} for a decoder with the same layers, found {actual}"
            )


def init_decoder(config: BertConfig, key: jax.Array) -> Params:
    """Initialise the parameters of the decoder that are not the encoder's: `cross_attention` and `mlm`."""
    return nnx.to_pure_dict(nnx.state(_Decoder(config, rngs=nnx.Rngs(params=key))))


def reconstruction_losses(
    bert: Bert,
    params: Params,
    decoder: Params,
    vectors: jax.Array,
    input_ids: jax.Array,
    labels: jax.Array,
    dropout_key: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """Return the cross entropy of each token of a text given the tokens before it and the text's vector.

    Args:
        bert: the encoder, of any head.
        params: its parameters.
        decoder: the parameters of `init_decoder`.
        vectors: sentence embeddings `[B, E]`.
        input_ids: each text's tokens except the last, `[B, S]`.
        labels: each text's tokens except the first, `[B, S]`.
        dropout_key: None means no dropout.

    Returns:
        The losses, and 1 where a token has the greatest logit; both float32 `[B, S]`.
    """
    module, decoder_module = merge_params(bert, params), _merged(bert.config, decoder)
    config, compute = bert.config, bert.compute
    keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
    x = module.embeddings(Inputs(input_ids), AttentionMask(), keys[0], compute)
    place = jnp.arange(input_ids.shape[1])
    causal = jnp.where(place[:, None] >= place, 0.0, MASKED).astype(jnp.float32)[None, None]
    plan = AttentionPlan("xla", AttentionMask(), causal)
    layer_graph, layers = nnx.split(module.encoder.layers)
    cross_graph, blocks = nnx.split(decoder_module.cross_attention)

    def run(x: jax.Array, stacked: tuple[Any, ...]) -> tuple[jax.Array, None]:
        layer, block = nnx.merge(layer_graph, stacked[0]), nnx.merge(cross_graph, stacked[1])
        of_layer = (None,) * 5 if stacked[2] is None else jax.random.split(stacked[2], 5)
        x, _, _ = layer.attention(x, plan, None, (of_layer[0], of_layer[1]), compute)
        x = block(x, vectors, (of_layer[2], of_layer[3]), compute)
        return constrain(layer.mlp(x, of_layer[4], compute), "batch", "length", "embed"), None

    of_layers = None if keys[1] is None else jax.random.split(keys[1], config.num_hidden_layers)
    x, _ = jax.lax.scan(checkpointed(run, compute), x, (layers, blocks, of_layers))
    losses, right = decoder_module.mlm.losses(x, labels, module.embeddings.word_embeddings.table(), compute)
    return losses, right


def _merged(config: BertConfig, decoder: Params) -> _Decoder:
    graph, state = nnx.split(nnx.eval_shape(lambda: _Decoder(config, rngs=nnx.Rngs(params=jax.random.key(0)))))
    nnx.replace_by_pure_dict(state, decoder)
    return nnx.merge(graph, state)
