"""Scores from logits, and similarities of vectors, for all pipelines, verbs and metrics."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from bert_jax.config import BertConfig

# How the class of pairs that do not match is named after the other one, and names of two classes, the match first.
_NEGATIONS = ("not", "non", "no", "un", "ir", "in", "im", "dis")
_OPPOSITES = {("yes", "no"), ("true", "false"), ("positive", "negative"), ("pos", "neg"), ("1", "0"), ("good", "bad"),
              ("entailment", "contradiction"), ("same", "different"), ("match", "mismatch")}  # fmt: skip


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis."""
    return np.exp(log_softmax(logits))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """float64 logarithms of the probabilities over the last axis."""
    exact = logits.astype(np.float64)
    shifted = exact - exact.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)) without overflow, and without rounding small values to 0."""
    return np.exp(-np.logaddexp(0, -x))


def _gelu(x: np.ndarray) -> np.ndarray:
    from scipy import special  # slow to import

    return x * 0.5 * (1 + special.erf(x / math.sqrt(2)))


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
    """Return the number of the output that is high for a pair that matches, of a classifier with one output or two.

    It is the last one, unless the names of the classes show that the first one is meant: `relevant` and `irrelevant`,
    `duplicate` and `not_duplicate`, `yes` and `no`.
    """
    names = [re.sub(r"[\W_]+", "", name.casefold()).removeprefix("is") for name in config.label_names]
    if len(names) == 2 and (tuple(names) in _OPPOSITES or names[1] in [f"{word}{names[0]}" for word in _NEGATIONS]):
        return 0
    return len(names) - 1


def short(value: float) -> float:
    """Round a score to six significant digits, as all verbs write it."""
    return float(f"{value:.6g}")


def normalize_vectors(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors `[..., D]` to unit length; a zero vector stays zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def similarities(name: str, first: Any, second: Any) -> np.ndarray:
    """Return the similarities `[N, M]` of vectors `[N, D]` and `[M, D]`, dense or both sparse; higher is more similar.

    Args:
        name: one of `bert_jax.conversion.text_settings.SIMILARITIES`; distances are negated.
        first: the vectors `[N, D]`.
        second: the vectors `[M, D]`.
    """
    return compare(name, comparable(name, first), comparable(name, second))


def without_single_axes(scores: np.ndarray, first: Any, second: Any) -> Any:
    """Return scores `[N, M]` without the axis of an argument that is one text and no list; a float for two texts."""
    if isinstance(first, str):
        return float(scores[0, 0]) if isinstance(second, str) else scores[0]
    return scores[:, 0] if isinstance(second, str) else scores


def _is_sparse(vectors: Any) -> bool:
    return hasattr(vectors, "tocsr")  # of SciPy, whose sparse arrays are slow to import


def comparable(name: str, vectors: Any) -> Any:
    """Prepare vectors `[..., D]` for repeated calls of `compare`: for cosines, scale them to length 1."""
    if name == "cosine" and _is_sparse(vectors):
        lengths = np.sqrt(vectors.multiply(vectors).sum(axis=1))
        return vectors.multiply(1 / np.maximum(lengths, 1e-12)[:, None]).tocsr()
    return normalize_vectors(vectors) if name == "cosine" else vectors


def compare(name: str, first: Any, second: Any) -> np.ndarray:
    """Return the similarities `[N, M]` of `comparable` vectors; see `similarities`."""
    if _is_sparse(first):
        if name in ("cosine", "dot"):
            return (first @ second.T).toarray()
        first, second = first.toarray(), second.toarray()
    match name:
        case "cosine" | "dot":
            return first @ second.T
        case "euclidean":  # in float64, since the distance of similar vectors is a difference of large numbers
            a, b = first.astype(np.float64), second.astype(np.float64)
            squares = np.square(a).sum(-1)[:, None] + np.square(b).sum(-1) - 2 * a @ b.T
            return -np.sqrt(np.maximum(squares, 0)).astype(np.float32)
        case _:
            rows = [-np.abs(second - vector).sum(-1) for vector in first]
            return np.stack(rows) if rows else np.zeros((0, len(second)), np.float32)


def pair_similarities(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the similarities `[N]`, float64, of the i-th vectors of `first` and `second`, `[N, D]` each."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    match name:
        case "cosine":
            return (normalize_vectors(first) * normalize_vectors(second)).sum(-1)
        case "dot":
            return (first * second).sum(-1)
        case "euclidean":
            return -np.linalg.norm(first - second, axis=-1)
        case _:
            return -np.abs(first - second).sum(-1)
