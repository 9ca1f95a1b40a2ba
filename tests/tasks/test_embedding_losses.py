"""Losses of sentence embeddings beside sentence-transformers' losses of the same name."""

import pathlib

import numpy as np
import pytest
from given_embeddings import loss_and_gradients, random_embeddings, theirs

LABELS = np.array([0.3, 0.9, 0.3, -0.5, 0.1, 0.9], np.float32)  # two ties


@pytest.fixture(scope="module")
def losses():
    return pytest.importorskip("sentence_transformers.sentence_transformer.losses")


def check(ours, expected, wanted):
    assert ours[0] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(ours[1], wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("size", [8, 7])
@pytest.mark.parametrize(("name", "cls"), [("cosent", "CoSENTLoss"), ("angle", "AnglELoss")])
def test_cosent_and_angle(losses, name, cls, size):
    vectors = random_embeddings(2, size=size)
    expected, wanted = theirs(getattr(losses, cls), vectors, LABELS)
    ours = loss_and_gradients(vectors, labels=LABELS, loss_name=name)
    check(ours, expected, wanted)
    assert ours[2] == {f"{name}_loss": pytest.approx(expected)}


@pytest.mark.parametrize("name", ["cosent", "angle"])
def test_padded_rows_are_in_no_pair(name):
    vectors, real = random_embeddings(2), np.array([1, 1, 0, 1, 1, 0], np.float32)
    vectors[real == 0] = 0
    loss, grads, _ = loss_and_gradients(vectors, real, LABELS, loss_name=name)
    expected, wanted, _ = loss_and_gradients(vectors[real > 0], None, LABELS[real > 0], loss_name=name)
    assert loss == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(grads[real > 0], wanted, atol=1e-6)
    assert not grads[real == 0].any()


def test_rows_of_one_label_have_no_pair():
    loss, grads, _ = loss_and_gradients(random_embeddings(2), labels=np.ones(6, np.float32), loss_name="cosent")
    assert loss == 0 and not grads.any()


@pytest.mark.parametrize(
    ("name", "cls", "texts"),
    [
        ("in_batch_negatives", "MultipleNegativesRankingLoss", 3),
        ("cosine", "CosineSimilarityLoss", 2),
        ("cosent", "CoSENTLoss", 2),
        ("triplet", "TripletLoss", 3),
    ],
)
def test_matryoshka(losses, name, cls, texts):
    vectors, labels = random_embeddings(texts), LABELS if texts == 2 else None
    options = {"margin": 5.0} if name == "triplet" else {}

    def make(model):
        return losses.MatryoshkaLoss(model, getattr(losses, cls)(model), [8, 4, 2], [1.0, 0.5, 2.0])

    expected, wanted = theirs(make, vectors, labels)
    dims = ((8, 1.0), (4, 0.5), (2, 2.0))
    loss, grads, found = loss_and_gradients(vectors, labels=labels, loss_name=name, matryoshka=dims, **options)
    check((loss, grads), expected, wanted)
    assert {key.rpartition("_")[2] for key in found} == {"8", "4", "2"}


def test_a_batch_has_one_loss_on_any_mesh_and_in_any_number_of_parts(on_eight_devices):
    found = on_eight_devices(pathlib.Path(__file__).with_name("embedding_loss_meshes.py"))
    for name, runs in found.items():
        values, apart = runs
        assert values == pytest.approx([values[0]] * len(values), rel=1e-5), name
        assert max(apart) < 1e-4, name
