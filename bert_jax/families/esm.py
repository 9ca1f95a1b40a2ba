"""ESM-1b and ESM-2, models of proteins: LayerNorm first, and rescaled embeddings in place of the mask token's."""

from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json, boolean, keys_with, shown, whole_number

_POSITIONS = ("absolute", "rotary")
_PADDING = 1  # id of <pad> in the vocabulary of every ESM


def _read_esm(hf: Json) -> Json:
    kind = hf["position_embedding_type"]
    if kind not in _POSITIONS:
        raise InputError(f"position_embedding_type: expected {' or '.join(_POSITIONS)}, found {shown(kind)}")
    drops = boolean(hf, "token_dropout")
    return {
        "stored_rotation": kind == "rotary",
        "embedding_norm": boolean(hf, "emb_layer_norm_before"),
        "token_dropout": drops,
        "mask_token_id": whole_number(hf, "mask_token_id") if drops or "mask_token_id" in hf else None,
    }


def _offset(hf: Json) -> int:
    """Return the rows of the position table before the first position; rotary positions have no table."""
    return whole_number(hf, "pad_token_id") + 1 if hf.get("position_embedding_type") == "absolute" else 0


ESM_FAMILY = Family(
    classes="Esm",
    fixed={"norm_placement": "pre", "type_vocab_size": 0, "hidden_act": "gelu", "head_act": "gelu",
           "classifier_summary": "tanh", "drop_before_summary": True, "contact_head": True},
    sizes={"8m": (6, 320, 20, 1280), "35m": (12, 480, 20, 1920), "150m": (30, 640, 20, 2560),
           "650m": (33, 1280, 20, 5120), "3b": (36, 2560, 40, 10240)},
    keys=keys_with("position_embedding_type", "rope_theta", "token_dropout", "mask_token_id",
                   without=("type_vocab_size", "classifier_dropout"), embedding_norm="emb_layer_norm_before"),
    required=("num_attention_heads",),
    defaults={"vocab_size": 33, "position_embedding_type": "absolute", "token_dropout": False,
              "emb_layer_norm_before": False, "pad_token_id": _PADDING, "max_position_embeddings": 1026},
    fresh={"position_embedding_type": "rotary", "token_dropout": True, "mask_token_id": 32, "layer_norm_eps": 1e-5,
           "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    reads=_read_esm,
    writes=lambda fields: {"emb_layer_norm_before": fields["embedding_norm"]},
    position_offset=_offset,
)  # fmt: skip
