"""GTE (Zhang et al. 2024, arXiv:2407.19669): rotary positions and gated feed-forward layers."""

from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json, keys_with, number, shown

# Keys that only files of the original code have, whose model_type is `new`.
_ORIGINAL = ("pack_qkv", "layer_norm_type", "unpad_inputs", "use_memory_efficient_attention")


def _read_gte(hf: Json) -> Json:
    """Return the base and factor of rotary positions, from `rope_parameters`, or `rope_theta` and `rope_scaling`."""
    original = any(key in hf for key in _ORIGINAL)
    if original and hf["hidden_act"] != "gelu":  # of the masked-LM head too
        raise InputError(f"hidden_act: expected 'gelu', found {shown(hf['hidden_act'])}")
    parameters, key = hf.get("rope_parameters"), "rope_parameters"
    if not parameters:
        parameters, key = hf.get("rope_scaling") or {}, "rope_scaling"
    if not isinstance(parameters, dict):
        raise InputError(f"{key}: expected an object, found {shown(parameters)}")
    given = {name: value for name, value in parameters.items() if value is not None}
    kind = given.pop("rope_type", given.pop("type", "default"))
    given.pop("type", None)
    theta = number({"rope_theta": hf.get("rope_theta", 10_000.0 if original else 160_000.0)} | given, "rope_theta")
    factor = number({"factor": 1.0} | given, "factor")
    if unknown := given.keys() - {"rope_theta", "factor"}:
        name = min(unknown)
        raise InputError(f"{key}: {name}: expected none, found {shown(given[name])}")
    if kind == "ntk":  # https://kexue.fm/archives/9706, formula (6): a larger base, and slower turns of all frequencies
        if type(hf.get("hidden_size")) is not int or type(hf.get("num_attention_heads")) is not int:
            raise InputError(f"{key}: type: expected hidden_size and num_attention_heads with 'ntk', found neither")
        if not factor > 0:
            raise InputError(f"{key}: factor: expected a positive number, found {shown(factor)}")
        size = max(hf["hidden_size"] // max(hf["num_attention_heads"], 1), 1)
        return {"rope_theta": float(theta * factor), "rope_factor": float(factor ** (2 / size))}
    if kind not in ("default", "linear"):
        raise InputError(f"{key}: type: expected default, linear or ntk, found {shown(kind)}")
    return {"rope_theta": theta, "rope_factor": factor if kind == "linear" else 1.0}


def _write_gte(fields: Json) -> Json:
    parameters = {"rope_type": "default", "rope_theta": fields["rope_theta"]}
    if fields["rope_factor"] != 1:
        parameters |= {"rope_type": "linear", "factor": fields["rope_factor"]}
    return {"rope_parameters": parameters}


GTE_FAMILY = Family(
    classes="Gte",
    other_model_types=("new",),
    has_own_code=True,
    not_carried=("rope_theta", "rope_scaling", "position_embedding_type"),
    fixed={"position_embedding_type": "rotary", "gated": True, "mlp_up_bias": False, "mlp_dropout_at": "both",
           "head_act": "gelu"},
    keys=keys_with(),
    defaults={"vocab_size": 250048, "attention_probs_dropout_prob": 0.0, "type_vocab_size": 1, "pad_token_id": 1,
              "max_position_embeddings": 8192, "hidden_act": "gelu"},
    reads=_read_gte,
    writes=_write_gte,
)  # fmt: skip
