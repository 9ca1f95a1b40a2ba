"""Scores from logits, for all pipelines, CLI verbs and metrics."""

import math
import re
from collections.abc import Callable

import numpy as np

from bert_jax.config import BertConfig

# To tell which of two classes means `match`: prefixes that negate its name, and pairs of (match, other) names.
_NEGATIONS = ("not", "non", "no", "un", "ir", "in", "im", "dis")
_OPPOSITES = {("yes", "no"), ("true", "false"), ("positive", "negative"), ("pos", "neg"), ("1", "0"), ("good", "bad"),
              ("entailment", "contradiction"), ("same", "different"), ("match", "mismatch")}  # fmt: skip
_Float64 = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis."""
    return np.exp(log_softmax(logits))


def log_softmax(logits: np.ndarray) -> _Float64:
    """Return the log-softmax over the last axis, in float64."""
    exact = logits.astype(np.float64)
    exact -= exact.max(axis=-1, keepdims=True)
    exact -= np.log(np.exp(exact).sum(axis=-1, keepdims=True))
    return exact


def sigmoid(x: _Float64) -> np.ndarray:
    """Return 1 / (1 + exp(-x)) without overflow, and without rounding small values to 0."""
    return np.exp(-np.logaddexp(0, -x))


def _gelu(x: np.ndarray) -> np.ndarray:
    from scipy import special  # slow to import

    y: np.ndarray = x * 0.5 * (1 + special.erf(x / math.sqrt(2)))
    return y


# Activations of torch.nn in float64, by the names of `bert_jax.config.values.LAYER_ACTIVATIONS`, and softmax.
_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda x: x,
    "sigmoid": sigmoid,
    "softmax": softmax,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "silu": lambda x: x * sigmoid(x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "softplus": lambda x: np.logaddexp(0, x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
}


def score_activation(config: BertConfig, named: str = "") -> str:
    """Return the name of the activation that turns a sequence classifier's logits into scores.

    This is the activation that the model's files name (`named`), unless it is the identity over several classes.
    Otherwise it follows transformers: identity for a regression, sigmoid for multi-label models and for one output,
    softmax for classes.

    Returns:
        One of `bert_jax.config.values.LAYER_ACTIVATIONS`, or `softmax`.
    """
    if named and not (named == "identity" and config.num_labels > 1):
        return named
    if config.problem_type == "regression":
        return "identity"
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return "sigmoid"
    return "softmax"


def is_number(config: BertConfig) -> bool:
    """Return whether a sequence classifier predicts a number, not classes: it has one output."""
    return config.num_labels == 1


def activate(name: str, logits: np.ndarray) -> np.ndarray:
    """Apply the activation `name` to logits `[..., C]`, in float64."""
    return _ACTIVATIONS[name](logits.astype(np.float64))


def scores_of(config: BertConfig, logits: np.ndarray, named: str = "") -> np.ndarray:
    """Return the float64 scores `[..., C]` of a sequence classifier's logits `[..., C]`; see `score_activation`."""
    return activate(score_activation(config, named), logits)


def match_output(config: BertConfig) -> int:
    """Return the index of the output that is high for matching pairs, in a classifier with one or two outputs.

    It is the last one, unless the names of the classes show that it is the first one: `relevant` and `irrelevant`,
    `duplicate` and `not_duplicate`, `yes` and `no`.
    """
    names = [re.sub(r"[\W_]+", "", name.casefold()).removeprefix("is") for name in config.label_names]
    if len(names) == 2 and (tuple(names) in _OPPOSITES or names[1] in [f"{word}{names[0]}" for word in _NEGATIONS]):
        return 0
    return len(names) - 1


def short(value: float) -> float:
    """Round a score to six significant digits, as all CLI verbs write it."""
    return float(f"{value:.6g}")
