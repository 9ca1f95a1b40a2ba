"""The embedding layer: the sum of word, position and token type embeddings, LayerNorm, dropout."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.layers import Embedding, LayerNorm
from bert_jax.modeling.positions import sinusoids
from bert_jax.sharding import constrain


class Embeddings(nnx.Module):
    """The embedding layer, `input_ids [B, S] -> [B, S, D]`; families override its methods."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config, width = config, config.embeddings.added_width(config.hidden_size)
        self.word_embeddings = Embedding(config, config.vocab_size, config.embedding_width, rngs=rngs)
        if config.positions.kind == "absolute":
            rows = config.positions.position_offset + config.max_position_embeddings
            self.position_embeddings = Embedding(config, rows, width, rngs=rngs)
        if config.type_vocab_size:
            self.token_type_embeddings = Embedding(config, config.type_vocab_size, width, rngs=rngs)
        self.add_modules(rngs)
        if config.embeddings.embedding_norm:
            width = config.embeddings.norm_width(config.hidden_size)
            self.layer_norm = LayerNorm(config, width, config.norms.embedding_mlp_norm_eps)

    def add_modules(self, rngs: nnx.Rngs) -> None:
        """Create the further modules of a subclass."""

    def __call__(
        self,
        inputs: Inputs,
        mask: AttentionMask,
        dropout_key: jax.Array | None,
        compute: Compute,
    ) -> jax.Array:
        """Return the embeddings `[B, S, D]`."""
        x = self.words(inputs.input_ids, mask, compute)
        for embedding in self.added_embeddings(inputs):
            x += embedding
        x = self.before_norm(x, compute)
        if hasattr(self, "layer_norm"):
            x = self.layer_norm(x)
        x = constrain(x.astype(compute.activation_dtype), "batch", "length", "embed")
        return self.after_dropout(dropout(x, self.config.hidden_dropout_prob, dropout_key), compute)

    def words(self, input_ids: jax.Array, mask: AttentionMask, compute: Compute) -> jax.Array:
        """Return the embeddings of words, `[B, S] -> [B, S, E]`."""
        return constrain(self.word_embeddings(input_ids), "batch", "length", "embed")

    def added_embeddings(self, inputs: Inputs) -> Iterator[jax.Array]:
        """Yield the embeddings that are added to those of words, each `[B or 1, S or 1, E]` or with fewer axes."""
        if self.config.positions.kind == "sinusoidal":
            width = self.config.embeddings.added_width(self.config.hidden_size)
            yield self.of_positions(jnp.asarray(sinusoids(self.config.max_position_embeddings, width)), inputs)
        elif self.config.positions.kind == "absolute":
            yield self.of_positions(self.position_embeddings.table(), inputs)
        if self.config.type_vocab_size:
            yield looked_up(self.token_type_embeddings, inputs.token_type_ids)

    def of_positions(self, table: jax.Array, inputs: Inputs) -> jax.Array:
        """Look up the positions of the inputs in a table: `[B, S, E]` or `[S, E]`."""
        input_ids, offset = inputs.input_ids, self.config.positions.position_offset
        if inputs.position_ids is not None:
            return table[inputs.position_ids + offset]
        if not offset:
            return table[: input_ids.shape[1]]
        # Positions count only tokens, and padding takes the row before the first position.
        is_token = (input_ids != self.config.pad_token_id).astype(jnp.int32)
        return table[jnp.cumsum(is_token, axis=1) * is_token + offset - 1]

    def before_norm(self, x: jax.Array, compute: Compute) -> jax.Array:
        """Return the input of the LayerNorm."""
        return x

    def after_dropout(self, x: jax.Array, compute: Compute) -> jax.Array:
        """Return the input of the encoder."""
        return x


def looked_up(embedding: Embedding, ids: jax.Array | None) -> jax.Array:
    """Look up rows `[B, S, E]` in a small table; if `ids` is None, return row 0, `[E]`, for all tokens."""
    rows = embedding.table()
    if ids is None or len(rows) == 1:
        return rows[0]
    # A product with a one-hot matrix: a gather from few rows has a slow, serial gradient.
    return jnp.dot(jax.nn.one_hot(ids, len(rows)), rows, precision=jax.lax.Precision.HIGHEST)
