"""The embeddings of ESM (Rives et al. 2021, doi:10.1073/pnas.2016239118)."""

import jax
import jax.numpy as jnp

from bert_jax.config.part import expect
from bert_jax.families.esm.parts import RescaledConfig
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.embeddings import Embeddings

# The share of tokens that pretraining replaces by the mask token: 80% of 15%.
MASKED_SHARE = 0.15 * 0.8


class RescaledEmbeddings(Embeddings):
    """Embeddings that are 0 for the mask token, and scaled for other tokens as if mask tokens had been dropped out."""

    def words(self, input_ids: jax.Array, mask: AttentionMask, compute: Compute) -> jax.Array:
        x = super().words(input_ids, mask, compute)
        mask_id = expect(self.config.embeddings, RescaledConfig).mask_token_id
        assert mask_id is not None
        masked = input_ids == mask_id
        kept = 1 - masked_share(masked, mask)  # [B, 1 or S]
        return jnp.where(masked[..., None], 0, x) * ((1 - MASKED_SHARE) / kept)[..., None]


def masked_share(masked: jax.Array, mask: AttentionMask) -> jax.Array:
    """Return the share of masked tokens in each example, `[B, 1]`, or `[B, S]` for packed rows."""
    if mask.key_ids is None:
        return masked.mean(axis=-1, keepdims=True, dtype=jnp.float32)
    if mask.query_ids is None:  # one example per row
        return masked.sum(-1, keepdims=True) / jnp.maximum(mask.key_ids.sum(-1, keepdims=True), 1)
    numbers, most = mask.key_ids, masked.shape[1] + 1  # example ids, and a bound on them

    def of_row(values: jax.Array, numbers: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, numbers, most)[numbers]

    tokens = jax.vmap(of_row)(jnp.ones(masked.shape, jnp.float32), numbers)
    return jax.vmap(of_row)(masked.astype(jnp.float32), numbers) / tokens
