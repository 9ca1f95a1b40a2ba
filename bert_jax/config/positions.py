"""How the encoder knows where a token is."""

import dataclasses
from typing import Any

from bert_jax.config.part import ModelPart
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class PositionsConfig(ModelPart):
    """Nothing tells the encoder where a token is."""

    kind = "none"

    def attention(self) -> str:
        """Return the class of attention that these positions need, by module and name; "" = that of the attention."""
        return ""

    def beside(self) -> tuple[str, ...]:
        """Return the classes of what is beside the layers, by module and name."""
        return ()

    @property
    def position_offset(self) -> int:
        """Return the number of rows of the position table before the first position; one is for padding."""
        return 0

    @property
    def relative_attention_buckets(self) -> int:
        """Return the number of buckets of distances, each with a bias of attention scores; 0 = no such bias."""
        return 0

    @property
    def stored_rotation(self) -> bool:
        """Return whether files hold the speeds of rotary positions."""
        return False

    @property
    def relative(self) -> bool:
        """Return whether scores depend on positions beside queries and keys."""
        return self.relative_attention_buckets > 0


@dataclasses.dataclass(frozen=True)
class AbsoluteConfig(PositionsConfig):
    """Learned embeddings of positions.

    Attributes:
        position_offset: rows of the position table before the first position; one is for padding.
        relative_attention_buckets: buckets of distances between tokens, each with a bias of attention scores that all
            layers share (Raffel et al. 2019, arXiv:1910.10683, section 2.1); 0 = no such bias.
    """

    kind = "absolute"
    position_offset: int = 0
    relative_attention_buckets: int = 0

    def beside(self) -> tuple[str, ...]:
        return ("bert_jax.modeling.relative_bias.RelativeBias",) if self.relative_attention_buckets else ()


@dataclasses.dataclass(frozen=True)
class SinusoidalConfig(PositionsConfig):
    """Fixed embeddings of positions (Vaswani et al. 2017, arXiv:1706.03762, section 3.5).

    Attributes:
        position_offset: as of `AbsoluteConfig`.
    """

    kind = "sinusoidal"
    position_offset: int = 0


@dataclasses.dataclass(frozen=True)
class RotaryConfig(PositionsConfig):
    """Rotation of queries and keys (Su et al. 2021, arXiv:2104.09864), in place of embeddings of positions.

    Attributes:
        rope_theta: base of rotary positions.
        local_rope_theta: base of rotary positions in local layers; None = `rope_theta`.
        rope_factor: divisor of positions before rotation (Chen et al. 2023, arXiv:2306.15595).
        rotary_interleaved: whether rotary positions rotate pairs of neighbouring coordinates; False = pairs of
            coordinates of the two halves of a head.
        rotary_value: whether rotary positions rotate values too.
        stored_rotation: whether files hold the speeds of rotary positions, which are then parameters that training
            leaves as they are.
    """

    kind = "rotary"
    rope_theta: float = 10000.0
    local_rope_theta: float | None = None
    rope_factor: float = 1.0
    rotary_interleaved: bool = False
    rotary_value: bool = False
    stored_rotation: bool = False

    def theta(self, window: int | None) -> float:
        """Return the base of a layer with a window; None for global layers."""
        return (self.local_rope_theta if window else None) or self.rope_theta

    def check(self, config: Any) -> None:
        if config.head_size % 2:
            raise InputError(f"model config: rotary positions need heads of an even size, found {config.head_size}")


@dataclasses.dataclass(frozen=True)
class AlibiConfig(PositionsConfig):
    """Scores that fall with the distance times a slope for each head (Press et al. 2021, arXiv:2108.12409)."""

    kind = "alibi"

    @property
    def relative(self) -> bool:
        return True

    def attention(self) -> str:
        return "bert_jax.modeling.alibi.AlibiAttention"
