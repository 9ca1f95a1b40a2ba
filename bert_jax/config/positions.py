"""Position information: embeddings, rotation of queries and keys, ALiBi, or none."""

import dataclasses
from typing import Any, Self

from bert_jax.config.fields import setting
from bert_jax.config.part import ModelPart
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class PositionsConfig(ModelPart):
    """No position information; the base class of the other kinds."""

    kind = "none"

    def attention(self) -> str:
        """Return the import path of the attention class that these positions need; "" = that of the attention part."""
        return ""

    def beside(self) -> tuple[str, ...]:
        """Return the import paths of classes of encoder modules besides the layers."""
        return ()

    @property
    def position_offset(self) -> int:
        """Return the number of rows of the position table before the first position; one is for padding."""
        return 0

    @property
    def relative(self) -> bool:
        """Return whether scores depend on positions, not only on queries and keys."""
        return False


@dataclasses.dataclass(frozen=True)
class AbsoluteConfig(PositionsConfig):
    """Learned embeddings of positions."""

    kind = "absolute"
    position_offset: int = setting(0, "rows of the position table before position 0; one is for padding", least=0)


@dataclasses.dataclass(frozen=True)
class SinusoidalConfig(PositionsConfig):
    """Fixed embeddings of positions (Vaswani et al. 2017, arXiv:1706.03762, section 3.5)."""

    kind = "sinusoidal"
    position_offset: int = setting(0, "rows of the position table before position 0; one is for padding", least=0)


@dataclasses.dataclass(frozen=True)
class RotaryConfig(PositionsConfig):
    """Rotation of queries and keys (Su et al. 2021, arXiv:2104.09864), in place of embeddings of positions."""

    kind = "rotary"
    rope_theta: float = setting(10000.0, "base of the rotary position embedding", above=0, recipe=True)
    local_rope_theta: float | None = setting(
        None, "base of the rotary position embedding in local layers; None = rope_theta", above=0, recipe=True
    )
    rope_factor: float = setting(1.0, "divisor of positions (Chen et al. 2023, arXiv:2306.15595)", above=0)
    rotary_interleaved: bool = setting(False, "whether rotated pairs are even and odd columns; False = a head's halves")
    rotary_value: bool = setting(False, "whether rotary positions rotate values too", shapes=True)
    stored_rotation: bool = setting(False, "whether files hold the rotation frequencies as frozen parameters")

    def attention(self) -> str:
        return "bert_jax.modeling.rotary.RotaryAttention"

    def beside(self) -> tuple[str, ...]:
        return ("bert_jax.modeling.rotary.Rotating",)

    def theta(self, window: int | None) -> float:
        """Return the rotary base of a layer; its `window` is None if it is global."""
        return (self.local_rope_theta if window else None) or self.rope_theta

    def canonical(self, config: Any) -> Self:
        same = self.local_rope_theta == self.rope_theta
        return dataclasses.replace(self, local_rope_theta=None) if same else self

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
