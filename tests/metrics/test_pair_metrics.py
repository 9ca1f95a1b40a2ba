"""Metrics of pairs with labels of 0 and 1, and of triplets, beside scikit-learn, by hand and as in
sentence-transformers."""

import numpy as np
import pytest

from bert_jax.errors import InputError
from bert_jax.inference.similarity import pair_similarities
from bert_jax.metrics import default_metrics, measure
from bert_jax.metrics.retrieval import triplet_accuracy

NAMES = ("average_precision", "accuracy", "accuracy_threshold", "f1", "f1_threshold", "precision", "recall", "matthews")
ST_NAMES = {"average_precision": "ap", "matthews": "mcc"}


def rows(seed, count=60, ties=False):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    similarities = rng.normal(size=count) + labels
    return labels.astype(np.float32), np.round(similarities, 1) if ties else similarities


@pytest.mark.parametrize("ties", [False, True])
def test_the_thresholds_are_the_best_of_all(ties):
    metrics = pytest.importorskip("sklearn.metrics")
    labels, similarities = rows(0, ties=ties)
    found = measure("similarities", NAMES, labels, similarities)
    cuts = [similarities >= cut for cut in [*similarities, np.inf]]
    assert found["accuracy"] == max(np.mean((labels == 1) == cut) for cut in cuts)
    assert found["f1"] == pytest.approx(max(metrics.f1_score(labels, cut, zero_division=0) for cut in cuts))
    at_accuracy, at_f1 = (similarities >= found[f"{name}_threshold"] for name in ("accuracy", "f1"))
    assert np.mean((labels == 1) == at_accuracy) == found["accuracy"]
    assert found["precision"] == pytest.approx(metrics.precision_score(labels, at_f1))
    assert found["recall"] == pytest.approx(metrics.recall_score(labels, at_f1))
    assert found["matthews"] == pytest.approx(metrics.matthews_corrcoef(labels, at_f1))
    assert found["average_precision"] == pytest.approx(metrics.average_precision_score(labels, similarities))


def test_rows_of_one_label():
    zeros = measure("similarities", NAMES, np.zeros(3), np.arange(3.0))
    assert zeros["accuracy"] == 1 and zeros["accuracy_threshold"] > 2 and zeros["f1"] == zeros["average_precision"] == 0
    ones = measure("similarities", NAMES, np.ones(3), np.arange(3.0))
    assert ones["accuracy"] == ones["f1"] == ones["average_precision"] == 1 and ones["f1_threshold"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_other_labels(name):
    with pytest.raises(InputError, match="expected labels of 0 and 1 for metrics with a threshold, found 3"):
        measure("similarities", (name,), np.array([0, 3.0]), np.arange(2.0))


def test_triplets_by_hand():
    assert triplet_accuracy(np.array([0.5, 0.2]), np.array([[0.4, 0.5], [0.1, 0.3]])) == 0.5
    assert default_metrics("similarities") == ("spearman", "pearson") and default_metrics("triplets") == ()


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
@pytest.mark.parametrize("seed", range(4))
def test_values_are_those_of_sentence_transformers(similarity, seed):
    """The evaluators get float64 embeddings in place of a model."""
    torch = pytest.importorskip("torch")
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    rng = np.random.default_rng(seed)
    first, second, third = (rng.normal(size=(70, 5)) for _ in range(3))
    first[:9] = first[0]  # ties
    second[:9] = second[0]
    labels = rng.integers(0, 2, 70)
    texts = [[f"{side}{i}" for i in range(70)] for side in "abc"]
    vectors = dict(
        zip([*texts[0], *texts[1], *texts[2]], torch.tensor(np.concatenate([first, second, third])), strict=True)
    )

    def embed(self, model, sentences, **kwargs):
        return torch.stack([vectors[text] for text in sentences])

    binary = evaluation.BinaryClassificationEvaluator(*texts[:2], labels.tolist(), similarity_fn_names=[similarity])
    binary.embed_inputs = embed.__get__(binary)
    expected = binary.compute_metrics(None)[similarity]
    found = measure("similarities", NAMES, labels, pair_similarities(similarity, first, second))
    distance = similarity in ("euclidean", "manhattan")  # there a threshold is a distance; ours is its negative
    for name in NAMES:
        value = expected[ST_NAMES.get(name, name)]
        sign = -1 if distance and name.endswith("_threshold") else 1
        assert found[name] == pytest.approx(sign * value, rel=1e-9, abs=1e-12), name

    triplets = evaluation.TripletEvaluator(*texts, similarity_fn_names=[similarity])
    triplets.embed_inputs = embed.__get__(triplets)
    triplets.store_metrics_in_model_card_data = lambda *args: None
    model = type("Model", (), {"similarity_fn_name": similarity})()
    alike = [pair_similarities(similarity, first, other) for other in (second, third)]
    accuracy = triplet_accuracy(alike[0], alike[1][:, None])
    assert triplets(model)[f"{similarity}_accuracy"] == pytest.approx(accuracy, abs=1e-6)
