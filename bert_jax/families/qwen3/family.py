"""Qwen3 (Qwen Team 2025, arXiv:2505.09388) as an encoder, as in Qwen3-Embedding (2025, arXiv:2506.05176)."""

import dataclasses

from bert_jax.config.heads import HeadsConfig
from bert_jax.config.layers import GatedConfig
from bert_jax.config.positions import RotaryConfig
from bert_jax.config.rope_scaling import ScaledRotaryConfig, read_rope, rope_parameters
from bert_jax.errors import InputError
from bert_jax.families.base import PRE_NORM, Family, Json, keys_with, shown, whole_number
from bert_jax.families.names import LAYERS_PATH, Entry, Names, dense, embedding, gated_mlp, norm, projections
from bert_jax.model_files.keys import ALWAYS_ROTARY, FileKey, harmless, honoured, refused

_MODULES = "bert_jax.families.qwen3.modules"


@dataclasses.dataclass(frozen=True)
class CausalRotaryConfig(RotaryConfig):
    """Rotary positions in attention to earlier tokens alone, with norms of each head's query and key."""

    def attention(self) -> str:
        return f"{_MODULES}.QwenAttention"


@dataclasses.dataclass(frozen=True)
class ScaledCausalRotaryConfig(ScaledRotaryConfig, CausalRotaryConfig):
    """The same with scaled frequencies."""


@dataclasses.dataclass(frozen=True)
class LastTokenHeadsConfig(HeadsConfig):
    """Heads of decoders: a sequence classifier reads the last token, without a layer of its own."""

    def head(self, name: str) -> str:
        return f"{_MODULES}.LastTokenClassifier" if name == "sequence_classification" else ""


_KEYS: tuple[FileKey, ...] = (
    ALWAYS_ROTARY,
    honoured("rope_parameters", "base and scaling of rotary positions: linear, dynamic, yarn or llama3"),
    honoured("rope_theta", "base of rotary positions, in older files"),
    honoured("rope_scaling", "scaling of rotary positions, in older files"),
    refused("use_sliding_window", "local layers are not supported", False),
    honoured("layer_types", "must be full_attention for each layer"),
    harmless("sliding_window", "there are no local layers"),
    harmless("max_window_layers", "there are no local layers"),
)

_LAYER = "model.layers.{layer}"
_ATTENTION = f"{LAYERS_PATH}/attention"

_NAMES = Names(
    prefix="model.",
    encoder=(
        embedding("model.embed_tokens", "embeddings/word_embeddings"),
        *norm(f"{_LAYER}.input_layernorm", f"{_ATTENTION}/layer_norm"),
        *projections(f"{_LAYER}.self_attn", _ATTENTION),
        *norm(f"{_LAYER}.self_attn.q_norm", f"{_ATTENTION}/query_norm"),
        *norm(f"{_LAYER}.self_attn.k_norm", f"{_ATTENTION}/key_norm"),
        *norm(f"{_LAYER}.post_attention_layernorm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *gated_mlp(f"{_LAYER}.mlp"),
        *norm("model.norm", "encoder/layer_norm"),
    ),
    heads={
        "sequence_classification": (Entry("score.weight", "classifier/kernel", transpose=True),),
        "token_classification": dense("score", "classifier"),
    },
    architectures={
        "encoder": "Qwen3Model",
        "sentence_embedding": "Qwen3Model",
        "multi_vector": "Qwen3Model",
        "sequence_classification": "Qwen3ForSequenceClassification",
        "token_classification": "Qwen3ForTokenClassification",
    },
    other_architectures={"Qwen3ForCausalLM": "encoder"},
    tied=(("lm_head.weight", "model.embed_tokens.weight"),),
)


def _read_qwen(hf: Json) -> Json:
    layers = whole_number(hf, "num_hidden_layers", 1)
    if hf.get("layer_types") not in (None, ["full_attention"] * layers):
        raise InputError(f"layer_types: expected full_attention {layers} times, found {shown(hf['layer_types'])}")
    theta, scaling = read_rope(hf, "", hf.get("rope_theta", 10_000.0))
    scaled = {"positions": ScaledCausalRotaryConfig(rope_scaling=scaling)} if scaling else {}
    return {"rope_theta": theta} | scaled


def _write_qwen(fields: Json) -> Json:
    heads = fields["num_attention_heads"]
    return {
        "head_dim": fields["head_dim"] or fields["hidden_size"] // heads,
        "num_key_value_heads": fields["num_key_value_heads"] or heads,
        "rope_parameters": rope_parameters(fields["rope_theta"], fields.get("rope_scaling", ())),
    }


QWEN3_FAMILY = Family(
    name="qwen3",
    title="Qwen3",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="Qwen2Tokenizer",
    token_types=False,
    either_padding=True,
    sign=r"(^|\.)layers\.\d+\.self_attn\.q_norm\.",  # Gemma 3 has it too, but also a sign that comes first
    classes="Qwen3",
    fixed={"positions": CausalRotaryConfig(), "norm": "rms_norm", "norm_bias": False, **PRE_NORM,
           "feed_forward": GatedConfig(mlp_bias=False), "type_vocab_size": 0, "pooler": False,
           "heads": LastTokenHeadsConfig(), "classifier_summary": "none", "pooling": "lasttoken"},
    sizes={"0.6b": (28, 1024, 16, 3072), "4b": (36, 2560, 32, 9728), "8b": (36, 4096, 32, 12288)},
    keys=keys_with(
        "attention_bias", "head_dim", "num_key_value_heads", without=("type_vocab_size",),
        layer_norm_eps="rms_norm_eps", attention_probs_dropout_prob="attention_dropout",
    ),
    assumed={"hidden_act": "silu"},
    defaults={"vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
              "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "hidden_act": "silu",
              "hidden_dropout_prob": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.1,
              "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "attention_bias": False,
              "tie_word_embeddings": False},
    nulls=("head_dim",),  # a new model's heads divide its width
    fresh={"head_dim": None, "num_key_value_heads": None, "rope_theta": 1_000_000.0, "tie_word_embeddings": True},
    reads=_read_qwen,
    writes=_write_qwen,
)  # fmt: skip
