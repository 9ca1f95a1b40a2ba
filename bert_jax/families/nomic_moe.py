"""Nomic Embed v2 (Nussbaum and Duderstadt 2025, arXiv:2502.07972): NomicBERT with biases and experts."""

from bert_jax.families.base import Family, Json, keys_with

_CODE = "nomic-ai/nomic-bert-2048--"
_KEYS = keys_with(
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
    classes="NomicBert",
    model_type="nomic_bert",
    other_model_types=("nomic_bert",),
    shows=_has_experts,
    has_own_code=True,
    fixed={"position_embedding_type": "rotary"},
    keys=_KEYS,
    defaults={"vocab_size": 250048, "n_positions": 2048, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072,
              "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "activation_function": "gelu",
              "rotary_emb_base": 10_000.0, "type_vocab_size": 1, "pad_token_id": 1, "num_experts": 8, "moe_top_k": 2,
              "moe_every_n_layers": 2},
    writes=lambda fields: dict(_WRITTEN),
)  # fmt: skip
