"""Rotary positions with scaled frequencies, for rows that are longer than those of pretraining, and their keys."""

import dataclasses
from typing import Any

from bert_jax.config.fields import setting
from bert_jax.config.positions import RotaryConfig
from bert_jax.errors import InputError
from bert_jax.families.base import Json, number, rope_base, shown

Scaling = tuple[tuple[str, Any], ...]  # `rope_parameters` of a config.json without the base, by name; () = not scaled
# Kind of scaling -> the numbers that it needs.
SCALINGS: dict[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
LAYER_TYPES = ("full_attention", "sliding_attention")  # keys of `rope_parameters` for global and for local layers


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
            if (kind := values.get("rope_type")) not in SCALINGS:
                raise InputError(f"rope_type: expected one of {', '.join(SCALINGS)}, found {kind!r}")
            for name in SCALINGS[kind]:
                value: Any = values.get(name)
                if type(value) not in (int, float) or not value > 0:
                    raise InputError(f"rope_parameters: {name}: expected a positive number for {kind}, found {value!r}")


def read_rope(hf: Json, layers: str, default: Any) -> tuple[Any, Scaling]:
    """Return base and scaling of rotary positions.

    Args:
        hf: a `config.json`.
        layers: the key of `rope_parameters` for these layers, such as `full_attention`; "" = all layers are alike.
        default: the base if the file has none.

    Raises:
        InputError: a value is not valid, or the kind of scaling is not known.
    """
    path = ("rope_parameters", layers) if layers else ("rope_parameters",)
    parameters: Any = hf
    for key in path:
        parameters = parameters.get(key) or {}
        if not isinstance(parameters, dict):
            raise InputError(f"{'.'.join(path)}: expected an object, found {shown(parameters)}")
    older = hf.get("rope_scaling") or {}
    if not isinstance(older, dict):
        raise InputError(f"rope_scaling: expected an object, found {shown(older)}")
    values = older | parameters if "rope_type" not in parameters else parameters
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in ("default", *SCALINGS):
        raise InputError(f"rope_type: expected default, {', '.join(SCALINGS)}, found {shown(kind)}")
    if kind == "default":
        return rope_base(hf | {"rope_parameters": {layers: values} if layers else values}, path, default), ()
    base = default if values.get("rope_theta") is None else number(values, "rope_theta")
    kept = {key: value for key, value in values.items() if value is not None and key not in ("rope_theta", "type")}
    return base, tuple(sorted((kept | {"rope_type": kind}).items()))


def rope_parameters(theta: float, scaling: Scaling) -> Json:
    """Return the value of `rope_parameters` for some layers."""
    return {"rope_type": "default", "rope_theta": theta} | dict(scaling)


def read_ropes(of_global: Json, of_local: Json, theta: Any, local_theta: Any, scaled: type[ScaledRotaryConfig]) -> Json:
    """Return the fields of rotary positions in global and local layers.

    Args:
        of_global: a `config.json`, for the global layers.
        of_local: the same for the local layers.
        theta: the base of global layers if the file has none.
        local_theta: the same of local layers.
        scaled: the part if frequencies are scaled.

    Raises:
        InputError: as `read_rope`.
    """
    theta, scaling = read_rope(of_global, LAYER_TYPES[0], theta)
    local_theta, local_scaling = read_rope(of_local, LAYER_TYPES[1], local_theta)
    ours = {"rope_theta": theta, "local_rope_theta": local_theta}
    if scaling or local_scaling:
        ours["positions"] = scaled(rope_scaling=scaling, local_rope_scaling=local_scaling)
    return ours


def ropes_parameters(fields: Json) -> Json:
    """Return the value of `rope_parameters` for global and local layers."""
    theta = fields["rope_theta"]
    ropes = ((theta, "rope_scaling"), (fields["local_rope_theta"] or theta, "local_rope_scaling"))
    return {
        kind: rope_parameters(base, fields.get(name, ())) for kind, (base, name) in zip(LAYER_TYPES, ropes, strict=True)
    }
