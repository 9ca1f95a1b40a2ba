"""The attention of Gemma 3, and its scaled embeddings."""

import dataclasses

from bert_jax.config.attention import AttentionConfig
from bert_jax.config.fields import setting
from bert_jax.config.scaled_embeddings import ScaledConfig as ScaledConfig


@dataclasses.dataclass(frozen=True)
class GemmaAttentionConfig(AttentionConfig):
    """Attention whose every n-th layer is global, ending with the n-th, and whose scores have a scale of their own."""

    query_pre_attn_scalar: float = setting(256.0, "scores are divided by its root", above=0)

    def windows(self, layers: int) -> tuple[int | None, ...]:
        return tuple(self.local_window if (i + 1) % self.global_every else None for i in range(layers))
