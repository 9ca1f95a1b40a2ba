"""The biases of T5 for ranges of distances, in place of positions."""

import dataclasses

from bert_jax.config.distance_bias import DistanceBiasConfig
from bert_jax.config.fields import setting


@dataclasses.dataclass(frozen=True)
class T5PositionsConfig(DistanceBiasConfig):
    """Biases of scores for ranges of distances, without embeddings of positions."""

    relative_attention_max_distance: int = setting(
        128, "the distance from which on all distances share a bucket", least=1
    )
    relative_attention_layers: bool = setting(False, "whether each layer has biases of its own (UMT5)", shapes=True)

    @property
    def longest_distance(self) -> int:
        return self.relative_attention_max_distance

    def beside(self) -> tuple[str, ...]:
        return () if self.relative_attention_layers else super().beside()
