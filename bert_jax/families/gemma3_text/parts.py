"""The parts of Gemma 3: norms before and after each block, and norms of queries and keys."""

import dataclasses

from bert_jax.config.attention import AttentionConfig
from bert_jax.config.fields import setting
from bert_jax.config.layers import GatedConfig
from bert_jax.config.positions import RotaryConfig
from bert_jax.config.scaled_embeddings import ScaledConfig as ScaledConfig


@dataclasses.dataclass(frozen=True)
class GemmaAttentionConfig(AttentionConfig):
    """Attention whose every n-th layer is global, ending with the n-th, and whose scores have a scale of their own."""

    query_pre_attn_scalar: float = setting(256.0, "scores are divided by its root", above=0)

    def windows(self, layers: int) -> tuple[int | None, ...]:
        return tuple(self.local_window if (i + 1) % self.global_every else None for i in range(layers))


@dataclasses.dataclass(frozen=True)
class GemmaRotaryConfig(RotaryConfig):
    """Rotary positions in the attention of Gemma 3, which has norms of each head's query and key, and of its output."""

    def attention(self) -> str:
        return "bert_jax.families.gemma3_text.modules.GemmaAttention"


@dataclasses.dataclass(frozen=True)
class NormedGatedConfig(GatedConfig):
    """A gated feed-forward block whose output has a norm."""

    def builds(self) -> str:
        return "bert_jax.families.gemma3_text.modules.NormedGatedFeedForward"
