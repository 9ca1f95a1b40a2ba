"""Losses of sentence embeddings beside sentence-transformers' losses of the same name."""

import pathlib

import jax
import numpy as np
import pytest
from given_embeddings import loss_and_gradients, random_embeddings, theirs

from bert_jax.tasks.embedding.in_batch_negatives import Contrast, in_batch_negatives, text_numbers

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


@pytest.mark.sampled(3)
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


def test_margin_mse(losses):
    vectors, margins = random_embeddings(3), 4 * LABELS
    expected, wanted = theirs(losses.MarginMSELoss, vectors, margins)
    ours = loss_and_gradients(vectors, labels=margins, loss_name="margin_mse")
    check(ours, expected, wanted)
    assert ours[2] == {"margin_mse": pytest.approx(expected)}


def guided_by_theirs(losses, vectors, guide, contrast):
    """The loss and gradients of CachedGISTEmbedLoss, for embeddings of model and guide [B, T, D]."""
    import torch

    loss = losses.CachedGISTEmbedLoss.__new__(losses.CachedGISTEmbedLoss)
    torch.nn.Module.__init__(loss)
    loss.temperature, loss.similarity_fct, loss.mini_batch_size = 1 / 20, torch.nn.CosineSimilarity(dim=-1), 4
    loss.margin_strategy, loss.margin = contrast.strategy, contrast.margin
    loss.contrast_anchors, loss.contrast_positives = contrast.anchors, contrast.positives
    loss.gather_across_devices, loss.show_progress_bar = False, False
    loss.cross_entropy_loss = torch.nn.CrossEntropyLoss()
    leaf, texts = torch.tensor(vectors, requires_grad=True), range(vectors.shape[1])
    value = loss.calculate_loss([[leaf[:, i]] for i in texts], [[torch.tensor(guide[:, i])] for i in texts])
    value.backward()
    return float(value.detach()), leaf.grad.numpy()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("texts", [2, 4])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    "contrast",
    [
        Contrast(),
        Contrast(True, True),
        Contrast(True, False, 0.2),
        Contrast(False, True, 0.4, "relative"),
    ],
)
def test_a_guide_masks_false_negatives(losses, texts, parts, contrast):
    vectors = random_embeddings(texts)
    guide = np.random.default_rng(9).normal(size=(6, texts, 5)).astype(np.float32)
    guide[:, 1] += 0.3 * guide[:, 0]  # pairs are somewhat alike
    expected, wanted = guided_by_theirs(losses, vectors, guide, contrast)
    options = {"loss_name": "in_batch_negatives", "contrast": contrast, "more": {"guide_embeddings": guide}}
    loss, grads, _ = loss_and_gradients(vectors, guided=True, **options)
    check((loss, grads), expected, wanted)
    assert loss < loss_and_gradients(vectors, guided=False, **options)[0]  # something is masked
    real = np.ones(6, np.float32)
    loss, grads = jax.value_and_grad(lambda v: in_batch_negatives(v, real, 20.0, parts, contrast, guide)[0].mean())(
        vectors
    )
    check((float(loss), grads), expected, wanted)


@pytest.mark.parametrize("parts", [1, 3])
def test_equal_texts_are_no_negatives(parts):
    """Rows 0 and 3 have the same pair, and row 4's negative is the text of row 5."""
    vectors, real = random_embeddings(3), np.ones(6, np.float32)
    texts = np.arange(18, dtype=np.uint32).reshape(6, 3)
    texts[3, 1], texts[4, 2] = texts[0, 1], texts[5, 0]
    units = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    logits = 2 * np.einsum("bd,nkd->bkn", units[:, 0], units[:, 1:]).astype(np.float64)  # [B, T - 1, B]
    logits[0, 0, 3] = logits[3, 0, 0] = logits[5, 1, 4] = -np.inf
    own = logits[np.arange(6), 0, np.arange(6)]
    expected = np.log(np.exp(logits).sum((1, 2))) - own
    losses, _ = in_batch_negatives(vectors, real, 2.0, parts, texts=texts)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    unmasked, _ = in_batch_negatives(vectors, real, 2.0, parts)
    assert (np.asarray(unmasked) - np.asarray(losses))[[0, 3, 5]].min() > 0


def test_equal_texts_have_equal_numbers():
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(0, 500, (4000, 2, 12)), np.ones((4000, 2, 12), np.int32)
    mask[:, :, 9:] = 0
    found = np.asarray(text_numbers(ids, mask))
    assert len(np.unique(found)) == 8000
    ids[:, :, 9:] = 0  # padding of another kind, and another padded length
    np.testing.assert_array_equal(text_numbers(ids[..., :9], mask[..., :9]), found)
    assert (np.asarray(text_numbers(ids[..., ::-1], mask[..., ::-1])) != found).all()


def test_padded_rows_are_no_choices_of_a_contrast():
    vectors, real = random_embeddings(3), np.array([1, 1, 0, 1, 1, 0], np.float32)
    guide = random_embeddings(3)[..., :5]
    options = {"loss_name": "in_batch_negatives", "contrast": Contrast(True, True), "guided": True}
    loss, grads, _ = loss_and_gradients(vectors, real, more={"guide_embeddings": guide}, **options)
    kept = real > 0
    expected, wanted, _ = loss_and_gradients(vectors[kept], more={"guide_embeddings": guide[kept]}, **options)
    check((loss, grads[kept]), expected, wanted)
    assert not grads[~kept].any()


@pytest.mark.slow
@pytest.mark.parametrize("ways", ["last", "all"])
def test_a_batch_has_one_loss_on_any_mesh_and_in_any_number_of_parts(on_eight_devices, ways):
    found = on_eight_devices(pathlib.Path(__file__).with_name("embedding_loss_meshes.py"), ways)
    for name, runs in found.items():
        values, apart = runs
        assert values == pytest.approx([values[0]] * len(values), rel=1e-5), name
        assert max(apart) < 5e-5, name
