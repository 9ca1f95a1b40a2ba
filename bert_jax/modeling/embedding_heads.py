"""The heads of dense embeddings: a vector for a text, or a vector for each token."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.values import EmbeddingLayer
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import ACTIVATIONS, Dense, LayerNorm
from bert_jax.modeling.pooling import l2_normalize
from bert_jax.modeling.task_heads import Head, HeadInputs, Outputs, Read

_LAYER_ACTIVATIONS = ACTIVATIONS | {
    "identity": lambda x: x,
    "elu": jax.nn.elu,
    "softplus": jax.nn.softplus,
}


class _Projection(nnx.Module):
    """The parameters of one of `config.embedding_layers`: a LayerNorm, or a dense layer with optional residual."""

    def __init__(self, config: BertConfig, layer: EmbeddingLayer, *, rngs: nnx.Rngs):
        if layer.kind == "layer_norm":  # uses PyTorch's default epsilon, unlike the encoder's LayerNorms
            plain = config.replace(norm="layer_norm", norm_bias=True, layer_norm_eps=1e-5)
            self.layer_norm = LayerNorm(plain, layer.features)
            return
        self.dense = Dense(config, layer.inputs, layer.features, use_bias=layer.bias, rngs=rngs)
        if layer.residual and layer.inputs != layer.features:
            self.residual = Dense(config, layer.inputs, layer.features, use_bias=False, rngs=rngs)


class EmbeddingLayers(nnx.Module):
    """The layers after pooling in a sentence embedding model, `[..., pooled] -> [..., D]`, in float32."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        for number, layer in enumerate(config.embedding_layers):
            if layer.kind in ("dense", "layer_norm"):
                setattr(self, f"layer_{number}", _Projection(config, layer, rngs=rngs))

    def __call__(self, x: jax.Array, config: BertConfig, compute: Compute, key: jax.Array | None) -> jax.Array:
        # In float32, as in all heads, since these products are small.
        exact = Compute(platform=compute.platform)
        for number, layer in enumerate(config.embedding_layers):
            part: Any = getattr(self, f"layer_{number}", None)
            match layer.kind:
                case "dense":
                    y = _LAYER_ACTIVATIONS[layer.activation](part.dense(x, exact))
                    if layer.residual:
                        y = y + (part.residual(x, exact) if hasattr(part, "residual") else x)
                    x = y
                case "layer_norm":
                    x = part.layer_norm(x)
                case "normalize":
                    x = l2_normalize(x)
                case "dropout":
                    x = dropout(x, layer.rate, None if key is None else jax.random.fold_in(key, number))
        return x


class MultiVectorHead(Head):
    """A vector for each token, of unit length if the config says so."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"embedding_layers": EmbeddingLayers(config, rngs=rngs)} if config.embedding_layers else {}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        return {"token_embeddings": self.layered(encoded, encoded.states.astype(jnp.float32))}

    def layered(self, encoded: HeadInputs, x: jax.Array) -> jax.Array:
        """Apply the layers of the head, `[..., D] -> [..., E]`."""
        if hasattr(encoded.module, "embedding_layers"):
            x = encoded.module.embedding_layers(x, encoded.config, encoded.compute, encoded.dropout_key)
        return l2_normalize(x) if encoded.config.normalize_embeddings else x


class SentenceEmbeddingHead(MultiVectorHead):
    """A vector for the text: the token vectors are pooled, then the layers of the head follow."""

    def positions_read(self, config: BertConfig) -> Read | None:
        of_first = config.pooling == "cls" and not config.pooling_skip
        return Read(first=True, masked=False) if of_first else None

    def __call__(self, encoded: HeadInputs) -> Outputs:
        pooled = encoded.pool(encoded.states, encoded.config.poolings, encoded.config.pooling_skip)
        return {"sentence_embedding": self.layered(encoded, pooled)}
