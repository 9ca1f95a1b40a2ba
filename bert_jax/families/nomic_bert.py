"""NomicBERT: the original files use GPT-2's keys; transformers 5 has its own keys."""

from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json, rope_base, shown

_NOMIC_OLD = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon",
    "hidden_dropout_prob": "resid_pdrop", "attention_probs_dropout_prob": "attn_pdrop",
}  # fmt: skip


def _read_nomic(hf: Json) -> Json:
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        other = _NOMIC_OLD[field]
        if other in hf and field in hf and hf[other] != hf[field]:
            raise InputError(f"{other}: expected that of {field}, {shown(hf[field])}, found {shown(hf[other])}")
    if "n_embd" not in hf:
        return {"rope_theta": rope_base(hf, ("rope_parameters",), 1000.0)}
    fields = {field: hf[key] for field, key in _NOMIC_OLD.items() if key in hf}
    return fields | {"hidden_act": "silu", "rope_theta": hf.get("rotary_emb_base", 10000.0)}


NOMIC_BERT_FAMILY = Family(
    classes="NomicBert",
    has_own_code=True,
    older_keys=_NOMIC_OLD,
    required=("num_attention_heads",),
    fixed={"position_embedding_type": "rotary", "gated": True, "attention_bias": False, "mlp_bias": False},
    defaults={"vocab_size": 30528, "hidden_act": "silu", "max_position_embeddings": 2048,
              "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    reads=_read_nomic,
    writes=lambda fields: {"rope_parameters": {"rope_type": "default", "rope_theta": fields["rope_theta"]}},
)  # fmt: skip
