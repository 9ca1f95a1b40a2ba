"""Read and write the scaling of rotary positions in a `config.json`."""

from typing import Any

from bert_jax.config.rope_scaling import KINDS, Scaling
from bert_jax.errors import InputError
from bert_jax.families.base import Json, number, rope_base, shown


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
    if kind not in ("default", *KINDS):
        raise InputError(f"rope_type: expected default, {', '.join(KINDS)}, found {shown(kind)}")
    if kind == "default":
        return rope_base(hf | {"rope_parameters": {layers: values} if layers else values}, path, default), ()
    base = default if values.get("rope_theta") is None else number(values, "rope_theta")
    kept = {key: value for key, value in values.items() if value is not None and key not in ("rope_theta", "type")}
    return base, tuple(sorted((kept | {"rope_type": kind}).items()))


def written_rope(theta: float, scaling: Scaling) -> Json:
    """Return the value of `rope_parameters` for some layers."""
    return {"rope_type": "default", "rope_theta": theta} | dict(scaling)
