"""Biases of attention scores for ranges of distances."""

import dataclasses

from bert_jax.config.fields import setting
from bert_jax.config.positions import PositionsConfig


@dataclasses.dataclass(frozen=True)
class DistanceBiasConfig(PositionsConfig):
    """Biases of scores for ranges of distances (Raffel et al. 2019, arXiv:1910.10683, section 2.1)."""

    relative_attention_buckets: int = setting(
        32,
        "buckets of distances, each with a bias of attention scores that all layers share; 0 = no such bias",
        least=0,
    )

    @property
    def longest_distance(self) -> int:
        """Return the distance from which on all distances share a bucket."""
        return 128

    @property
    def relative(self) -> bool:
        return self.relative_attention_buckets > 0

    def beside(self) -> tuple[str, ...]:
        return ("bert_jax.modeling.distance_bias.DistanceBias",) if self.relative else super().beside()
