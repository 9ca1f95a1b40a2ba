"""The positions of MPNet: embeddings, and a bias for each range of distances."""

import dataclasses

from bert_jax.config.distance_bias import DistanceBiasConfig
from bert_jax.config.positions import AbsoluteConfig


@dataclasses.dataclass(frozen=True)
class RelativeBiasConfig(DistanceBiasConfig, AbsoluteConfig):
    """Learned embeddings of positions, and biases of scores."""

    kind = "absolute"
