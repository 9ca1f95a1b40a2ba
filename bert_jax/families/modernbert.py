"""ModernBERT (Warner et al. 2024, arXiv:2412.13663): pre-LayerNorm, rotary positions, gated and local layers."""

from bert_jax.config.layers import GatedConfig
from bert_jax.config.positions import RotaryConfig
from bert_jax.config.rope_scaling import LAYER_TYPES, ScaledRotaryConfig, read_ropes, ropes_parameters
from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json, keys_with, number, shown, whole_number
from bert_jax.families.names import LAYERS_PATH, Entry, Names, architectures, dense, dense_parts, embedding, norm
from bert_jax.model_files.keys import ALWAYS_ROTARY, FileKey, harmless, honoured

_KEYS: tuple[FileKey, ...] = (
    honoured("embedding_dropout", "dropout rate; must equal mlp_dropout"),
    honoured("layer_types", "full or sliding attention of each layer"),
    honoured("global_attn_every_n_layers", "number of layers from one global layer to the next, in older files"),
    honoured("local_attention", "width of the attention window of local layers"),
    honoured("rope_parameters", "bases and scaling of rotary positions: linear, dynamic, yarn or llama3"),
    honoured("rope_scaling", "scaling of rotary positions in all layers, in older files"),
    honoured("global_rope_theta", "base of rotary positions, in older files"),
    honoured("local_rope_theta", "base of rotary positions in local layers, in older files"),
    harmless("layer_norm_eps", "norm_eps is used"),
    ALWAYS_ROTARY,
)

_LAYER = "model.layers.{layer}"


def _classifier(ours: str) -> tuple[Entry, ...]:
    return (*dense("head.dense", "summary/dense"), *norm("head.norm", "summary/layer_norm"), *dense("classifier", ours))


_NAMES = Names(
    prefix="model.",
    encoder=(
        embedding("model.embeddings.tok_embeddings", "embeddings/word_embeddings"),
        *norm("model.embeddings.norm", "embeddings/layer_norm"),
        *norm(f"{_LAYER}.attn_norm", f"{LAYERS_PATH}/attention/layer_norm", first_layer=1),
        *dense_parts(f"{_LAYER}.attn.Wqkv", *(f"{LAYERS_PATH}/attention/{part}" for part in ("query", "key", "value"))),
        *dense(f"{_LAYER}.attn.Wo", f"{LAYERS_PATH}/attention/output"),
        *norm(f"{_LAYER}.mlp_norm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense_parts(f"{_LAYER}.mlp.Wi", f"{LAYERS_PATH}/mlp/gate", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.mlp.Wo", f"{LAYERS_PATH}/mlp/down"),
        *norm("model.final_norm", "encoder/layer_norm"),
    ),
    heads={
        "masked_lm": (
            *dense("head.dense", "mlm/dense"),
            *norm("head.norm", "mlm/layer_norm"),
            Entry("decoder.bias", "mlm/bias"),
            embedding("decoder", "mlm/decoder"),
        ),
        "sequence_classification": _classifier("classifier"),
        "token_classification": _classifier("classifier"),
        "multiple_choice": _classifier("classifier"),
        "question_answering": _classifier("qa_outputs"),
    },
    architectures=architectures("ModernBert"),
    tied=(("decoder.weight", "model.embeddings.tok_embeddings.weight"),),
)


def _read_modernbert(hf: Json) -> Json:
    layers = whole_number(hf, "num_hidden_layers", 1)
    every = whole_number({"global_attn_every_n_layers": 3} | hf, "global_attn_every_n_layers", 1)
    kinds = hf.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise InputError(f"layer_types: expected a list of {layers} (num_hidden_layers), found {shown(kinds)}")
        if kinds != _kinds(layers, every):
            every = next((n for n in range(1, layers) if kinds[n] == LAYER_TYPES[0]), layers)
        if kinds != _kinds(layers, every):
            raise InputError(
                f"layer_types: expected every n-th layer, from the first, to be {LAYER_TYPES[0]}, found {shown(kinds)}"
            )
    if (pooling := hf.get("classifier_pooling", "cls")) not in ("cls", "mean"):
        raise InputError(f"classifier_pooling: expected cls or mean, found {shown(pooling)}")
    if number(hf, "embedding_dropout") != hf["mlp_dropout"]:
        raise InputError(f"embedding_dropout: expected mlp_dropout, {hf['mlp_dropout']}, "
                         f"found {hf['embedding_dropout']}")  # fmt: skip
    window = whole_number(hf, "local_attention", 2) // 2
    theta, local_theta = hf.get("global_rope_theta", 160_000.0), hf.get("local_rope_theta", 10_000.0)
    ropes = read_ropes(hf, hf, theta, local_theta, ScaledRotaryConfig)
    return {"global_every": every, "local_window": window if every > 1 else None} | ropes


def _write_modernbert(fields: Json) -> Json:
    window = fields["local_window"]
    every = fields["global_every"] if window else 1
    return {
        "layer_types": _kinds(fields["num_hidden_layers"], every),
        "global_attn_every_n_layers": every,
        "local_attention": 2 * window if window else 128,
        "embedding_dropout": fields["hidden_dropout_prob"],
        "global_rope_theta": fields["rope_theta"],
        "local_rope_theta": fields["local_rope_theta"] or fields["rope_theta"],
        "rope_parameters": ropes_parameters(fields),
    }


def _kinds(layers: int, every: int) -> list[str]:
    return [LAYER_TYPES[i % every > 0] for i in range(layers)]


MODERNBERT_FAMILY = Family(
    name="modernbert",
    title="ModernBERT",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="PreTrainedTokenizerFast",
    token_types=False,
    sign=r"(^|\.)layers\.\d+\.(attn_norm|mlp_norm)\.",
    classes="ModernBert",
    fixed={"positions": RotaryConfig(), "norm_placement": "pre", "first_layer_norm": False,
           "feed_forward": GatedConfig(mlp_dropout_at="input"), "type_vocab_size": 0, "pooler": False,
           "qa_dropout": None, "classifier_summary": "transform", "choice_summary": "transform"},
    sizes={"base": (22, 768, 12, 1152), "large": (28, 1024, 16, 2624)},
    keys=keys_with(
        "norm_bias", "attention_bias", "mlp_bias", "head_act", "head_bias", "decoder_bias", "classifier_pooling",
        without=("type_vocab_size",), hidden_act="hidden_activation", hidden_dropout_prob="mlp_dropout",
        attention_probs_dropout_prob="attention_dropout", layer_norm_eps="norm_eps",
        head_act="classifier_activation", head_bias="classifier_bias",
    ),
    defaults={
        "vocab_size": 50368, "num_hidden_layers": 22, "intermediate_size": 1152, "pad_token_id": 50283,
        "max_position_embeddings": 8192, "norm_eps": 1e-5, "norm_bias": False, "attention_bias": False,
        "mlp_bias": False, "classifier_bias": False, "classifier_activation": "gelu", "local_attention": 128,
        "embedding_dropout": 0.0, "mlp_dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.0,
    },
    nulls=("local_rope_theta",),  # null = the base of the global layers
    reads=_read_modernbert,
    writes=_write_modernbert,
)  # fmt: skip
