"""MobileBERT: narrow layers with bottlenecks, trigrams of narrow word embeddings, and norms without statistics."""

from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json, boolean, keys_with, shown, whole_number

_NORMS = ("no_norm", "layer_norm")
_SIZE = 128  # the usual width of a bottleneck


def _read_mobilebert(hf: Json) -> Json:
    """Return the width of the bottleneck, 0 without one."""
    hidden, has_bottleneck = whole_number(hf, "hidden_size", 1), boolean(hf, "use_bottleneck")
    inner = whole_number(hf, "intra_bottleneck_size", 1) if has_bottleneck else hidden
    if hf.get("true_hidden_size", inner) != inner:
        of = "intra_bottleneck_size" if has_bottleneck else "hidden_size"
        raise InputError(f"true_hidden_size: expected that of {of}, {inner}, found {shown(hf['true_hidden_size'])}")
    if hf["normalization_type"] not in _NORMS:
        raise InputError(f"normalization_type: expected {' or '.join(_NORMS)}, found {shown(hf['normalization_type'])}")
    if hf["embedding_size"] == hidden and not boolean(hf, "trigram_input"):
        raise InputError(f"embedding_size: expected less than hidden_size {hidden} with trigram_input false, as "
                         f"transformers has a projection that it does not use, found {shown(hidden)}")  # fmt: skip
    return {"intra_bottleneck_size": inner if has_bottleneck else 0}


def _write_mobilebert(fields: Json) -> Json:
    size, read = fields["intra_bottleneck_size"], dict(fields["carried"]).get("intra_bottleneck_size")
    return {
        "use_bottleneck": size > 0,
        "intra_bottleneck_size": size or read or _SIZE,  # unused without a bottleneck
        "true_hidden_size": size or fields["hidden_size"],
    }


MOBILEBERT_FAMILY = Family(
    classes="MobileBert",
    # The LayerNorms whose epsilon transformers does not set have that of PyTorch.
    fixed={"word_projection": True, "wide_decoder": True, "embedding_mlp_norm_eps": 1e-5},
    sizes={"base": (24, 512, 4, 512)},
    keys=keys_with(
        "embedding_size", "trigram_input", "key_query_shared_bottleneck", "use_bottleneck_attention",
        "intra_bottleneck_size", "num_feedforward_networks", "norm", "pooler_dense",
        norm="normalization_type", pooler_dense="classifier_activation",
    ),
    assumed={"hidden_act": "relu"},
    defaults={"embedding_size": 128, "hidden_size": 512, "num_hidden_layers": 24, "num_attention_heads": 4,
              "intermediate_size": 512, "hidden_act": "relu", "hidden_dropout_prob": 0.0, "trigram_input": True,
              "use_bottleneck": True, "intra_bottleneck_size": _SIZE, "key_query_shared_bottleneck": True,
              "use_bottleneck_attention": False, "num_feedforward_networks": 4, "normalization_type": "no_norm",
              "classifier_activation": True},
    reads=_read_mobilebert,
    writes=_write_mobilebert,
)  # fmt: skip
