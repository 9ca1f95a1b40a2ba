"""NeoBERT (Le Breton et al. 2025, arXiv:2502.19587): deep and narrow, pre-RMSNorm, rotary positions, gated layers."""

from bert_jax.config.layers import GatedConfig
from bert_jax.config.positions import RotaryConfig
from bert_jax.families.base import PRE_NORM, Family, Json, keys_with, whole_number
from bert_jax.families.names import LAYERS_PATH, Entry, Names, architectures, dense, dense_parts, embedding, norm
from bert_jax.model_files.keys import ALWAYS_ROTARY, FileKey, harmless, honoured, refused

_KEYS: tuple[FileKey, ...] = (
    ALWAYS_ROTARY,
    honoured("intermediate_size", "width of the feed-forward layers times 1.5, rounded"),
    refused("hidden_act", "other activations are not supported", "SwiGLU", "swiglu"),
    refused("rms_norm", "LayerNorm is not supported", True),
    refused("rope", "learned positions are not supported", True),
    refused("ngpt", "normalised weights are not supported", False),
    refused("dropout", "dropout in layers has the key hidden_dropout_prob", 0, 0.0),
    refused("swiglu_packed", "separate tensors of gates are not supported", True),
    harmless("initializer_range", "decoder_init_range is used"),
    harmless("max_position_embeddings", "max_length is used"),
)

_LAYER = "model.transformer_encoder.{layer}"
_ATTENTION = f"{LAYERS_PATH}/attention"

_NAMES = Names(
    prefix="model.",
    encoder=(
        embedding("model.encoder", "embeddings/word_embeddings"),
        *norm(f"{_LAYER}.attention_norm", f"{_ATTENTION}/layer_norm"),
        *dense_parts(f"{_LAYER}.qkv", *(f"{_ATTENTION}/{part}" for part in ("query", "key", "value")), by_head=True),
        *dense(f"{_LAYER}.wo", f"{_ATTENTION}/output"),
        *norm(f"{_LAYER}.ffn_norm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense_parts(f"{_LAYER}.ffn.w12", f"{LAYERS_PATH}/mlp/gate", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.ffn.w3", f"{LAYERS_PATH}/mlp/down"),
        *norm("model.layer_norm", "encoder/layer_norm"),
    ),
    heads={
        "masked_lm": (embedding("decoder", "mlm/decoder"), Entry("decoder.bias", "mlm/bias")),
        "sequence_classification": (*dense("dense", "summary/dense"), *dense("classifier", "classifier")),
    },
    architectures=architectures(
        "NeoBERT",
        without=("token_classification", "question_answering", "multiple_choice"),
        encoder="",
        masked_lm="LMHead",
    ),
    tied=(("decoder.weight", "model.encoder.weight"),),
)

_MULTIPLE = 8  # the feed-forward width is rounded up to a multiple of this


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
    name="neobert",
    title="NeoBERT",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="BertTokenizer",
    sign=r"(^|\.)transformer_encoder\.\d+\.",
    classes="NeoBERT",
    fixed={"positions": RotaryConfig(), "rotary_interleaved": True, "norm": "rms_norm", "norm_bias": False,
           **PRE_NORM, "feed_forward": GatedConfig(), "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
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
