"""ModernBERT: rotary positions, LayerNorm first, gated feed-forward layers, global and local layers."""

from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json, keys_with, number, rope_base, shown, whole_number

_KINDS = ["full_attention", "sliding_attention"]


def _read_modernbert(hf: Json) -> Json:
    layers = whole_number(hf, "num_hidden_layers", 1)
    every = whole_number({"global_attn_every_n_layers": 3} | hf, "global_attn_every_n_layers", 1)
    kinds = hf.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise InputError(f"layer_types: expected a list of {layers} (num_hidden_layers), found {shown(kinds)}")
        if kinds != _kinds(layers, every):
            every = next((n for n in range(1, layers) if kinds[n] == _KINDS[0]), layers)
        if kinds != _kinds(layers, every):
            raise InputError(
                f"layer_types: expected every n-th layer, from the first, to be {_KINDS[0]}, found {shown(kinds)}"
            )
    if (pooling := hf.get("classifier_pooling", "cls")) not in ("cls", "mean"):
        raise InputError(f"classifier_pooling: expected cls or mean, found {shown(pooling)}")
    if number(hf, "embedding_dropout") != hf["mlp_dropout"]:
        raise InputError(f"embedding_dropout: expected that of mlp_dropout, {hf['mlp_dropout']}, "
                         f"found {hf['embedding_dropout']}")  # fmt: skip
    return {
        "global_every": every,
        "local_window": whole_number(hf, "local_attention", 2) // 2,
        "rope_theta": rope_base(hf, ("rope_parameters", _KINDS[0]), hf.get("global_rope_theta", 160_000.0)),
        "local_rope_theta": rope_base(hf, ("rope_parameters", _KINDS[1]), hf.get("local_rope_theta", 10_000.0)),
    }


def _write_modernbert(fields: Json) -> Json:
    thetas = dict(zip(_KINDS, (fields["rope_theta"], fields["local_rope_theta"]), strict=True))
    return {
        "layer_types": _kinds(fields["num_hidden_layers"], fields["global_every"]),
        "global_attn_every_n_layers": fields["global_every"],
        "local_attention": 2 * fields["local_window"],
        "embedding_dropout": fields["hidden_dropout_prob"],
        "global_rope_theta": thetas[_KINDS[0]],
        "local_rope_theta": thetas[_KINDS[1]],
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()},
    }


def _kinds(layers: int, every: int) -> list[str]:
    return [_KINDS[i % every > 0] for i in range(layers)]


MODERNBERT_FAMILY = Family(
    classes="ModernBert",
    fixed={"position_embedding_type": "rotary", "norm_placement": "pre", "first_layer_norm": False, "gated": True,
           "type_vocab_size": 0, "pooler": False, "classifier_summary": "transform",
           "choice_summary": "transform"},
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
    reads=_read_modernbert,
    writes=_write_modernbert,
)  # fmt: skip
