"""Metrics of sentence embeddings over a table: of similarities with labels, or of ranks and triplets without."""

from collections.abc import Sequence

import numpy as np

from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference.similarity import pair_similarities
from bert_jax.metrics import default_metrics, measure, metrics_of
from bert_jax.metrics.retrieval import retrieval_ranks


def choose_embedding_metrics(names: Sequence[str], labelled: bool, negatives: bool = False) -> tuple[str, ...]:
    """Return the metrics to report: `names`, or the default ones.

    Args:
        names: the requested metrics.
        labelled: whether the rows have labels.
        negatives: whether the rows have negatives.

    Raises:
        InputError: a metric does not apply.
    """
    kind = "similarities" if labelled else "ranks"
    fitting = metrics_of(kind) | (metrics_of("triplets") if negatives and not labelled else {})
    for name in names:
        if name not in fitting:
            rows = "with" if labelled else "with negatives, without" if negatives else "without"
            raise InputError(f"data.metrics: {name!r} is not a metric of pairs {rows} labels"
                             f"{did_you_mean(name, fitting)}")  # fmt: skip
    return tuple(names) or default_metrics(kind)


def embedding_scores(
    embeddings: np.ndarray, labels: np.ndarray | None, similarity: str, names: Sequence[str]
) -> dict[str, float]:
    """Return metrics of the embeddings of n rows.

    Args:
        embeddings: `[n, T, D]`: of a text, of its pair, and of negatives.
        labels: similarities `[n]`; None = there are none.
        similarity: as for `bert_jax.inference.similarity.similarities`.
        names: metrics of `choose_embedding_metrics`.
    """
    pairs = [pair_similarities(similarity, embeddings[:, 0], embeddings[:, i]) for i in range(1, embeddings.shape[1])]
    if labels is not None:
        return measure("similarities", names, labels, pairs[0])
    scores = measure("ranks", names, retrieval_ranks(embeddings[:, 0], embeddings[:, 1:], similarity))
    if len(pairs) > 1:
        scores |= measure("triplets", names, pairs[0], np.stack(pairs[1:], axis=1))
    return {name: scores[name] for name in names if name in scores}
