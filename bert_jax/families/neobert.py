"""NeoBERT: deep and narrow, with RMSNorm first, rotary positions and gated feed-forward layers."""

from bert_jax.families.base import PRE_NORM, Family, Json, keys_with, whole_number

_MULTIPLE = 8  # the feed-forward layers are rounded up to a multiple of this


def _width(size: int) -> int:
    """Return the width of the feed-forward layers: two thirds of the intermediate_size of a `config.json`."""
    return -(-int(2 * size / 3) // _MULTIPLE) * _MULTIPLE


def _read_neobert(hf: Json) -> Json:
    return {"intermediate_size": _width(whole_number(hf, "intermediate_size", 1))}


def _write_neobert(fields: Json) -> Json:
    width, read = fields["intermediate_size"], dict(fields["carried"]).get("intermediate_size")
    same = isinstance(read, int) and _width(read) == width
    return {"intermediate_size": read if same else -(-3 * width // 2)}


NEOBERT_FAMILY = Family(
    classes="NeoBERT",
    fixed={"position_embedding_type": "rotary", "rotary_interleaved": True, "norm": "rms_norm", "norm_bias": False,
           **PRE_NORM, "gated": True, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
           "type_vocab_size": 0, "pooler": False, "head_transform": False, "classifier_summary": "tanh",
           "choice_summary": "tanh", "drop_before_summary": True},
    sizes={"base": (28, 768, 12, 2048)},
    keys=keys_with(
        without=("intermediate_size", "hidden_act", "type_vocab_size"), layer_norm_eps="norm_eps",
        max_position_embeddings="max_length", initializer_range="decoder_init_range",
    ),
    required=("num_attention_heads",),
    defaults={"intermediate_size": 3072, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
              "classifier_dropout": 0.1, "max_length": 1024, "norm_eps": 1e-6, "tie_word_embeddings": False},
    fresh={"norm_eps": 1e-5, "max_length": 4096},
    reads=_read_neobert,
    writes=_write_neobert,
)  # fmt: skip
