"""The stack of a model without layers."""

import dataclasses
from typing import Any

from bert_jax.config.layers import StackConfig
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class NoLayersConfig(StackConfig):
    """A stack without layers: the embeddings of words are the vectors of tokens, whatever is around them."""

    def check(self, config: Any) -> None:
        if config.num_hidden_layers:
            raise InputError(
                f"model config: num_hidden_layers: expected 0 in a {config.family}, found {config.num_hidden_layers}"
            )
