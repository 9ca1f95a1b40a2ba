"""The stack of ALBERT: groups of layers with tied parameters."""

import dataclasses
from typing import Any

from bert_jax.config.fields import setting
from bert_jax.config.layers import StackConfig
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class TiedConfig(StackConfig):
    """Groups of layers with tied parameters (Lan et al. 2020, arXiv:1909.11942, section 3.1).

    A group's layers run in order, several times.
    """

    num_hidden_groups: int = setting(1, "number of groups of layers with tied parameters", least=1, shapes=True)
    inner_group_num: int = setting(1, "layers in a tied group; must divide num_hidden_layers", least=1, shapes=True)

    def builds(self) -> str:
        return "bert_jax.families.albert.modules.Tied"

    def rows(self, layers: int) -> tuple[int, ...]:
        uses, inner = layers // self.inner_group_num, range(self.inner_group_num)
        groups = (int(use / (uses / self.num_hidden_groups)) for use in range(uses))
        return tuple(group * self.inner_group_num + i for group in groups for i in inner)

    def num_rows(self, layers: int) -> int:
        return self.num_hidden_groups * self.inner_group_num

    def check(self, config: Any) -> None:
        layers, inner = config.num_hidden_layers, self.inner_group_num
        if layers % inner:
            raise InputError(f"model config: inner_group_num {inner} must divide num_hidden_layers {layers}")
        if self.num_hidden_groups > layers // inner:
            raise InputError(
                f"model config: num_hidden_groups: expected at most {layers // inner} (num_hidden_layers / "
                f"inner_group_num), found {self.num_hidden_groups}"
            )
