"""The positions of MPNet: embeddings, and a bias for each range of distances."""

import dataclasses

from bert_jax.config.fields import setting
from bert_jax.config.positions import AbsoluteConfig


@dataclasses.dataclass(frozen=True)
class RelativeBiasConfig(AbsoluteConfig):
    """Learned embeddings of positions, and biases of scores (Raffel et al. 2019, arXiv:1910.10683, section 2.1)."""

    relative_attention_buckets: int = setting(
        32,
        "buckets of distances, each with a bias of attention scores that all layers share; 0 = no such bias",
        least=0,
    )

    @property
    def relative(self) -> bool:
        return self.relative_attention_buckets > 0

    def beside(self) -> tuple[str, ...]:
        return ("bert_jax.families.mpnet.modules.RelativeBias",) if self.relative else super().beside()
