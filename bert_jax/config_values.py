"""The values that the fields of `BertConfig` may have, alone and together."""

from typing import Any

from bert_jax.errors import InputError, did_you_mean, printable
from bert_jax.families import FAMILIES
from bert_jax.model_files.labels import MOST_CLASSES

ACTIVATION_NAMES = (
    "gelu", "gelu_tanh", "relu", "silu", "tanh", "gelu_10", "quick_gelu", "leaky_relu", "linear", "mish", "relu2",
    "relu6", "sigmoid",
)  # fmt: skip
PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
SPLADE_POOLINGS = ("splade_max", "splade_sum", "splade_max_log1p", "splade_sum_log1p")  # of masked-LM logits
SPARSE_POOLINGS = (*SPLADE_POOLINGS, "lexical")  # lexical: a weight of each token of the text
LAYER_ACTIVATIONS = ("identity", "tanh", "sigmoid", "relu", "gelu", "silu", "elu", "leaky_relu", "softplus", "mish")
SUMMARIES = ("pooler", "tanh", "relu", "gelu", "transform")
CHOICES: dict[str, tuple[str, ...]] = {
    "family": tuple(FAMILIES),
    "hidden_act": ACTIVATION_NAMES,
    "head_act": ACTIVATION_NAMES,
    "position_embedding_type": ("absolute", "sinusoidal", "rotary"),
    "norm": ("layer_norm", "rms_norm"),
    "norm_placement": ("post", "pre"),
    "classifier_summary": SUMMARIES,
    "choice_summary": SUMMARIES,
    "classifier_pooling": ("cls", "mean"),
    "problem_type": PROBLEM_TYPES,
}
_POSITIVE = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "embedding_size",
    "head_dim", "max_position_embeddings", "num_labels", "local_window", "global_every", "inner_group_num",
)  # fmt: skip
MAY_BE_NONE = (
    "head_act", "head_dim", "problem_type", "classifier_dropout", "embedding_size", "local_window", "local_rope_theta",
    "quantization",
)  # fmt: skip
_LARGEST_SIZE = 2**31 - 1
_MOST_SHOWN = 80  # characters of a value in a message
_NOT_BELOW_0 = ("initializer_range", "layer_norm_eps")


def check_value(name: str, value: Any, kind: Any, key: str = "") -> None:
    """Raise InputError when a field has an invalid value; the message names `key`, the key in a file, if given."""
    label, found = key or f"model config: {name}", printable(repr(value), _MOST_SHOWN)
    is_number = type(value) in (int, float) and -_LARGEST_SIZE <= value <= _LARGEST_SIZE  # not so of NaN
    if name == "carried":
        return
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise InputError(f"{label} {found} is not known{did_you_mean(str(value), CHOICES[name])}")
    elif name in _POSITIVE or kind is int:
        least, what = (1, "positive") if name in _POSITIVE else (0, "non-negative")
        if type(value) is not int or value < least:
            raise InputError(f"{label} must be a {what} integer, found {found}")
        if value > (most := MOST_CLASSES if name == "num_labels" else _LARGEST_SIZE):
            raise InputError(f"{label} must be at most {most}, found {found}")
    elif name.endswith(("_prob", "_dropout")):
        if not is_number or not 0 <= value < 1:
            raise InputError(f"{label} must be a rate in [0, 1), found {found}")
    elif "theta" in name or name in _NOT_BELOW_0:
        what = "non-negative" if name in _NOT_BELOW_0 else "positive"
        if not is_number or value < 0 or (value == 0 and what == "positive"):
            raise InputError(f"{label} must be a {what} number, found {found}")
    elif kind is bool and not isinstance(value, bool):
        raise InputError(f"{label} must be true or false, found {found}")


def check_groups(config: Any) -> None:
    """Raise InputError when the layers cannot be divided into the groups."""
    layers, inner = config.num_hidden_layers, config.inner_group_num
    if layers % inner or (inner > 1 and not config.num_hidden_groups):
        raise InputError(
            f"model config: inner_group_num {inner} must divide num_hidden_layers {layers}, with num_hidden_groups "
            f"above 0, found {config.num_hidden_groups}"
        )
    if config.num_hidden_groups > layers // inner:
        raise InputError(
            f"model config: num_hidden_groups: expected at most {layers // inner}, the number of layers over "
            f"inner_group_num, found {config.num_hidden_groups}"
        )


def check_embedding(config: Any) -> None:
    """Raise InputError when the fields of a sentence embedding do not fit together."""
    modes = config.pooling.split("+") if isinstance(config.pooling, str) else [config.pooling]
    for mode in modes:
        if mode not in POOLINGS and modes != [mode] * (mode in SPARSE_POOLINGS):
            raise InputError(f"model config: pooling {mode!r} is not known{did_you_mean(str(mode), POOLINGS)}")
    if len(set(modes)) < len(modes):
        raise InputError(f"model config: pooling: expected each of several once, found {config.pooling!r}")
    width = config.hidden_size * len(modes)
    for i, layer in enumerate(config.embedding_layers):
        if layer.inputs != width:
            raise InputError(
                f"model config: embedding_layers[{i}] ({layer.kind}): expected {width} inputs, the output size of the "
                f"layer before, found {layer.inputs}"
            )
        width = layer.features
