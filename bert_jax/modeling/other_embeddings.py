"""What families other than BERT's do in the embedding layer; their config says which of it."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.embeddings import Embeddings, looked_up
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.layers import Dense, Embedding
from bert_jax.modeling.positions import sinusoids
from bert_jax.sharding import constrain

# The share of tokens that ESM's pretraining replaces by the mask token: 80% of 15%.
MASKED_SHARE = 0.15 * 0.8


class OtherEmbeddings(Embeddings):
    """Embeddings that are scaled, dropped out by token, fixed by position, of tasks, or narrow and projected."""

    def add_modules(self, rngs: nnx.Rngs) -> None:
        config = self.config
        width, added = config.embedding_width, config.added_embedding_width
        if config.embeddings.task_type_vocab_size:
            self.task_type_embeddings = Embedding(config, config.embeddings.task_type_vocab_size, added, rngs=rngs)
        if config.projects_embeddings:
            read = 3 * width if config.embeddings.trigram_input else width
            self.projection = Dense(
                config, read, config.hidden_size, use_bias=not config.embeddings.norm_after_projection, rngs=rngs
            )

    def words(self, input_ids: jax.Array, mask: AttentionMask, compute: Compute) -> jax.Array:
        x = super().words(input_ids, mask, compute)
        if self.config.embeddings.rescale_embeddings:
            x *= self.config.hidden_size**0.5
        if self.config.embeddings.token_dropout:
            assert self.config.embeddings.mask_token_id is not None
            masked = input_ids == self.config.embeddings.mask_token_id
            kept = 1 - masked_share(masked, mask)  # [B, 1 or S]
            x = jnp.where(masked[..., None], 0, x) * ((1 - MASKED_SHARE) / kept)[..., None]
        if self.config.embeddings.word_projection:
            x = self._projected(trigrams(x, mask) if self.config.embeddings.trigram_input else x, compute)
        return x

    def added(self, inputs: Inputs) -> Iterator[jax.Array]:
        if self.config.positions.kind == "sinusoidal":
            table = sinusoids(self.config.max_position_embeddings, self.config.added_embedding_width)
            yield self.of_positions(jnp.asarray(table), inputs)
        yield from super().added(inputs)
        if self.config.embeddings.task_type_vocab_size:
            yield looked_up(self.task_type_embeddings, inputs.task_type_ids)

    def before_norm(self, x: jax.Array, compute: Compute) -> jax.Array:
        return self._projected(x, compute) if self.config.embeddings.norm_after_projection else x

    def after_dropout(self, x: jax.Array, compute: Compute) -> jax.Array:
        done = self.config.embeddings.norm_after_projection or self.config.embeddings.word_projection
        return x if done else self._projected(x, compute)

    def _projected(self, x: jax.Array, compute: Compute) -> jax.Array:
        if not hasattr(self, "projection"):
            return x
        return constrain(self.projection(x, compute), "batch", "length", "embed")


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
