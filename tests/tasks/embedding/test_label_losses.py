"""Losses over labels and classes beside sentence-transformers' losses of the same names, in float64."""

import functools

import jax
import numpy as np
import pytest
from given_embeddings import loss_and_gradients, random_embeddings, theirs

from bert_jax.tasks.embedding.dense.label_losses import label_loss

CLASSES = np.array([0, 1, 0, 2, 1, 0, 3, 2], np.float32)  # one class with a single row
BINARY = np.array([1, 0, 1, 0, 0, 1], np.float32)
TRIPLETS = {
    "batch_hard_triplet": "BatchHardTripletLoss",
    "batch_hard_soft_margin_triplet": "BatchHardSoftMarginTripletLoss",
    "batch_semi_hard_triplet": "BatchSemiHardTripletLoss",
    "batch_all_triplet": "BatchAllTripletLoss",
}
PAIRS = {"contrastive": "ContrastiveLoss", "online_contrastive": "OnlineContrastiveLoss"}


@pytest.fixture(scope="module")
def losses():
    return pytest.importorskip("sentence_transformers.sentence_transformer.losses")


def in_float64(name, vectors, labels, real=None, distance="euclidean", margin=1.0, scale=20.0):
    """The loss and its gradient by `label_loss`, in float64."""
    real = np.ones(len(vectors)) if real is None else real

    def loss(vectors):
        losses, _ = label_loss(name, vectors, labels, real, distance, margin, scale)
        return (losses * real).sum() / real.sum() if losses.ndim else losses

    with jax.enable_x64(True):
        value, grads = jax.value_and_grad(loss)(vectors.astype(np.float64))
        return float(value), np.asarray(grads)


def triplets_by_theirs(losses, name, vectors, classes, distance, margin):
    distances = losses.BatchHardTripletLossDistanceFunction
    options = {"distance_metric": getattr(distances, f"{distance}_distance")}
    if "soft" not in name:
        options["margin"] = margin
    make = functools.partial(getattr(losses, TRIPLETS[name]), **options)
    return theirs(make, vectors.astype(np.float64), classes)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", TRIPLETS)
@pytest.mark.parametrize(("distance", "margin"), [("euclidean", 2.0), ("cosine", 0.4)])
@pytest.mark.parametrize("classes", [CLASSES, np.arange(8.0), np.zeros(8)], ids=["four", "each", "one"])
def test_triplets_of_a_batch(losses, name, distance, margin, classes):
    vectors = random_embeddings(1, rows=8)
    expected, wanted = triplets_by_theirs(losses, name, vectors, classes, distance, margin)
    loss, grads = in_float64(name, vectors, classes, distance=distance, margin=margin)
    assert loss == pytest.approx(expected, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(grads, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIPLETS)
@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_triplets_of_many_batches(losses, name, distance):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        margin, vectors = float(rng.uniform(0.1, 5)), rng.normal(size=(24, 1, 6)).astype(np.float32)
        classes = rng.integers(0, rng.integers(1, 8), 24).astype(np.float64)
        expected, wanted = triplets_by_theirs(losses, name, vectors, classes, distance, margin)
        loss, grads = in_float64(name, vectors, classes, distance=distance, margin=margin)
        assert loss == pytest.approx(expected, rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(grads, wanted, rtol=1e-5, atol=1e-9)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("distance", "margin"), [("euclidean", 5.0), ("cosine", 0.9)])
@pytest.mark.parametrize("labels", [BINARY, np.ones(6), np.zeros(6)], ids=["both", "alike", "unlike"])
def test_pairs(losses, name, distance, margin, labels):
    vectors = random_embeddings(2).astype(np.float64)
    metrics = losses.SiameseDistanceMetric
    metric = metrics.COSINE_DISTANCE if distance == "cosine" else metrics.EUCLIDEAN
    make = functools.partial(getattr(losses, PAIRS[name]), distance_metric=metric, margin=margin)
    # PyTorch adds 1e-6 to the differences of vectors before it takes their length.
    shifted = vectors - (distance == "euclidean") * np.array([1e-6, 0])[:, None]
    expected, wanted = theirs(make, shifted, labels)
    loss, grads = in_float64(name, vectors, labels, distance=distance, margin=margin)
    assert loss == pytest.approx(expected, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(grads, wanted, rtol=1e-6, atol=1e-9)


def test_supervised_contrastive_by_hand():
    vectors = random_embeddings(1, rows=8)[:, 0].astype(np.float64)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    losses = []
    for i in range(8):
        others = [j for j in range(8) if j != i]
        total = np.log(sum(np.exp(5 * units[i] @ units[j]) for j in others))
        alike = [total - 5 * units[i] @ units[j] for j in others if CLASSES[i] == CLASSES[j]]
        losses.append(np.mean(alike) if alike else 0)
    assert in_float64("supervised_contrastive", vectors[:, None], CLASSES, scale=5.0)[0] == pytest.approx(
        np.mean(losses)
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*TRIPLETS, *PAIRS, "supervised_contrastive"])
def test_padded_rows_are_in_no_pair(name):
    texts, real = 2 if name in PAIRS else 1, np.array([1, 0, 1, 1, 0, 1], np.float32)
    vectors, labels = random_embeddings(texts), 1 - BINARY if name in PAIRS else BINARY  # some of these pairs are hard
    vectors[real == 0] = 0
    loss, grads, metrics = loss_and_gradients(vectors, real, labels, loss_name=name, margin=2.0)
    kept = real > 0
    expected, wanted, found = loss_and_gradients(vectors[kept], None, labels[kept], loss_name=name, margin=2.0)
    assert loss > 0 and loss == pytest.approx(expected, rel=1e-6) and metrics == pytest.approx(found, rel=1e-5)
    np.testing.assert_allclose(grads[kept], wanted, atol=1e-6)
    assert not grads[~kept].any()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*TRIPLETS, *PAIRS, "supervised_contrastive"])
def test_equal_texts_and_padding_alone_have_finite_gradients(name):
    texts = 2 if name in PAIRS else 1
    vectors = np.ones((6, texts, 8), np.float32)
    for real in (None, np.zeros(6, np.float32)):
        loss, grads, _ = loss_and_gradients(vectors, real, BINARY, loss_name=name)
        assert np.isfinite(loss) and np.isfinite(grads).all()
