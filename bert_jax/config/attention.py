"""The attention of a layer."""

import dataclasses
from typing import Any, Self

from bert_jax.config.part import ModelPart
from bert_jax.config.values import LARGEST_SIZE, shortest_period
from bert_jax.errors import InputError, printable


@dataclasses.dataclass(frozen=True)
class AttentionConfig(ModelPart):
    """Attention of each token to all tokens, or in local layers to those of a window.

    Attributes:
        num_key_value_heads: number of heads of keys and values; each serves as many attention heads (Ainslie
            et al. 2023, arXiv:2305.13245); None = num_attention_heads.
        local_window: greatest distance to which a token attends in local layers; None = all layers are global.
        global_every: one layer in this number, from the first, is global.
        attention_windows: greatest distance to which a token attends in each of the first layers, repeated for later
            layers; () = by local_window.
        attention_bias: whether the dense layers of attention have biases.
        key_bias: whether those for keys, also of relative positions, have biases if the others do.
        qkv_bias: whether those for queries, keys and values have biases, if attention_bias is set.
        qk_norm: whether queries and keys pass through a LayerNorm each, over all heads together.
        attention_output_norm: whether a LayerNorm over attention's output and input comes before the residual sum.
    """

    num_key_value_heads: int | None = None
    local_window: int | None = None
    global_every: int = 1
    attention_windows: tuple[int, ...] = ()
    attention_bias: bool = True
    key_bias: bool = True
    qkv_bias: bool = True
    qk_norm: bool = False
    attention_output_norm: bool = False

    def builds(self) -> str:
        return "bert_jax.modeling.attention.SelfAttention"

    def beside(self) -> tuple[str, ...]:
        """Return the classes of what is beside the layers, by module and name."""
        return ()

    @property
    def name(self) -> str:
        """Return the setting that makes attention of this kind, for messages; "" for attention to all."""
        return ""

    @property
    def pos_att_type(self) -> tuple[str, ...]:
        """Return the terms of disentangled attention."""
        return ()

    @property
    def conv_kernel_size(self) -> int:
        """Return the width of the convolution beside the first layer; 0 = none."""
        return 0

    @property
    def max_global_tokens(self) -> int:
        """Return the number of tokens with global attention at most; 0 = no such attention."""
        return 0

    @property
    def sep_token_id(self) -> int | None:
        """Return the id of the separator, by which the question is found; None = it is not looked for."""
        return None

    @property
    def longest_full(self) -> int | None:
        """Return the length up to which attention is not block-sparse; None if it never is."""
        return None

    @property
    def block_size(self) -> int:
        """Return the number of tokens in a block of block-sparse attention."""
        return 1

    @property
    def num_random_blocks(self) -> int:
        """Return the number of random blocks to which each block attends."""
        return 0

    def relative_span(self, positions: int) -> int:
        """Return half the number of rows of disentangled attention's table: the distances on either side."""
        return 0

    def windows(self, layers: int) -> tuple[int | None, ...]:
        """Return the attention window of each layer; None for global layers."""
        given = self.attention_windows
        usual = (self.local_window if i % self.global_every else None for i in range(layers))
        return tuple(given[i % len(given)] for i in range(layers)) if given else tuple(usual)

    def check(self, config: Any) -> None:
        for window in self.attention_windows:
            if type(window) is not int or not 1 <= window <= LARGEST_SIZE:
                raise InputError(
                    f"model config: attention_windows: expected positive integers, found {printable(repr(window), 60)}"
                )
        if config.num_attention_heads % config.key_value_heads:
            raise InputError(
                f"model config: num_key_value_heads {config.key_value_heads} must divide "
                f"num_attention_heads {config.num_attention_heads}"
            )
        if self.name and config.key_value_heads < config.num_attention_heads:
            raise InputError(
                f"model config: num_key_value_heads: expected that of num_attention_heads with {self.name}, "
                f"found {config.key_value_heads}"
            )
        if self.name and config.positions.attention():
            raise InputError(
                f"model config: position_embedding_type {config.positions.kind}: expected none with {self.name}, found "
                "both; attention is of one kind"
            )

    def canonical(self, config: Any) -> Self:
        windows = self.attention_windows and shortest_period(self.windows(config.num_hidden_layers))
        shared = None if self.num_key_value_heads == config.num_attention_heads else self.num_key_value_heads
        return dataclasses.replace(self, attention_windows=windows, num_key_value_heads=shared)
