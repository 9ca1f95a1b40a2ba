"""The values that the fields of `BertConfig` may have, alone and together."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from bert_jax.errors import InputError, did_you_mean, printable
from bert_jax.families import FAMILIES
from bert_jax.model_files.labels import MOST_CLASSES

# (layers, hidden size, heads): base and large from Devlin et al. 2018 (arXiv:1810.04805) section 3, the others from
# Turc et al. 2019 (arXiv:1908.08962) table 1. The feed-forward size is always 4 times the hidden size.
SIZES: dict[str, tuple[int, int, int]] = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
ACTIVATION_NAMES = (
    "gelu", "gelu_tanh", "relu", "silu", "tanh", "gelu_10", "quick_gelu", "leaky_relu", "linear", "mish", "relu2",
    "relu6", "sigmoid",
)  # fmt: skip
PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
SPLADE_POOLINGS = ("splade_max", "splade_sum", "splade_max_log1p", "splade_sum_log1p")  # of masked-LM logits
SPARSE_POOLINGS = (*SPLADE_POOLINGS, "lexical")  # lexical: a weight of each token of the text
LAYER_ACTIVATIONS = ("identity", "tanh", "sigmoid", "relu", "gelu", "silu", "elu", "leaky_relu", "softplus", "mish")
POS_ATT_TYPES = ("c2p", "p2c")  # content to position, position to content
SUMMARIES = ("pooler", "tanh", "relu", "gelu", "hidden_act", "transform")
CHOICES: dict[str, Collection[str]] = {
    "family": FAMILIES,
    "hidden_act": ACTIVATION_NAMES,
    "conv_act": ACTIVATION_NAMES,
    "head_act": ACTIVATION_NAMES,
    "position_embedding_type": ("absolute", "sinusoidal", "rotary", "alibi", "none"),
    "norm": ("layer_norm", "rms_norm", "no_norm"),
    "norm_placement": ("post", "pre"),
    "mlp_dropout_at": ("output", "input", "both"),
    "classifier_summary": SUMMARIES,
    "choice_summary": SUMMARIES,
    "classifier_pooling": ("cls", "mean", "late"),
    "problem_type": PROBLEM_TYPES,
    "attention_type": ("original_full", "block_sparse"),
    "span_head": ("dense", "feed_forward"),
}
_POSITIVE = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
    "embedding_size", "head_dim", "max_position_embeddings", "num_labels", "local_window", "global_every",
    "num_hidden_groups", "inner_group_num", "num_experts", "block_size", "moe_top_k", "moe_every_n_layers",
    "num_feedforward_networks",
)  # fmt: skip
MAY_BE_NONE = (
    "head_act", "head_dim", "num_key_value_heads", "problem_type", "classifier_dropout", "embedding_size",
    "local_window", "local_rope_theta", "quantization", "mask_token_id", "sep_token_id", "embedding_mlp_norm_eps",
    "gliner",
)  # fmt: skip
LARGEST_SIZE = 2**31 - 1
_MOST_SHOWN = 80  # characters of a value in a message
_NOT_BELOW_0 = ("initializer_range", "layer_norm_eps", "embedding_mlp_norm_eps")


@dataclasses.dataclass(frozen=True)
class EmbeddingLayer:
    """A layer after the pooling of a sentence embedding model.

    Attributes:
        kind: `dense`, `layer_norm`, `normalize` or `dropout`.
        inputs: width of the input.
        features: width of the output.
        bias: whether a `dense` layer has a bias.
        activation: activation of a `dense` layer, one of `LAYER_ACTIVATIONS`.
        residual: whether a `dense` layer adds its input to its output, through a kernel if the widths differ.
        rate: rate of `dropout`.
    """

    kind: str
    inputs: int
    features: int
    bias: bool = True
    activation: str = "identity"
    residual: bool = False
    rate: float = 0.0


def check_value(name: str, value: Any, kind: Any, key: str = "") -> None:
    """Raise InputError when a field has an invalid value; the message names `key`, the key in a file, if given."""
    label, found = key or f"model config: {name}", printable(repr(value), _MOST_SHOWN)
    is_number = type(value) in (int, float) and -LARGEST_SIZE <= value <= LARGEST_SIZE  # not so of NaN
    if name == "carried":
        return
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise InputError(f"{label} {found} is not known{did_you_mean(str(value), CHOICES[name])}")
    elif name in _POSITIVE or kind is int or name == "sep_token_id":
        least, what = (1, "positive") if name in _POSITIVE else (0, "non-negative")
        if type(value) is not int or value < least:
            raise InputError(f"{label} must be a {what} integer, found {found}")
        if value > (most := MOST_CLASSES if name == "num_labels" else LARGEST_SIZE):
            raise InputError(f"{label} must be at most {most}, found {found}")
    elif name.endswith(("_prob", "_dropout")) and kind is not bool:
        if not is_number or not 0 <= value < 1:
            raise InputError(f"{label} must be a rate in [0, 1), found {found}")
    elif "theta" in name or name == "rope_factor" or name in _NOT_BELOW_0:
        what = "non-negative" if name in _NOT_BELOW_0 else "positive"
        if not is_number or value < 0 or (value == 0 and what == "positive"):
            raise InputError(f"{label} must be a {what} number, found {found}")
    elif kind is bool and not isinstance(value, bool):
        raise InputError(f"{label} must be true or false, found {found}")


def shortest_period(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the shortest first part of `values` that, repeated, gives all of them."""
    count = len(values)
    size = next(n for n in range(1, count + 1) if all(values[i] == values[i % n] for i in range(count)))
    return tuple(values[:size])


def check_fields_together(config: Any) -> None:
    """Raise InputError when fields of a `BertConfig`, each valid by itself, do not fit together."""
    if config.head_dim is None and config.inner_size % config.num_attention_heads:
        name = "hidden_size" if config.inner_size == config.hidden_size else "intra_bottleneck_size"
        raise InputError(
            f"model config: num_attention_heads {config.num_attention_heads} must divide {name} {config.inner_size}"
        )
    _check_embedding(config)


def _check_embedding(config: Any) -> None:
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
