"""Token ids to vectors: word, position and segment embeddings summed, normalised, dropped out."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import Embedding, LayerNorm
from bert_jax.sharding import constrain


def sinusoids(length: int, features: int) -> np.ndarray:
    """Fixed position embeddings `[length, features]`: sines in the even columns, cosines in the odd ones.

    Vaswani et al. 2017 (arXiv:1706.03762), section 3.5.
    """
    angles = np.arange(length)[:, None] / 10000 ** (2 * (np.arange(features) // 2) / features)[None]
    return np.where(np.arange(features) % 2 == 0, np.sin(angles), np.cos(angles)).astype(np.float32)


class Embeddings(nnx.Module):
    """`input_ids [B, S] -> [B, S, D]`."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.word_embeddings = Embedding(config, config.vocab_size, rngs=rngs)
        if config.position_embedding_type == "absolute":
            self.position_embeddings = Embedding(config, config.max_position_embeddings, rngs=rngs)
        self.token_type_embeddings = Embedding(config, config.type_vocab_size, rngs=rngs)
        self.layer_norm = LayerNorm(config, config.hidden_size)

    def __call__(
        self,
        input_ids: jax.Array,  # [B, S]
        token_type_ids: jax.Array | None,  # [B, S]
        position_ids: jax.Array | None,  # [B, S]
        dropout_key: jax.Array | None,
        compute: Compute,
    ) -> jax.Array:
        # A table gathered over fsdp: lookups in a split hidden axis would have to be replicated to change their split.
        words = constrain(self.word_embeddings.embedding[...], "vocab", None)
        x = constrain(words[input_ids], "batch", "length", "embed")
        x += self._positions(position_ids, input_ids.shape[1])
        types = self.token_type_embeddings.embedding[...]
        if token_type_ids is None:
            x += types[0]
        else:
            # A product with a one-hot matrix: a gather from two rows has a slow, serial gradient.
            x += jnp.dot(jax.nn.one_hot(token_type_ids, types.shape[0]), types, precision=jax.lax.Precision.HIGHEST)
        x = constrain(self.layer_norm(x).astype(compute.activation_dtype), "batch", "length", "embed")
        return dropout(x, self.config.hidden_dropout_prob, dropout_key)

    def _positions(self, position_ids: jax.Array | None, length: int) -> jax.Array:
        if self.config.position_embedding_type == "absolute":
            table = self.position_embeddings.embedding[...]
        else:
            table = jnp.asarray(sinusoids(self.config.max_position_embeddings, self.config.hidden_size))
        return table[:length] if position_ids is None else table[position_ids]
