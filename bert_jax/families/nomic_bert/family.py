"""NomicBERT (Nussbaum et al. 2024, arXiv:2402.01613), and Nomic Embed v2 (2025, arXiv:2502.07972), with experts.

The authors' files use GPT-2's keys; transformers 5 has its own keys for NomicBERT, and none for Nomic Embed v2.
"""

from bert_jax.config.layers import GatedConfig
from bert_jax.config.positions import RotaryConfig
from bert_jax.errors import InputError
from bert_jax.families import bert
from bert_jax.families.base import Family, Json, keys_with, rope_base, shown
from bert_jax.families.names import (
    EXPERT_LAYERS,
    LAYERS_PATH,
    Entry,
    NamedTensors,
    Names,
    architectures,
    dense,
    dense_parts,
    embedding,
    gated_mlp,
    norm,
    projected_layers,
    rename_tensors,
    split_tensors,
)
from bert_jax.families.nomic_bert.parts import ExpertsConfig
from bert_jax.model_files.keys import ALWAYS_ROTARY, FileKey, harmless, honoured, refused

# Keys of the original files of NomicBERT and Nomic Embed v2.
_NOMIC_REFUSED = (
    refused("prenorm", "LayerNorm before each block is not supported", False),
    refused("use_rms_norm", "RMSNorm is not supported", False),
    refused("rotary_emb_fraction", "partly rotated heads are not supported", 1.0),
    refused("rotary_emb_interleaved", "interleaved rotation is not supported", False),
    refused("rotary_emb_scale_base", "scaled rotary positions are not supported"),
    refused("rotary_scaling_factor", "scaled rotary positions are not supported"),
    refused("causal", "decoders are not supported", False),
    refused("parallel_block", "parallel blocks are not supported", False),
    refused("parallel_block_tied_norm", "parallel blocks are not supported", False),
    refused("scale_attn_weights", "unscaled attention is not supported", True),
    refused("scale_attn_by_inverse_layer_idx", "attention scaled by layer is not supported", False),
)
_SUMMARY = tuple(
    harmless(name, "written by GPT-2's config, but not used")
    for name in ("summary_activation", "summary_proj_to_labels", "summary_type", "summary_use_proj")
)

_KEYS: tuple[FileKey, ...] = (
    ALWAYS_ROTARY,
    honoured("rope_parameters", "base of rotary positions; scaled ones are refused"),
    # Keys of the original files.
    honoured("rotary_emb_base", "base of rotary positions"),
    refused("activation_function", "other activations are not supported", "swiglu"),
    *_NOMIC_REFUSED,
    refused("qkv_proj_bias", "biases in attention are not supported", False),
    refused("mlp_fc1_bias", "biases in feed-forward layers are not supported", False),
    refused("mlp_fc2_bias", "biases in feed-forward layers are not supported", False),
    *_SUMMARY,
)

_LAYER = "nomic_bert.layers.{layer}"
_OLDER = (
    (r"^bert\.", "nomic_bert."),
    (r"(^|\.)emb_ln\.", r"\1embeddings.LayerNorm."),
    (r"(^|\.)encoder\.layers\.", r"\1layers."),
    (r"\.attn\.out_proj\.", ".self_attn.o_proj."),
    (r"\.mlp\.fc11\.", ".mlp.up_proj."),
    (r"\.mlp\.fc12\.", ".mlp.gate_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
    (r"\.norm1\.", ".post_attention_layernorm."),
    (r"\.norm2\.", ".post_mlp_layernorm."),
)


def _older(tensors: NamedTensors) -> NamedTensors:
    parts = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return split_tensors(rename_tensors(tensors, _OLDER), "attn.Wqkv", parts)


_NAMES = Names(
    prefix="nomic_bert.",
    encoder=projected_layers("nomic_bert.", *gated_mlp(f"{_LAYER}.mlp")),
    heads={
        "masked_lm": bert.masked_lm("layer_norm"),
        "sequence_classification": dense("classifier", "classifier"),
        "token_classification": dense("classifier", "classifier"),
    },
    architectures=architectures("NomicBert", without=("question_answering", "multiple_choice")),
    tied=bert.tied_predictions("nomic_bert."),
    older=_older,
)

_NOMIC_OLD = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon",
    "hidden_dropout_prob": "resid_pdrop", "attention_probs_dropout_prob": "attn_pdrop",
}  # fmt: skip


def _read_nomic(hf: Json) -> Json:
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        other = _NOMIC_OLD[field]
        if other in hf and field in hf and hf[other] != hf[field]:
            raise InputError(f"{other}: expected {field}, {shown(hf[field])}, found {shown(hf[other])}")
    if "n_embd" not in hf:
        return {"rope_theta": rope_base(hf, ("rope_parameters",), 1000.0)}
    fields = {field: hf[key] for field, key in _NOMIC_OLD.items() if key in hf}
    return fields | {"hidden_act": "silu", "rope_theta": hf.get("rotary_emb_base", 10000.0)}


NOMIC_BERT_FAMILY = Family(
    name="nomic_bert",
    title="NomicBERT",
    file_keys=_KEYS,
    names=_NAMES,
    common_sign=r"(^|\.)encoder\.layers\.\d+\.|(^|\.)layers\.\d+\.(self_attn|post_attention_layernorm)\.",
    classes="NomicBert",
    has_own_code=True,
    older_keys=_NOMIC_OLD,
    required=("num_attention_heads",),
    fixed={"positions": RotaryConfig(), "feed_forward": GatedConfig(), "attention_bias": False,
           "mlp_bias": False},
    defaults={"vocab_size": 30528, "hidden_act": "silu", "max_position_embeddings": 2048,
              "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    reads=_read_nomic,
    writes=lambda fields: {"rope_parameters": {"rope_type": "default", "rope_theta": fields["rope_theta"]}},
)  # fmt: skip

_EXPERTS_OF_NOMIC = (
    refused("moe_normalize_expert_weights", "rescaled weights of experts are not supported", False),
    refused("num_shared_experts", "experts that all tokens use are not supported", 0),
    refused("expert_choice_router", "experts that choose tokens are not supported", False),
    refused("ffn_div", "narrower experts are not supported", 1),
)

_MOE_FILE_KEYS: tuple[FileKey, ...] = (
    ALWAYS_ROTARY,
    *_EXPERTS_OF_NOMIC,
    refused("qkv_proj_bias", "attention without biases is not supported with experts", True),
    refused("mlp_fc1_bias", "feed-forward layers without biases are not supported with experts", True),
    refused("mlp_fc2_bias", "feed-forward layers without biases are not supported with experts", True),
    *_NOMIC_REFUSED,
    *_SUMMARY,
)

_MOE_LAYER = "bert.encoder.layers.{layer}"


def _attention(layers: str) -> tuple[Entry, ...]:
    """Return the entries of attention and LayerNorms in a stack of layers."""
    return (
        *dense_parts(f"{_MOE_LAYER}.attn.Wqkv", *(f"{layers}/attention/{part}" for part in ("query", "key", "value"))),
        *dense(f"{_MOE_LAYER}.attn.out_proj", f"{layers}/attention/output"),
        *norm(f"{_MOE_LAYER}.norm1", f"{layers}/attention/layer_norm"),
        *norm(f"{_MOE_LAYER}.norm2", f"{layers}/mlp/layer_norm"),
    )


_MOE_NAMES = Names(
    prefix="bert.",
    encoder=(
        embedding("bert.embeddings.word_embeddings", "embeddings/word_embeddings"),
        embedding("bert.embeddings.token_type_embeddings", "embeddings/token_type_embeddings"),
        *norm("bert.emb_ln", "embeddings/layer_norm"),
        *_attention(LAYERS_PATH),
        *dense(f"{_MOE_LAYER}.mlp.fc1", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_MOE_LAYER}.mlp.fc2", f"{LAYERS_PATH}/mlp/down"),
        *_attention(EXPERT_LAYERS),
        Entry(f"{_MOE_LAYER}.mlp.router.layer.weight", f"{EXPERT_LAYERS}/mlp/router/kernel", transpose=True),
        Entry(f"{_MOE_LAYER}.mlp.experts.mlp.w1", f"{EXPERT_LAYERS}/mlp/experts/up"),
        Entry(f"{_MOE_LAYER}.mlp.experts.mlp.w2", f"{EXPERT_LAYERS}/mlp/experts/down"),
        Entry(f"{_MOE_LAYER}.mlp.experts.bias", f"{EXPERT_LAYERS}/mlp/experts/bias"),
        *dense("bert.pooler.dense", "pooler/dense"),
    ),
    heads={
        "masked_lm": (
            *dense("cls.predictions.transform.dense", "mlm/dense"),
            *norm("cls.predictions.transform.layer_norm", "mlm/layer_norm"),
            Entry("cls.predictions.decoder.bias", "mlm/bias"),
            embedding("cls.predictions.decoder", "mlm/decoder"),
        ),
        "sequence_classification": dense("classifier", "classifier"),
        "token_classification": dense("classifier", "classifier"),
    },
    architectures=architectures(
        "NomicBert", without=("question_answering", "multiple_choice"), masked_lm="ForPreTraining"
    ),
    other_architectures={"NomicBertForMaskedLM": "masked_lm"},
    tied=(("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),),
)

_CODE = "nomic-ai/nomic-bert-2048--"
_MOE_FIELDS = keys_with(
    "num_experts", "moe_top_k", "moe_every_n_layers", "rope_theta",
    hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head", intermediate_size="n_inner",
    max_position_embeddings="n_positions", layer_norm_eps="layer_norm_epsilon", hidden_dropout_prob="resid_pdrop",
    attention_probs_dropout_prob="attn_pdrop", hidden_act="activation_function", rope_theta="rotary_emb_base",
)  # fmt: skip
_WRITTEN = {
    "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True, "moe_normalize_expert_weights": False,
    "num_shared_experts": 0, "expert_choice_router": False, "ffn_div": 1, "moe_impl": "torch", "moe_resid_pdrop": 0.0,
    "prenorm": False, "parallel_block": False, "causal": False, "use_rms_norm": False, "use_flash_attn": False,
    "fused_bias_fc": False, "fused_dropout_add_ln": False, "add_pooling_layer": False,
    "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "pad_vocab_size_multiple": 1,
    "auto_map": {
        "AutoConfig": f"{_CODE}configuration_hf_nomic_bert.NomicBertConfig",
        "AutoModel": f"{_CODE}modeling_hf_nomic_bert.NomicBertModel",
        "AutoModelForMaskedLM": f"{_CODE}modeling_hf_nomic_bert.NomicBertForPreTraining",
    },
}  # fmt: skip


def _has_experts(hf: Json) -> bool:
    every = hf.get("moe_every_n_layers")
    return type(every) is int and every > 0 and hf.get("num_experts") not in (None, 0)


NOMIC_MOE_FAMILY = Family(
    name="nomic-moe",
    title="Nomic Embed v2, a NomicBERT with experts",
    file_keys=_MOE_FILE_KEYS,
    names=_MOE_NAMES,
    sign=r"(^|\.)layers\.\d+\.mlp\.experts\.",
    classes="NomicBert",
    model_type="nomic_bert",
    other_model_types=("nomic_bert",),
    shows=_has_experts,
    has_own_code=True,
    fixed={"positions": RotaryConfig(), "stack": ExpertsConfig()},
    keys=_MOE_FIELDS,
    defaults={"vocab_size": 250048, "n_positions": 2048, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072,
              "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "activation_function": "gelu",
              "rotary_emb_base": 10_000.0, "type_vocab_size": 1, "pad_token_id": 1, "num_experts": 8, "moe_top_k": 2,
              "moe_every_n_layers": 2},
    writes=lambda fields: dict(_WRITTEN),
)  # fmt: skip
