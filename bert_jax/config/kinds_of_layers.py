"""Layers of kinds that BERT does not have: with bottlenecks, with tied parameters, with experts."""

import dataclasses
from typing import Any, Self

from bert_jax.config.layers import LayerConfig, StackConfig
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class BottleneckConfig(LayerConfig):
    """A layer with a bottleneck and several feed-forward blocks (Sun et al. 2020, arXiv:2004.02984, section 3).

    Attributes:
        intra_bottleneck_size: width of attention and feed-forward blocks, to which a dense layer projects the input of
            a layer, and from which one projects its output to `hidden_size`; 0 = these blocks are as wide as
            `hidden_size`, without bottlenecks.
        key_query_shared_bottleneck: whether queries and keys are projections of a bottleneck of their own.
        use_bottleneck_attention: whether queries, keys and values are all projections of the bottleneck of the layer's
            input; False = values are projections of the input itself.
        num_feedforward_networks: number of feed-forward blocks in a layer.
    """

    intra_bottleneck_size: int = 0
    key_query_shared_bottleneck: bool = False
    use_bottleneck_attention: bool = False
    num_feedforward_networks: int = 1

    def builds(self) -> str:
        return "bert_jax.modeling.bottleneck.BottleneckLayer"

    def of_other_size(self) -> Self:
        return dataclasses.replace(self, intra_bottleneck_size=0)

    def inner_size(self, hidden_size: int) -> int:
        return self.intra_bottleneck_size or hidden_size

    def value_input_size(self, hidden_size: int) -> int:
        return self.inner_size(hidden_size) if self.use_bottleneck_attention else hidden_size

    @property
    def blocks_before_last(self) -> int:
        return self.num_feedforward_networks - 1

    @property
    def has_bottleneck(self) -> bool:
        return self.intra_bottleneck_size > 0

    def check(self, config: Any) -> None:
        if not (size := self.intra_bottleneck_size):
            return
        others = {"norm_placement pre": config.norms.norm_placement == "pre", "num_experts": any(config.has_experts),
                  config.attention.name: config.attention.name}  # fmt: skip
        for name in (name for name, used in others.items() if used):
            raise InputError(f"model config: intra_bottleneck_size: expected 0 with {name}, found {size}")
        own = self.key_query_shared_bottleneck or self.use_bottleneck_attention
        if not own and size != config.hidden_size:
            raise InputError(
                f"model config: key_query_shared_bottleneck: expected true where use_bottleneck_attention is false and "
                f"intra_bottleneck_size {size} is not hidden_size {config.hidden_size}, found false"
            )


@dataclasses.dataclass(frozen=True)
class TiedConfig(StackConfig):
    """Groups of layers with tied parameters (Lan et al. 2020, arXiv:1909.11942, section 3.1).

    A group's layers are used in turn, again and again.

    Attributes:
        num_hidden_groups: number of groups.
        inner_group_num: number of layers in a group; must divide `num_hidden_layers`.
    """

    num_hidden_groups: int = 1
    inner_group_num: int = 1

    def builds(self) -> str:
        return "bert_jax.modeling.tied.Tied"

    def rows(self, layers: int) -> tuple[int, ...]:
        uses, inner = layers // self.inner_group_num, range(self.inner_group_num)
        groups = (int(use / (uses / self.num_hidden_groups)) for use in range(uses))
        return tuple(group * self.inner_group_num + i for group in groups for i in inner)

    def num_rows(self, layers: int) -> int:
        return self.num_hidden_groups * self.inner_group_num

    @property
    def layers_in_group(self) -> int:
        return self.inner_group_num

    def check(self, config: Any) -> None:
        layers, inner = config.num_hidden_layers, self.inner_group_num
        if layers % inner:
            raise InputError(f"model config: inner_group_num {inner} must divide num_hidden_layers {layers}")
        if self.num_hidden_groups > layers // inner:
            raise InputError(
                f"model config: num_hidden_groups: expected at most {layers // inner}, the number of layers over "
                f"inner_group_num, found {self.num_hidden_groups}"
            )


@dataclasses.dataclass(frozen=True)
class ExpertsConfig(StackConfig):
    """Layers with experts in place of a feed-forward block among others (Shazeer et al. 2017, arXiv:1701.06538).

    Attributes:
        num_experts: number of experts.
        moe_top_k: number of experts that a token uses.
        moe_every_n_layers: number of layers from one with experts to the next; the second layer is the first.
    """

    num_experts: int = 8
    moe_top_k: int = 2
    moe_every_n_layers: int = 2

    def builds(self) -> str:
        return "bert_jax.modeling.experts.ExpertsInTurn"

    def has_experts(self, layers: int) -> tuple[bool, ...]:
        return tuple(i % self.moe_every_n_layers == 1 for i in range(layers))

    def check(self, config: Any) -> None:
        if self.moe_every_n_layers < 2:
            raise InputError("model config: moe_every_n_layers: expected at least 2, as the first layer has no "
                             f"experts, found {self.moe_every_n_layers}")  # fmt: skip
        if self.moe_top_k > self.num_experts:
            raise InputError(f"model config: moe_top_k: expected at most num_experts, {self.num_experts}, "
                             f"found {self.moe_top_k}")  # fmt: skip
        others = {"gated": config.feed_forward.gated, "conv_kernel_size": config.attention.conv_kernel_size}
        for name, used in others.items():
            if used:
                raise InputError(f"model config: num_experts: expected none with {name}, found {self.num_experts}")
