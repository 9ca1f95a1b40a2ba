"""The attention of a layer."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from bert_jax.config.fields import setting
from bert_jax.config.part import ModelPart
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class AttentionConfig(ModelPart):
    """Attention of each token to all tokens or, in local layers, to those in a window.

    Attention heads may share keys and values (Ainslie et al. 2023, arXiv:2305.13245).
    """

    num_key_value_heads: int | None = setting(
        None, "number of heads of keys and values; None = num_attention_heads", least=1, shapes=True
    )
    local_window: int | None = setting(
        None, "tokens on either side to which local layers attend; None = all layers are global", least=1, recipe=True
    )
    global_every: int = setting(1, "every n-th layer is global, starting with the first", least=1, recipe=True)
    attention_bias: bool = setting(True, "whether the attention projections have biases", shapes=True)
    qk_norm: bool = setting(False, "whether queries and keys each have a LayerNorm, over all heads together")
    attention_output_norm: bool = setting(False, "whether a LayerNorm of output plus input precedes the residual sum")

    def builds(self) -> str:
        return "bert_jax.modeling.attention.SelfAttention"

    def beside(self) -> tuple[str, ...]:
        """Return the import paths of classes of encoder modules besides the layers."""
        return ()

    @property
    def name(self) -> str:
        """Return the setting that selects this kind of attention, for messages; "" for plain full attention."""
        return ""

    @property
    def relative(self) -> bool:
        """Return whether scores depend on positions, not only on queries and keys."""
        return False

    @property
    def longest_full(self) -> int | None:
        """Return the length up to which block-sparse attention is full; None for other attention."""
        return None

    @property
    def sparse(self) -> bool:
        """Return whether attention is sparse: all positions of a layer cost less than a few with full attention."""
        return False

    def num_relative_embeddings(self, positions: int) -> int:
        """Return the number of embeddings of relative positions; 0 = none."""
        return 0

    def check_arrays(self, config: Any, head: str, arrays: Mapping[str, Any]) -> None:
        """Raise InputError when the arrays of a head, by name, do not suit this attention."""

    @property
    def has_bias(self) -> tuple[bool, bool]:
        """Return two flags: whether the query and value layers have biases, and whether the key layers have."""
        return self.attention_bias, self.attention_bias

    def windows(self, layers: int) -> tuple[int | None, ...]:
        """Return the attention window of each layer; None for global layers."""
        return tuple(self.local_window if i % self.global_every else None for i in range(layers))

    def check(self, config: Any) -> None:
        if config.num_attention_heads % config.key_value_heads:
            raise InputError(
                f"model config: num_key_value_heads {config.key_value_heads} must divide "
                f"num_attention_heads {config.num_attention_heads}"
            )
        if self.name and config.key_value_heads < config.num_attention_heads:
            raise InputError(
                f"model config: num_key_value_heads: expected num_attention_heads with {self.name}, "
                f"found {config.key_value_heads}"
            )
        if self.name and config.positions.attention():
            raise InputError(
                f"model config: position_embedding_type {config.positions.kind}: expected none with {self.name}, found "
                "both, which cannot be combined"
            )

    def canonical(self, config: Any) -> Self:
        shared = None if self.num_key_value_heads == config.num_attention_heads else self.num_key_value_heads
        window = self.local_window if self.global_every > 1 else None  # all layers are global
        return dataclasses.replace(self, num_key_value_heads=shared, local_window=window)
