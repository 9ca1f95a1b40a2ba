"""The embedding layer: the sum of word, position, token type and task type embeddings, LayerNorm, dropout."""

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.layers import Dense, Embedding, LayerNorm
from bert_jax.modeling.positions import sinusoids
from bert_jax.sharding import constrain

# The share of tokens that ESM's pretraining replaces by the mask token: 80% of 15%.
MASKED_SHARE = 0.15 * 0.8


class Embeddings(nnx.Module):
    """The embedding layer, `input_ids [B, S] -> [B, S, D]`."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.config = config
        width, added = config.embedding_width, config.added_embedding_width
        self.word_embeddings = Embedding(config, config.vocab_size, width, rngs=rngs)
        if config.position_embedding_type == "absolute":
            rows = config.position_offset + config.max_position_embeddings
            self.position_embeddings = Embedding(config, rows, added, rngs=rngs)
        if config.type_vocab_size:
            self.token_type_embeddings = Embedding(config, config.type_vocab_size, added, rngs=rngs)
        if config.task_type_vocab_size:
            self.task_type_embeddings = Embedding(config, config.task_type_vocab_size, added, rngs=rngs)
        after = config.norm_after_projection
        if config.embedding_norm:
            self.layer_norm = LayerNorm(config, config.hidden_size if after else added, config.embedding_mlp_norm_eps)
        if width != config.hidden_size or config.embedding_projection or config.trigram_input:
            read = 3 * width if config.trigram_input else width
            self.projection = Dense(config, read, config.hidden_size, use_bias=not after, rngs=rngs)

    def __call__(
        self,
        inputs: Inputs,
        mask: AttentionMask,
        dropout_key: jax.Array | None,
        compute: Compute,
    ) -> jax.Array:
        """Return the embeddings `[B, S, D]`."""
        input_ids = inputs.input_ids
        x = constrain(self.word_embeddings(input_ids), "batch", "length", "embed")
        if self.config.rescale_embeddings:
            x *= self.config.hidden_size**0.5
        if self.config.token_dropout:
            assert self.config.mask_token_id is not None
            masked = input_ids == self.config.mask_token_id
            kept = 1 - masked_share(masked, mask)  # [B, 1 or S]
            x = jnp.where(masked[..., None], 0, x) * ((1 - MASKED_SHARE) / kept)[..., None]
        if self.config.word_projection:
            x = self._projected(trigrams(x, mask) if self.config.trigram_input else x, compute)
        if self.config.position_embedding_type in ("absolute", "sinusoidal"):
            x += self._positions(inputs.position_ids, input_ids)
        if self.config.type_vocab_size:
            x += _looked_up(self.token_type_embeddings, inputs.token_type_ids)
        if self.config.task_type_vocab_size:
            x += _looked_up(self.task_type_embeddings, inputs.task_type_ids)
        if self.config.norm_after_projection:
            x = self._projected(x, compute)
        if hasattr(self, "layer_norm"):
            x = self.layer_norm(x)
        x = constrain(x.astype(compute.activation_dtype), "batch", "length", "embed")
        x = dropout(x, self.config.hidden_dropout_prob, dropout_key)
        done = self.config.norm_after_projection or self.config.word_projection
        return x if done else self._projected(x, compute)

    def _projected(self, x: jax.Array, compute: Compute) -> jax.Array:
        if not hasattr(self, "projection"):
            return x
        return constrain(self.projection(x, compute), "batch", "length", "embed")

    def _positions(self, position_ids: jax.Array | None, input_ids: jax.Array) -> jax.Array:
        offset = self.config.position_offset
        if self.config.position_embedding_type == "absolute":
            table = self.position_embeddings.table()
        else:
            table = jnp.asarray(sinusoids(self.config.max_position_embeddings, self.config.added_embedding_width))
        if position_ids is not None:
            return table[position_ids + offset]
        if not offset:
            return table[: input_ids.shape[1]]
        # As in RoBERTa: positions count only tokens, and padding takes the row before the first position.
        is_token = (input_ids != self.config.pad_token_id).astype(jnp.int32)
        return table[jnp.cumsum(is_token, axis=1) * is_token + offset - 1]


def trigrams(x: jax.Array, mask: AttentionMask) -> jax.Array:
    """Return the embeddings of the next token, the token itself and the previous token, `[B, S, E] -> [B, S, 3 E]`.

    They are 0 outside the row, for other examples in packed rows, and for padding, which so changes no output.
    """
    previous, own, following = mask.neighbours(x, 1)
    return jnp.concatenate((following, own, previous), axis=-1)


def masked_share(masked: jax.Array, mask: AttentionMask) -> jax.Array:
    """Return the share of masked tokens in each example, `[B, 1]`, or `[B, S]` for packed rows."""
    if mask.key_ids is None:
        return masked.mean(axis=-1, keepdims=True, dtype=jnp.float32)
    if mask.query_ids is None:  # one example per row
        return masked.sum(-1, keepdims=True) / jnp.maximum(mask.key_ids.sum(-1, keepdims=True), 1)
    numbers, most = mask.key_ids, masked.shape[1] + 1  # numbers of examples

    def of_row(values: jax.Array, numbers: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, numbers, most)[numbers]

    tokens = jax.vmap(of_row)(jnp.ones(masked.shape, jnp.float32), numbers)
    return jax.vmap(of_row)(masked.astype(jnp.float32), numbers) / tokens


def _looked_up(embedding: Embedding, ids: jax.Array | None) -> jax.Array:
    """Return the rows `[B, S, E]` of a table of a few rows; row 0, `[E]`, for all tokens if `ids` is None."""
    rows = embedding.table()
    if ids is None or len(rows) == 1:
        return rows[0]
    # A product with a one-hot matrix: a gather from few rows has a slow, serial gradient.
    return jnp.dot(jax.nn.one_hot(ids, len(rows)), rows, precision=jax.lax.Precision.HIGHEST)
