"""The layers of the encoder: their feed-forward blocks, norms and other blocks, and which parameters each layer has."""

import dataclasses
from typing import Any, ClassVar, Self

from bert_jax.config.fields import setting
from bert_jax.config.part import ModelPart
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class FeedForwardConfig(ModelPart):
    """A feed-forward block: up, activation, down."""

    mlp_bias: bool = setting(True, "whether the feed-forward layer has biases", shapes=True)
    mlp_up_bias: bool = setting(True, "whether the dense layers up and gate have biases, if mlp_bias")
    mlp_dropout_at: str = setting("output", "sides of `down` that have dropout", choices=("output", "input", "both"))

    gated: ClassVar[bool] = False  # whether the inner states are multiplied by a gate

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
    """The norms of the encoder; no_norm is that of Sun et al. 2020 (arXiv:2004.02984, section 3.3)."""

    norm: str = setting("layer_norm", "norm of the layers; zero_centered_rms_norm = its scale is 1 plus a parameter; "
                        "no_norm = a scale and a bias alone", shapes=True,
                        choices=("layer_norm", "rms_norm", "zero_centered_rms_norm", "no_norm"))  # fmt: skip
    norm_placement: str = setting("post", "post = after each residual sum, pre = before each block and after the last",
                                  choices=("post", "pre"))  # fmt: skip
    first_layer_norm: bool = setting(True, "whether the first attention block has a LayerNorm, if pre")
    norm_bias: bool = setting(True, "whether LayerNorm has biases", shapes=True)
    embedding_mlp_norm_eps: float | None = setting(None, "epsilon of LayerNorm in embeddings and a layer's last "
                                                   "feed-forward block; None = layer_norm_eps", least=0)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class LayerConfig(ModelPart):
    """A layer of one attention block and one feed-forward block, which are as wide as the residual stream."""

    def builds(self) -> str:
        return "bert_jax.modeling.encoder_layer.EncoderLayer"

    def of_other_size(self) -> Self:
        """Return the part for a named size, such as "base", that the family itself does not define."""
        return self

    def inner_size(self, hidden_size: int) -> int:
        """Return the width of attention and feed-forward blocks."""
        return hidden_size

    def value_input_size(self, hidden_size: int) -> int:
        """Return the input width of the value projection."""
        return hidden_size


@dataclasses.dataclass(frozen=True)
class StackConfig(ModelPart):
    """A stack in which every layer has its own parameters."""

    def builds(self) -> str:
        return "bert_jax.modeling.stack.Stack"

    def check(self, config: Any) -> None:
        if not config.num_hidden_layers:
            raise InputError("model config: num_hidden_layers must be a positive integer, found 0")

    def rows(self, layers: int) -> tuple[int, ...]:
        """Return for each layer the row of the stacked parameters that it uses."""
        return tuple(range(layers))

    def num_rows(self, layers: int) -> int:
        """Return the number of layers that have parameters of their own."""
        return layers

    def has_experts(self, layers: int) -> tuple[bool, ...]:
        """Return for each layer whether it has experts."""
        return (False,) * layers
