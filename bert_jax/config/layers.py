"""The layers of the encoder: their feed-forward block, their norms, their blocks, and whose parameters they have."""

import dataclasses
from typing import ClassVar, Self

from bert_jax.config.part import ModelPart


@dataclasses.dataclass(frozen=True)
class FeedForwardConfig(ModelPart):
    """A feed-forward block: up, activation, down.

    Attributes:
        mlp_bias: whether its dense layers have biases.
        mlp_up_bias: whether the layers up and gate have biases, if `mlp_bias`.
        mlp_dropout_at: where it has dropout: at the `output` of the layer down, at its `input`, or at `both`.
    """

    mlp_bias: bool = True
    mlp_up_bias: bool = True
    mlp_dropout_at: str = "output"

    gated: ClassVar[bool] = False  # whether the inner states are products with a gate

    def builds(self) -> str:
        return "bert_jax.modeling.feed_forward.FeedForward"


@dataclasses.dataclass(frozen=True)
class GatedConfig(FeedForwardConfig):
    """A feed-forward block whose inner states are act(gate) * up (Shazeer 2020, arXiv:2002.05202)."""

    gated: ClassVar[bool] = True

    def builds(self) -> str:
        return "bert_jax.modeling.gated.GatedFeedForward"


@dataclasses.dataclass(frozen=True)
class NormsConfig(ModelPart):
    """The norms of the encoder.

    Attributes:
        norm: `layer_norm`, `rms_norm`, or `no_norm`, a scale and a bias alone (Sun et al. 2020, section 3.3); with
            no_norm, LayerNorms of heads are plain.
        norm_placement: `post` (after each residual sum) or `pre` (before each block and after the last layer).
        first_layer_norm: whether the first attention block of a `pre` model has a LayerNorm.
        norm_bias: whether LayerNorm has a bias.
        embedding_mlp_norm_eps: epsilon of the LayerNorms of the embeddings and of a layer's last feed-forward block;
            None = layer_norm_eps.
    """

    norm: str = "layer_norm"
    norm_placement: str = "post"
    first_layer_norm: bool = True
    norm_bias: bool = True
    embedding_mlp_norm_eps: float | None = None


@dataclasses.dataclass(frozen=True)
class LayerConfig(ModelPart):
    """A layer of one attention block and one feed-forward block, which are as wide as the residual stream."""

    def builds(self) -> str:
        return "bert_jax.modeling.encoder_layer.EncoderLayer"

    def of_other_size(self) -> Self:
        """Return the part in a model whose named size is not the family's own."""
        return self

    def inner_size(self, hidden_size: int) -> int:
        """Return the width of attention and feed-forward blocks."""
        return hidden_size

    def value_input_size(self, hidden_size: int) -> int:
        """Return the width of what values are projections of."""
        return hidden_size

    @property
    def blocks_before_last(self) -> int:
        """Return the number of feed-forward blocks before the last one."""
        return 0

    @property
    def has_bottleneck(self) -> bool:
        """Return whether layers are narrower inside than the residual stream."""
        return False


@dataclasses.dataclass(frozen=True)
class StackConfig(ModelPart):
    """A stack in which every layer has its own parameters."""

    def builds(self) -> str:
        return "bert_jax.modeling.stack.Stack"

    def rows(self, layers: int) -> tuple[int, ...]:
        """Return for each layer the row of the stacked parameters that it uses."""
        return tuple(range(layers))

    def num_rows(self, layers: int) -> int:
        """Return the number of layers that have parameters of their own."""
        return layers

    def has_experts(self, layers: int) -> tuple[bool, ...]:
        """Return for each layer whether it has experts."""
        return (False,) * layers

    @property
    def layers_in_group(self) -> int:
        """Return the number of layers in a group of tied layers, else 1."""
        return 1
