"""GTE (Zhang et al. 2024, arXiv:2407.19669): rotary positions and gated feed-forward layers.

Tensor names are those of transformers, and of the original files, whose model_type is `new`.
"""

from bert_jax.config.layers import GatedConfig
from bert_jax.config.positions import RotaryConfig
from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json, keys_with, number, shown
from bert_jax.families.names import (
    Entry,
    NamedTensors,
    Names,
    architectures,
    classifiers,
    dense,
    embedding,
    gated_mlp,
    norm,
    projected_layers,
    rename_tensors,
    split_tensors,
)
from bert_jax.model_files.keys import FileKey, honoured, refused

_KEYS: tuple[FileKey, ...] = (
    honoured("rope_parameters", "base and factor of rotary positions; types default, linear and ntk"),
    # Keys of the original files, whose model_type is `new`.
    honoured("rope_theta", "base of rotary positions"),
    honoured("rope_scaling", "type (ntk or linear) and factor of scaled rotary positions; mixed_b is refused"),
    refused("position_embedding_type", "other position embeddings are not supported", "rope", "rotary"),
    refused("layer_norm_type", "other norms are not supported", "layer_norm"),
    refused("logn_attention_scale", "attention scaled by the length of a text is not supported", False),
)

_LAYER = "gte.layers.{layer}"
_ORIGINAL_NAMES = (
    (r"^new\.", "gte."),
    (r"(^|\.)encoder\.layer\.", r"\1layers."),
    (r"\.attention\.(qkv|[qkvo])_proj\.", r".self_attn.\1_proj."),
    (r"\.attn_ln\.", ".post_attention_layernorm."),
    (r"\.mlp_ln\.", ".post_mlp_layernorm."),
    (r"^lm_head\.norm\.", "lm_head.layer_norm."),
)


def _older(tensors: NamedTensors) -> NamedTensors:
    renamed = split_tensors(rename_tensors(tensors, _ORIGINAL_NAMES), "qkv_proj", ("q_proj", "k_proj", "v_proj"))
    return split_tensors(renamed, "up_gate_proj", ("up_proj", "gate_proj"))


_NAMES = Names(
    prefix="gte.",
    encoder=projected_layers("gte.", *gated_mlp(f"{_LAYER}.mlp")),
    heads={
        "masked_lm": (
            *dense("lm_head.dense", "mlm/dense"),
            *norm("lm_head.layer_norm", "mlm/layer_norm"),
            Entry("lm_head.decoder.bias", "mlm/bias"),
            embedding("lm_head.decoder", "mlm/decoder"),
        ),
        **{head: classifiers()[head] for head in ("sequence_classification", "token_classification")},
    },
    architectures=architectures("Gte", without=("question_answering", "multiple_choice")),
    # Classes of the original code.
    other_architectures={
        "NewModel": "encoder",
        "NewForMaskedLM": "masked_lm",
        "NewForSequenceClassification": "sequence_classification",
        "NewForTokenClassification": "token_classification",
    },
    tied=(("lm_head.decoder.weight", "gte.embeddings.word_embeddings.weight"),),
    older=_older,
)

# Keys that only files of the original code have, whose model_type is `new`.
_ORIGINAL = ("pack_qkv", "layer_norm_type", "unpad_inputs", "use_memory_efficient_attention")


def _read_gte(hf: Json) -> Json:
    """Return the base and factor of rotary positions, from `rope_parameters`, or `rope_theta` and `rope_scaling`."""
    original = any(key in hf for key in _ORIGINAL)
    if original and hf["hidden_act"] != "gelu":  # the original masked-LM head also uses it
        raise InputError(f"hidden_act: expected 'gelu', found {shown(hf['hidden_act'])}")
    parameters, key = hf.get("rope_parameters"), "rope_parameters"
    if not parameters:
        parameters, key = hf.get("rope_scaling") or {}, "rope_scaling"
    if not isinstance(parameters, dict):
        raise InputError(f"{key}: expected an object, found {shown(parameters)}")
    rope = {name: value for name, value in parameters.items() if value is not None}
    kind = rope.pop("rope_type", rope.pop("type", "default"))
    rope.pop("type", None)
    theta = number({"rope_theta": hf.get("rope_theta", 10_000.0 if original else 160_000.0)} | rope, "rope_theta")
    factor = number({"factor": 1.0} | rope, "factor")
    if unknown := rope.keys() - {"rope_theta", "factor"}:
        name = min(unknown)
        raise InputError(f"{key}: {name}: expected none, found {shown(rope[name])}")
    if kind == "ntk":  # https://kexue.fm/archives/9706, formula (6): a larger base, and lower frequencies
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
    name="gte",
    title="GTE",
    file_keys=_KEYS,
    names=_NAMES,
    sign=r"^(gte|new)\.|\.attention\.qkv_proj\.|(^|\.)layers\.\d+\.mlp\.down_proj\.bias",
    classes="Gte",
    other_model_types=("new",),
    has_own_code=True,
    not_carried=("rope_theta", "rope_scaling", "position_embedding_type"),
    fixed={"positions": RotaryConfig(), "feed_forward": GatedConfig(), "mlp_up_bias": False,
           "mlp_dropout_at": "both",
           "head_act": "gelu"},
    keys=keys_with(),
    defaults={"vocab_size": 250048, "attention_probs_dropout_prob": 0.0, "type_vocab_size": 1, "pad_token_id": 1,
              "max_position_embeddings": 8192, "hidden_act": "gelu"},
    reads=_read_gte,
    writes=_write_gte,
)  # fmt: skip
