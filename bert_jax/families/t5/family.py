"""The encoders of T5 (Raffel et al. 2019, arXiv:1910.10683), mT5 (arXiv:2010.11934) and UMT5 (arXiv:2304.09151)."""

import dataclasses

from bert_jax.config.attention import AttentionConfig
from bert_jax.config.layers import FeedForwardConfig, GatedConfig
from bert_jax.errors import InputError
from bert_jax.families.base import PRE_NORM, Family, Json, keys_with, shown
from bert_jax.families.names import LAYERS_PATH, Entry, NamedTensors, Names, dense, embedding, norm
from bert_jax.families.t5.parts import T5PositionsConfig
from bert_jax.model_files.keys import FileKey, harmless, honoured


@dataclasses.dataclass(frozen=True)
class UnscaledConfig(AttentionConfig):
    """Attention whose scores are not divided by the root of the width of a head."""

    def builds(self) -> str:
        return "bert_jax.families.t5.modules.UnscaledAttention"


_KEYS: tuple[FileKey, ...] = (
    honoured("feed_forward_proj", "activation of the feed-forward block, and whether it is gated: relu, gated-gelu"),
    *(harmless(name, "only the decoder has it") for name in
      ("num_decoder_layers", "decoder_start_token_id", "is_encoder_decoder", "scale_decoder_outputs", "output_past")),
    *(harmless(name, "feed_forward_proj says it") for name in ("is_gated_act", "dense_act_fn")),
    harmless("n_positions", "no position is embedded, and rows may be longer"),
    harmless("initializer_factor", "initializer_range is used"),
    harmless("task_specific_params", "prefixes of texts, which transformers does not use either"),
)  # fmt: skip

_LAYER = "transformer.encoder.block.{layer}.layer"
_ATTENTION = f"{_LAYER}.0.SelfAttention"


def _names(gated: bool, bias: Entry) -> Names:
    block = f"{_LAYER}.1.DenseReluDense"
    up = {"wi_0": "gate", "wi_1": "up"} if gated else {"wi": "up"}
    parts = {"q": "query", "k": "key", "v": "value", "o": "output"}
    return Names(
        prefix="transformer.",
        encoder=(
            embedding("transformer.shared", "embeddings/word_embeddings"),
            *norm(f"{_LAYER}.0.layer_norm", f"{LAYERS_PATH}/attention/layer_norm"),
            *(e for name, part in parts.items()
              for e in dense(f"{_ATTENTION}.{name}", f"{LAYERS_PATH}/attention/{part}")),
            bias,
            *norm(f"{_LAYER}.1.layer_norm", f"{LAYERS_PATH}/mlp/layer_norm"),
            *(e for name, part in up.items() for e in dense(f"{block}.{name}", f"{LAYERS_PATH}/mlp/{part}")),
            *dense(f"{block}.wo", f"{LAYERS_PATH}/mlp/down"),
            *norm("transformer.encoder.final_layer_norm", "encoder/layer_norm"),
        ),
        heads={"token_classification": dense("classifier", "classifier")},
        architectures=_architectures("T5"),
        other_architectures={"T5ForConditionalGeneration": "encoder", "T5Model": "encoder"},
        tied=(("transformer.encoder.embed_tokens.weight", "transformer.shared.weight"),),
        older=_without_decoder,
    )  # fmt: skip


def _architectures(prefix: str) -> dict[str, str]:
    encoders = dict.fromkeys(("encoder", "sentence_embedding", "multi_vector"), f"{prefix}EncoderModel")
    return encoders | {"token_classification": f"{prefix}ForTokenClassification"}


def _without_decoder(tensors: NamedTensors) -> NamedTensors:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(("decoder.", "lm_head."))}


def _named(names: Names, prefix: str) -> Names:
    others = {name.replace("T5", prefix, 1): head for name, head in names.other_architectures.items()}
    not_gated = names.not_gated and _named(names.not_gated, prefix)
    return dataclasses.replace(
        names, architectures=_architectures(prefix), other_architectures=others, not_gated=not_gated
    )


def _table(bias: Entry) -> Names:
    return dataclasses.replace(_names(True, bias), not_gated=_names(False, bias))


_SHARED_BIAS = embedding(f"{_ATTENTION}.relative_attention_bias".format(layer=0), "encoder/relative_attention_bias")
_BIAS_OF_LAYER = embedding(f"{_ATTENTION}.relative_attention_bias", f"{LAYERS_PATH}/attention/relative_attention_bias")


def _read_t5(hf: Json) -> Json:
    proj = hf["feed_forward_proj"]
    words = proj.split("-") if isinstance(proj, str) else [""]
    if len(words) > 2 or (len(words) == 2 and words[0] != "gated"):
        raise InputError(f"feed_forward_proj: expected an activation, or gated-ACTIVATION, found {shown(proj)}")
    gated = len(words) == 2
    part = (GatedConfig if gated else FeedForwardConfig)(mlp_bias=False, mlp_dropout_at="both")
    return {"feed_forward": part, "hidden_act": "gelu_new" if proj == "gated-gelu" else words[-1]}


def _write_t5(fields: Json) -> Json:
    act = "gelu" if fields["hidden_act"] == "gelu_tanh" else fields["hidden_act"]
    return {
        "d_kv": fields["head_dim"] or fields["hidden_size"] // fields["num_attention_heads"],
        "feed_forward_proj": f"gated-{act}" if fields["feed_forward"].gated else fields["hidden_act"],
    }


T5_FAMILY = Family(
    name="t5",
    title="T5's encoder",
    file_keys=_KEYS,
    names=_table(_SHARED_BIAS),
    tokenizer_class="T5Tokenizer",
    token_types=False,
    either_padding=True,
    common_sign=r"(^|\.)block\.\d+\.layer\.0\.SelfAttention\.",
    classes="T5",
    required=("num_attention_heads",),
    fixed={"positions": T5PositionsConfig(), "attention": UnscaledConfig(attention_bias=False), "norm": "rms_norm",
           "norm_bias": False, **PRE_NORM, "type_vocab_size": 0, "pooler": False},
    sizes={"small": (6, 512, 8, 2048), "base": (12, 768, 12, 3072), "large": (24, 1024, 16, 4096)},
    keys=keys_with(
        "relative_attention_buckets", "relative_attention_max_distance", "head_dim",
        without=("type_vocab_size", "hidden_act"),
        hidden_size="d_model", num_hidden_layers="num_layers", num_attention_heads="num_heads", head_dim="d_kv",
        intermediate_size="d_ff", hidden_dropout_prob="dropout_rate", attention_probs_dropout_prob="dropout_rate",
        layer_norm_eps="layer_norm_epsilon", relative_attention_buckets="relative_attention_num_buckets",
    ),
    nulls=("d_kv",),  # a new model's heads divide its width
    defaults={"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8,
              "layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu", "classifier_dropout": 0.0,
              "max_position_embeddings": 4096},
    fresh={"d_kv": None, "feed_forward_proj": "gated-gelu"},
    reads=_read_t5,
    writes=_write_t5,
)  # fmt: skip
MT5_FAMILY = dataclasses.replace(
    T5_FAMILY, name="mt5", title="mT5's encoder", classes="MT5", names=_named(_table(_SHARED_BIAS), "MT5"),
    common_sign="", defaults=T5_FAMILY.defaults | {"vocab_size": 250_112, "feed_forward_proj": "gated-gelu"},
)  # fmt: skip
UMT5_FAMILY = dataclasses.replace(
    MT5_FAMILY, name="umt5", title="UMT5's encoder", classes="UMT5", names=_named(_table(_BIAS_OF_LAYER), "UMT5"),
    sign=r"(^|\.)block\.[1-9]\d*\.layer\.0\.SelfAttention\.relative_attention_bias\.",
    fixed=dict(T5_FAMILY.fixed) | {"positions": T5PositionsConfig(relative_attention_layers=True)},
    defaults=T5_FAMILY.defaults | {"vocab_size": 250_112, "feed_forward_proj": "gated-gelu"},
)  # fmt: skip
