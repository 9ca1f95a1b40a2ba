"""Rotary positions with scaled frequencies, for rows that are longer than those of pretraining."""

import dataclasses
from typing import Any

from bert_jax.config.fields import setting
from bert_jax.config.positions import RotaryConfig
from bert_jax.errors import InputError

Scaling = tuple[tuple[str, Any], ...]  # `rope_parameters` of a config.json without the base, by name; () = not scaled
# Kind of scaling -> the numbers that it needs.
KINDS: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


@dataclasses.dataclass(frozen=True)
class ScaledRotaryConfig(RotaryConfig):
    """Rotary positions with scaled frequencies.

    linear (Chen et al. 2023, arXiv:2306.15595) and yarn (Peng et al. 2023, arXiv:2309.00071) are those of the papers,
    llama3 is that of Llama 3.1, and dynamic changes only rows that are longer than `max_position_embeddings`.
    """

    rope_scaling: Scaling = setting((), "scaling of the frequencies in global layers: keys of `rope_parameters`")
    local_rope_scaling: Scaling = setting((), "scaling of the frequencies in local layers")

    def beside(self) -> tuple[str, ...]:
        return ("bert_jax.modeling.rope_scaling.ScaledRotating",)

    def scaling(self, window: int | None) -> dict[str, Any]:
        """Return the scaling of a layer; its `window` is None if it is global."""
        return dict(self.local_rope_scaling if window else self.rope_scaling)

    def check(self, config: Any) -> None:
        super().check(config)
        for values in map(dict, (self.rope_scaling, self.local_rope_scaling)):
            if not values:
                continue
            if (kind := values.get("rope_type")) not in KINDS:
                raise InputError(f"rope_type: expected one of {', '.join(KINDS)}, found {kind!r}")
            for name in KINDS[kind]:
                value: Any = values.get(name)
                if type(value) not in (int, float) or not value > 0:
                    raise InputError(f"rope_parameters: {name}: expected a positive number for {kind}, found {value!r}")
