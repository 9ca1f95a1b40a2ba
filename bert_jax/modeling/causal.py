"""Attention of a token to itself and to earlier tokens alone, as in decoders."""

import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.config import BertConfig
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.attention_plan import KindOfAttention
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.positions import Positions


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CausalMask(AttentionMask):
    """A mask that also hides later tokens from a query."""

    def seen(self, length: int, at: Positions | None = None) -> jax.Array:
        others, places = super().seen(length, at), jnp.arange(length)
        queries = places[None] if at is None else at.index
        earlier = (places <= queries[..., None])[:, None]  # [B or 1, 1, S or P, S]
        return earlier if others is None else others & earlier


class CausalAttention(KindOfAttention):
    """A kind of attention in which tokens attend to themselves and to earlier tokens alone; for a subclass."""

    @staticmethod
    def mask_of(mask: AttentionMask, config: BertConfig, head: str, inputs: Inputs) -> AttentionMask:
        return CausalMask(mask.query_ids, mask.key_ids, mask.window)

    @staticmethod
    def unfit(backend: str, config: BertConfig, mask: AttentionMask, length: int) -> str | None:
        return "does not support attention to earlier tokens alone"
