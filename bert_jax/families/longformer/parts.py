"""The attention of Longformer: windows, and tokens with global attention."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from bert_jax.config.attention import AttentionConfig
from bert_jax.config.fields import LARGEST_SIZE, setting
from bert_jax.config.values import shortest_period
from bert_jax.errors import InputError, printable


@dataclasses.dataclass(frozen=True)
class GlobalTokensConfig(AttentionConfig):
    """Tokens with global attention, which has projections of its own (Beltagy et al. 2020, arXiv:2004.05150)."""

    attention_windows: tuple[int, ...] = setting((), "number of tokens on either side to which each layer of a "
                                                 "Longformer attends, repeated for later layers; () = local_window",
                                                 recipe=True)  # fmt: skip
    max_global_tokens: int = setting(
        128, "maximum number of tokens with global attention per row", least=0, recipe={"least": 1}
    )
    sep_token_id: int | None = setting(None, "id of the separator, which ends the question", least=0)

    def builds(self) -> str:
        return "bert_jax.families.longformer.modules.GlobalAttention" if self.max_global_tokens else super().builds()

    @property
    def name(self) -> str:
        return "max_global_tokens" if self.max_global_tokens else ""

    @property
    def sparse(self) -> bool:
        return bool(self.attention_windows)

    def windows(self, layers: int) -> tuple[int | None, ...]:
        windows = self.attention_windows
        return tuple(windows[i % len(windows)] for i in range(layers)) if windows else super().windows(layers)

    def check(self, config: Any) -> None:
        super().check(config)
        for window in self.attention_windows:
            if type(window) is not int or not 1 <= window <= LARGEST_SIZE:
                raise InputError(
                    f"model config: attention_windows: expected positive integers, found {printable(repr(window), 60)}"
                )

    def check_arrays(self, config: Any, head: str, arrays: Mapping[str, Any]) -> None:
        if self.max_global_tokens:
            from bert_jax.families.longformer.global_tokens import check_global_tokens

            check_global_tokens(config, head, arrays)

    def canonical(self, config: Any) -> Self:
        windows = self.attention_windows and shortest_period(self.windows(config.num_hidden_layers))
        return dataclasses.replace(super().canonical(config), attention_windows=windows)
