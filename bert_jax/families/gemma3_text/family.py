"""Gemma 3 (Gemma Team 2025, arXiv:2503.19786) with attention to both sides: EmbeddingGemma (2025, arXiv:2509.20354)."""

import dataclasses

from bert_jax.config.layers import GatedConfig
from bert_jax.config.positions import RotaryConfig
from bert_jax.config.rope_scaling import LAYER_TYPES, ScaledRotaryConfig, read_ropes, ropes_parameters
from bert_jax.errors import InputError
from bert_jax.families.base import PRE_NORM, Family, Json, boolean, keys_with, shown, whole_number
from bert_jax.families.gemma3_text.parts import GemmaAttentionConfig, ScaledConfig
from bert_jax.families.names import LAYERS_PATH, Names, architectures, embedding, gated_mlp, norm, projections
from bert_jax.model_files.keys import ALWAYS_ROTARY, FileKey, harmless, honoured, refused


@dataclasses.dataclass(frozen=True)
class GemmaRotaryConfig(RotaryConfig):
    """Rotary positions in the attention of Gemma 3, which has norms of each head's query and key, and of its output."""

    def attention(self) -> str:
        return "bert_jax.families.gemma3_text.modules.GemmaAttention"


@dataclasses.dataclass(frozen=True)
class ScaledGemmaRotaryConfig(ScaledRotaryConfig, GemmaRotaryConfig):
    """The same with scaled frequencies."""


@dataclasses.dataclass(frozen=True)
class NormedGatedConfig(GatedConfig):
    """A gated feed-forward block whose output has a norm."""

    def builds(self) -> str:
        return "bert_jax.families.gemma3_text.modules.NormedGatedFeedForward"


_KEYS: tuple[FileKey, ...] = (
    ALWAYS_ROTARY,
    honoured("layer_types", "full or sliding attention of each layer"),
    honoured("sliding_window_pattern", "number of layers from one global layer to the next, in older files"),
    harmless("_sliding_window_pattern", "layer_types is used"),
    honoured("sliding_window", "width of the attention window of local layers"),
    honoured("use_bidirectional_attention", "must be true: attention to one side is not supported"),
    honoured("rope_parameters", "bases and scaling of rotary positions: linear, dynamic, yarn or llama3"),
    honoured("rope_theta", "base of rotary positions, in older files"),
    honoured("rope_local_base_freq", "base of rotary positions in local layers, in older files"),
    honoured("rope_scaling", "scaling of rotary positions in global layers, in older files"),
    refused("attn_logit_softcapping", "capped scores are not supported", None),
    harmless("final_logit_softcapping", "an encoder has no logits of tokens"),
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
        *norm(f"{_LAYER}.post_attention_layernorm", f"{_ATTENTION}/output/layer_norm"),
        *norm(f"{_LAYER}.pre_feedforward_layernorm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *gated_mlp(f"{_LAYER}.mlp"),
        *norm(f"{_LAYER}.post_feedforward_layernorm", f"{LAYERS_PATH}/mlp/down/layer_norm"),
        *norm("model.norm", "encoder/layer_norm"),
    ),
    heads={},
    architectures={head: name for head, name in architectures("Gemma3Text").items() if name == "Gemma3TextModel"},
)


def _read_gemma(hf: Json) -> Json:
    if not boolean({"use_bidirectional_attention": False} | hf, "use_bidirectional_attention"):
        raise InputError("use_bidirectional_attention: expected true, found false: attention to one side alone, as in "
                         "Gemma 3 itself, is not supported")  # fmt: skip
    layers = whole_number(hf, "num_hidden_layers", 1)
    every = whole_number({"sliding_window_pattern": 6} | hf, "sliding_window_pattern", 1)
    kinds = hf.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise InputError(f"layer_types: expected a list of {layers} (num_hidden_layers), found {shown(kinds)}")
        if kinds != _kinds(layers, every):
            every = kinds.index(LAYER_TYPES[0]) + 1 if LAYER_TYPES[0] in kinds else layers + 1
        if kinds != _kinds(layers, every):
            raise InputError(f"layer_types: expected every n-th layer to be {LAYER_TYPES[0]}, found {shown(kinds)}")
    window = whole_number(hf, "sliding_window", 2) // 2
    of_local_layers = {key: value for key, value in hf.items() if key != "rope_scaling"}
    theta, local_theta = hf.get("rope_theta", 1_000_000.0), hf.get("rope_local_base_freq", 10_000.0)
    ropes = read_ropes(hf, of_local_layers, theta, local_theta, ScaledGemmaRotaryConfig)
    return {"global_every": every, "local_window": window if every > 1 else None} | ropes


def _write_gemma(fields: Json) -> Json:
    window, heads = fields["local_window"], fields["num_attention_heads"]
    return {
        "head_dim": fields["head_dim"] or fields["hidden_size"] // heads,
        "num_key_value_heads": fields["num_key_value_heads"] or heads,
        "use_bidirectional_attention": True,
        "layer_types": _kinds(fields["num_hidden_layers"], fields["global_every"] if window else 1),
        "sliding_window": 2 * window if window else dict(fields["carried"]).get("sliding_window", 512),
        "rope_parameters": ropes_parameters(fields),
    }


def _kinds(layers: int, every: int) -> list[str]:
    return [LAYER_TYPES[(i + 1) % every > 0] for i in range(layers)]


GEMMA3_FAMILY = Family(
    name="gemma3_text",
    title="Gemma 3 with attention to both sides (EmbeddingGemma)",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="GemmaTokenizer",
    token_types=False,
    either_padding=True,
    sign=r"(^|\.)layers\.\d+\.pre_feedforward_layernorm\.",
    classes="Gemma3Text",
    fixed={"positions": GemmaRotaryConfig(), "norm": "zero_centered_rms_norm", "norm_bias": False, **PRE_NORM,
           "embeddings": ScaledConfig(rescale_embeddings=True), "attention": GemmaAttentionConfig(),
           "feed_forward": NormedGatedConfig(mlp_bias=False), "type_vocab_size": 0, "pooler": False},
    sizes={"300m": (24, 768, 3, 1152)},
    keys=keys_with(
        "attention_bias", "head_dim", "num_key_value_heads", "query_pre_attn_scalar",
        without=("type_vocab_size",),
        hidden_act="hidden_activation", layer_norm_eps="rms_norm_eps", attention_probs_dropout_prob="attention_dropout",
    ),
    assumed={"hidden_act": "gelu_pytorch_tanh"},
    defaults={"vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
              "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
              "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6,
              "hidden_dropout_prob": 0.0, "attention_dropout": 0.0, "attention_bias": False,
              "query_pre_attn_scalar": 256},
    nulls=("head_dim",),  # a new model's heads divide its width
    fresh={"head_dim": None, "vocab_size": 262_144, "num_key_value_heads": 1, "max_position_embeddings": 2048,
           "sliding_window": 512, "use_bidirectional_attention": True},
    reads=_read_gemma,
    writes=_write_gemma,
)  # fmt: skip
