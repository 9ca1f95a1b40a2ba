"""The stack of Nomic's models with experts."""

import dataclasses
from typing import Any

from bert_jax.config.fields import setting
from bert_jax.config.layers import StackConfig
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class ExpertsConfig(StackConfig):
    """Layers, some with experts in place of the feed-forward block (Shazeer et al. 2017, arXiv:1701.06538)."""

    num_experts: int = setting(8, "number of experts", least=1)
    moe_top_k: int = setting(2, "number of experts that a token uses", least=1)
    moe_every_n_layers: int = setting(2, "n: every n-th layer has experts, starting with the second", least=1)

    def builds(self) -> str:
        return "bert_jax.families.nomic_bert.modules.ExpertsInTurn"

    def has_experts(self, layers: int) -> tuple[bool, ...]:
        return tuple(i % self.moe_every_n_layers == 1 for i in range(layers))

    def check(self, config: Any) -> None:
        if self.moe_every_n_layers < 2:
            raise InputError("model config: moe_every_n_layers: expected at least 2, as the first layer has no "
                             f"experts, found {self.moe_every_n_layers}")  # fmt: skip
        if self.moe_top_k > self.num_experts:
            raise InputError(f"model config: moe_top_k: expected at most num_experts, {self.num_experts}, "
                             f"found {self.moe_top_k}")  # fmt: skip
        others = {"gated": config.feed_forward.gated, "conv_kernel_size": config.setting("conv_kernel_size")}
        for name, used in others.items():
            if used:
                raise InputError(f"model config: num_experts: expected none with {name}, found {self.num_experts}")
