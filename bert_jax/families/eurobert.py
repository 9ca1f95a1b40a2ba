"""EuroBERT (Boizard et al. 2025, arXiv:2503.05500): Llama's layers with bidirectional attention."""

from bert_jax.config.layers import GatedConfig
from bert_jax.config.positions import RotaryConfig
from bert_jax.config.rope_scaling import ScaledRotaryConfig, read_rope, rope_parameters
from bert_jax.errors import InputError
from bert_jax.families.base import PRE_NORM, Family, Json, keys_with, shown, whole_number
from bert_jax.families.names import (
    LAYERS_PATH,
    Entry,
    Names,
    architectures,
    dense,
    embedding,
    gated_mlp,
    norm,
    projections,
)
from bert_jax.model_files.keys import ALWAYS_ROTARY, FileKey, honoured

_KEYS: tuple[FileKey, ...] = (
    ALWAYS_ROTARY,
    honoured("num_key_value_heads", "number of heads of keys and values"),
    honoured("classifier_pooling", "what a sequence classifier reads: bos, mean or late"),
    honoured("clf_pooling", "name of classifier_pooling in the authors' files"),
    honoured("rope_parameters", "base and scaling of rotary positions: linear, dynamic, yarn or llama3"),
    honoured("rope_theta", "base of rotary positions, in older files"),
    honoured("rope_scaling", "scaling of rotary positions, in older files"),
)

_LAYER = "model.layers.{layer}"

_NAMES = Names(
    prefix="model.",
    encoder=(
        embedding("model.embed_tokens", "embeddings/word_embeddings"),
        *norm(f"{_LAYER}.input_layernorm", f"{LAYERS_PATH}/attention/layer_norm"),
        *projections(f"{_LAYER}.self_attn", f"{LAYERS_PATH}/attention"),
        *norm(f"{_LAYER}.post_attention_layernorm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *gated_mlp(f"{_LAYER}.mlp"),
        *norm("model.norm", "encoder/layer_norm"),
    ),
    heads={
        "masked_lm": (embedding("lm_head", "mlm/decoder"), Entry("lm_head.bias", "mlm/bias")),
        "sequence_classification": (*dense("dense", "summary/dense"), *dense("classifier", "classifier")),
        "token_classification": dense("classifier", "classifier"),
    },
    architectures=architectures("EuroBert", without=("question_answering", "multiple_choice")),
    tied=(("lm_head.weight", "model.embed_tokens.weight"),),
)

_POOLINGS = {"bos": "cls", "mean": "mean", "late": "late"}


def _read_eurobert(hf: Json) -> Json:
    pooling = hf.get("classifier_pooling", hf.get("clf_pooling", "late"))  # the authors' files have the second key
    if not isinstance(pooling, str) or pooling not in _POOLINGS:
        raise InputError(f"classifier_pooling: expected one of {', '.join(_POOLINGS)}, found {shown(pooling)}")
    heads = whole_number(hf, "num_attention_heads", 1)
    theta, scaling = read_rope(hf, "", hf.get("rope_theta", 10_000.0))
    return {
        "classifier_pooling": _POOLINGS[pooling],
        "num_key_value_heads": whole_number({"num_key_value_heads": heads} | hf, "num_key_value_heads", 1),
        "decoder_bias": hf["mlp_bias"],
        "rope_theta": theta,
    } | ({"positions": ScaledRotaryConfig(rope_scaling=scaling)} if scaling else {})


def _write_eurobert(fields: Json) -> Json:
    return {
        "classifier_pooling": next(key for key, ours in _POOLINGS.items() if ours == fields["classifier_pooling"]),
        "num_key_value_heads": fields["num_key_value_heads"] or fields["num_attention_heads"],
        "rope_parameters": rope_parameters(fields["rope_theta"], fields.get("rope_scaling", ())),
    }


EUROBERT_FAMILY = Family(
    name="eurobert",
    title="EuroBERT",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="PreTrainedTokenizerFast",
    token_types=False,
    common_sign=r"(^|\.)layers\.\d+\.input_layernorm\.",
    classes="EuroBert",
    fixed={"positions": RotaryConfig(), "norm": "rms_norm", "norm_bias": False, **PRE_NORM,
           "feed_forward": GatedConfig(),
           "type_vocab_size": 0, "pooler": False, "head_transform": False, "classifier_summary": "gelu",
           "choice_summary": "gelu"},
    keys=keys_with(
        "attention_bias", "mlp_bias", without=("type_vocab_size",), layer_norm_eps="rms_norm_eps",
        attention_probs_dropout_prob="attention_dropout",
    ),
    assumed={"hidden_act": "silu"},
    defaults={"vocab_size": 128256, "num_attention_heads": 12, "hidden_act": "silu", "hidden_dropout_prob": 0.0,
              "attention_dropout": 0.0, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "pad_token_id": 128001,
              "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False},
    fresh={"rope_theta": 250_000.0},
    reads=_read_eurobert,
    writes=_write_eurobert,
)  # fmt: skip
