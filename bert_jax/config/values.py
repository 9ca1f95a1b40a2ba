"""Tables of values of `BertConfig`'s fields, and checks of fields that must fit together."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_jax.errors import InputError, did_you_mean

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
SPLADE_POOLINGS = ("splade_max", "splade_sum", "splade_max_log1p", "splade_sum_log1p")  # poolings of masked-LM logits
SPARSE_POOLINGS = (*SPLADE_POOLINGS, "lexical")  # lexical: a weight for each token of the text
LAYER_ACTIVATIONS = ("identity", "tanh", "sigmoid", "relu", "gelu", "silu", "elu", "leaky_relu", "softplus", "mish")
SUMMARIES = ("pooler", "tanh", "relu", "gelu", "hidden_act", "transform", "none")


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


def shortest_period(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the shortest prefix of `values` whose repetition begins with `values`."""
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
        raise InputError(f"model config: pooling: expected each pooling once, found {config.pooling!r}")
    width = config.hidden_size * len(modes)
    for i, layer in enumerate(config.embedding_layers):
        if layer.inputs != width:
            raise InputError(
                f"model config: embedding_layers[{i}] ({layer.kind}): expected {width} inputs, the output size of the "
                f"layer before, found {layer.inputs}"
            )
        width = layer.features
