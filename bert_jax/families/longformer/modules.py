"""Global attention of a few tokens (Beltagy et al. 2020, arXiv:2004.05150, section 3.1).

All tokens attend to the G global tokens, through the mask. Global tokens attend to all tokens with projections of their
own: their scores are `[B, N, G, S]`, and their rows replace what the other projections have computed for them.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.families.longformer.global_tokens import with_global_tokens
from bert_jax.modeling.attention import DropoutKeys, SelfAttention, attention_projections
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.backends import by_xla, merge_heads, random_words, split_heads
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.positions import Positions
from bert_jax.sharding import constrain


class GlobalAttention(SelfAttention):
    """Attention in which the mask's global tokens, if any, attend to all tokens with projections of their own."""

    @staticmethod
    def mask_of(mask: AttentionMask, config: BertConfig, head: str, inputs: Inputs) -> AttentionMask:
        return with_global_tokens(mask, config, head, inputs)

    @staticmethod
    def unfit(backend: str, config: BertConfig, mask: AttentionMask, length: int) -> str | None:
        return None if mask.global_tokens is None else "does not support tokens with global attention"

    def add_projections(self, rngs: nnx.Rngs) -> None:
        dense, _ = attention_projections(self.config, rngs)
        size, width = self.config.inner_size, self.config.attention_width
        self.global_query, self.global_key = dense(size, width), dense(size, width)
        self.global_value = dense(size, width)

    def attend(
        self, x: jax.Array, plan: AttentionPlan, projected: tuple[jax.Array, ...], dropout_keys: DropoutKeys,
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None]:  # fmt: skip
        context, probabilities = super().attend(x, plan, projected, dropout_keys, compute)
        mask, at = plan.mask, plan.query_positions
        if mask.global_tokens is None:
            return context, probabilities
        projected = tuple(
            constrain(project(states, compute), "batch", None, "heads")
            for project, states in (
                (self.global_query, mask.global_queries(x.shape[1]).of(x)), (self.global_key, x),
                (self.global_value, x),
            )
        )  # fmt: skip
        key = None if dropout_keys[0] is None else jax.random.fold_in(dropout_keys[0], 1)
        rows, row_probabilities = global_rows(mask, projected, self.config, key, compute)
        if probabilities is not None:
            probabilities = put_rows(probabilities, row_probabilities, mask, at)
        return put_rows(context, rows, mask, at), probabilities


def global_rows(
    mask: AttentionMask,
    projected: tuple[jax.Array, ...],  # query [B, G, N * H], key and value [B, S, N * H]
    config: BertConfig,
    dropout_key: jax.Array | None,
    compute: Compute,
) -> tuple[jax.Array, jax.Array]:
    """Return the context of the global tokens, `[B, G, N * H]`, and its probabilities `[B, N, G, S]`."""
    batch, length, _ = projected[1].shape
    mask = dataclasses.replace(mask, window=None)
    plan = AttentionPlan("xla", mask, None).only(mask.global_queries(length))
    words = random_words(config, batch, dropout_key)
    query, key, value = (x.swapaxes(1, 2) for x in split_heads(projected, config))
    context, probabilities = by_xla(plan, query, key, value, config, words, compute)
    return merge_heads(context), probabilities


def put_rows(x: jax.Array, rows: jax.Array, mask: AttentionMask, at: Positions | None) -> jax.Array:
    """Return `x [..., S or P, D]` with `rows [..., G, D]` at the positions of the global tokens.

    Both have the leading axes [B], or [B, N].
    """
    assert mask.global_tokens is not None
    places = jnp.arange(x.shape[-2])[None] if at is None else at.index
    match = places[..., None] == mask.global_tokens[:, None]  # [B, S or P, G]
    match = match if x.ndim == 3 else match[:, None]
    exact = jax.lax.Precision.HIGHEST
    put = jnp.einsum("...sg,...gd->...sd", match.astype(x.dtype), rows.astype(x.dtype), precision=exact)
    return jnp.where(match.any(-1, keepdims=True), put, x)
