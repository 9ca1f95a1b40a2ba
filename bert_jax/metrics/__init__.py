"""Metrics of predictions against labels: classes and numbers, entities, answer spans, rankings."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bert_jax.errors import InputError, did_you_mean
from bert_jax.lazy import import_object
from bert_jax.registry import import_plugins

__all__ = [
    "KINDS", "METRICS", "Metric", "default_metrics", "lower_is_better", "measure", "metric_names", "metrics_of",
    "register_metric",
]  # fmt: skip

# Kind of predictions -> the arguments of its metrics.
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "classes": "labels and predictions, int [n]",
        "two_classes": "labels and predictions, int [n], where there are two classes; metrics of `classes` fit too",
        "label_sets": "labels and predictions, 0 and 1 [n, C], where a text may have several labels",
        "numbers": "labels and predictions, float [n]",
        "similarities": "labels of pairs and similarities of their embeddings, float [n]",
        "ranks": "ranks of the documents that answer queries, from 1, float [n]",
        "triplets": "similarities of texts to their matches, float [n], and to other texts, float [n, K]",
        "tags": "labels and predictions, a list of sentences, each a list of names of tags (as for seqeval)",
        "relations": "labels and predictions, int [n], or 0 and 1 [n, C] where a pair may have several relations",
        "texts": "references and generated texts, lists of str",
    }
)
# Kinds whose metrics of this package are computed together -> their names.
_TOGETHER = {
    "tags": "bert_jax.metrics.entities.TAGGING_METRICS",
    "relations": "bert_jax.metrics.entities.TAGGING_METRICS",
    "texts": "bert_jax.metrics.generation.TEXT_METRICS",
}


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of predictions.

    Attributes:
        name: its name in recipes, on the command line and in results.
        kinds: the kinds of predictions that it fits, keys of `KINDS`.
        function: a function of the arguments in `KINDS` that returns a number, or its import path; the first line of
            its docstring is the meaning of the metric.
        lower_is_better: whether the best model is that with the lowest value.
        default_for: the kinds for which it is reported where no metrics are named.
    """

    name: str
    kinds: Collection[str]
    function: Callable[..., Any] | str
    lower_is_better: bool = False
    default_for: Collection[str] = ()

    def __call__(self, *labels_and_predictions: Any) -> float:
        function = import_object(self.function) if isinstance(self.function, str) else self.function
        return float(function(*labels_and_predictions))


_SCORES, _PAIRS = "bert_jax.metrics.scores", "bert_jax.metrics.pairs"
_OF_CLASSES = ("classes", "two_classes")
# Results list the metrics in this order.
METRICS = (
    Metric("accuracy", _OF_CLASSES, f"{_SCORES}.accuracy", default_for=_OF_CLASSES),
    Metric("accuracy", ("label_sets",), f"{_SCORES}.all_right", default_for=("label_sets",)),
    Metric("f1", ("two_classes",), f"{_SCORES}.f1", default_for=("two_classes",)),
    Metric("micro_f1", (*_OF_CLASSES, "label_sets"), f"{_SCORES}.micro_f1", default_for=("label_sets",)),
    Metric("macro_f1", (*_OF_CLASSES, "label_sets"), f"{_SCORES}.macro_f1", default_for=("classes", "label_sets")),
    Metric("matthews", _OF_CLASSES, f"{_SCORES}.matthews", default_for=_OF_CLASSES),
    Metric("weighted_f1", (*_OF_CLASSES, "label_sets"), f"{_SCORES}.weighted_f1"),
    Metric("spearman", ("similarities",), f"{_SCORES}.spearman", default_for=("similarities",)),
    Metric("pearson", ("numbers", "similarities"), f"{_SCORES}.pearson", default_for=("numbers", "similarities")),
    Metric("spearman", ("numbers",), f"{_SCORES}.spearman", default_for=("numbers",)),
    Metric("mse", ("numbers",), f"{_SCORES}.mse", lower_is_better=True, default_for=("numbers",)),
    Metric("average_precision", ("similarities",), f"{_PAIRS}.pair_average_precision"),
    Metric("accuracy", ("similarities",), f"{_PAIRS}.best_accuracy"),
    Metric("accuracy_threshold", ("similarities",), f"{_PAIRS}.accuracy_threshold"),
    Metric("f1", ("similarities",), f"{_PAIRS}.best_f1"),
    Metric("f1_threshold", ("similarities",), f"{_PAIRS}.f1_threshold"),
    Metric("precision", ("similarities",), f"{_PAIRS}.best_f1_precision"),
    Metric("recall", ("similarities",), f"{_PAIRS}.best_f1_recall"),
    Metric("matthews", ("similarities",), f"{_PAIRS}.best_f1_matthews"),
    Metric("retrieval_accuracy", ("ranks",), "bert_jax.metrics.retrieval.retrieval_accuracy", default_for=("ranks",)),
    Metric("mrr", ("ranks",), "bert_jax.metrics.retrieval.mrr", default_for=("ranks",)),
    Metric("triplet_accuracy", ("triplets",), "bert_jax.metrics.retrieval.triplet_accuracy"),
)
_registered: dict[tuple[str, str], Metric] = {}  # kind and name -> a registered metric


def register_metric(
    name: str, function: Callable[..., Any], kinds: Collection[str] = ("classes",), *, lower_is_better: bool = False
) -> None:
    """Add a metric of your own for `data.metrics` and `best_metric` of recipes, and `--metrics` on the command line.

    Args:
        name: a new name; a metric that was registered before is replaced.
        function: a function of labels and predictions, in this order, that returns a number, such as those of
            `sklearn.metrics`. `KINDS` lists its arguments.
        kinds: the kinds of predictions that it fits, keys of `KINDS`.
        lower_is_better: whether the best model is that with the lowest value.

    Raises:
        InputError: a kind is not known, or the name is that of a metric of this package.
    """
    where = "bert_jax.metrics.register_metric"
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: expected a name, found {name!r}")
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"{where}: kind {kind!r} is not known{did_you_mean(str(kind), KINDS)}")
        package_metrics = _own("two_classes" if kind == "classes" else kind)  # metrics of `classes` fit two classes too
        if name in (import_object(_TOGETHER[kind]) if kind in _TOGETHER else package_metrics):
            raise InputError(f"{where}: expected a new name for {kind}, found {name!r}, which bert_jax has")
    _registered.update({(kind, name): Metric(name, kinds, function, lower_is_better) for kind in kinds})


def metrics_of(kind: str) -> dict[str, Metric]:
    """Return the metrics that fit a kind of predictions by name: those of this package and registered ones.

    This package's metrics of tags, relations and texts are computed together and not included.
    """
    import_plugins()
    fitting = ("classes", "two_classes") if kind == "two_classes" else (kind,)
    registered = {name: metric for fit in fitting for (of, name), metric in _registered.items() if of == fit}
    return _own(kind) | registered


def default_metrics(kind: str) -> tuple[str, ...]:
    """Return the names of the metrics that are reported for a kind of predictions where none are named."""
    return tuple(name for name, metric in _own(kind).items() if kind in metric.default_for)


def metric_names(*kinds: str) -> str:
    """Return the names of this package's metrics of some kinds of predictions, separated by commas."""
    return ", ".join(dict.fromkeys(name for kind in kinds for name in _own(kind)))


def measure(kind: str, names: Sequence[str], *labels_and_predictions: Any) -> dict[str, float]:
    """Return metrics by name.

    Args:
        kind: the kind of predictions.
        names: the metrics; those that are not of `metrics_of` are left out.
        labels_and_predictions: the arguments in `KINDS`.
    """
    known = metrics_of(kind)
    return {name: known[name](*labels_and_predictions) for name in names if name in known}


def lower_is_better(name: str) -> bool:
    """Return whether lower values of a metric are better, as for a loss, perplexity or error."""
    import_plugins()
    lower = {metric.name for metric in (*METRICS, *_registered.values()) if metric.lower_is_better}
    return name.rpartition("/")[2] in lower or name.endswith(("loss", "perplexity", "error"))


def _own(kind: str) -> dict[str, Metric]:
    return {metric.name: metric for metric in METRICS if kind in metric.kinds}
