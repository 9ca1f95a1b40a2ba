"""The cross entropy over a vocabulary whose logits are never held at once, beside the one of all logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.modeling import Bert, Compute, losses
from bert_jax.modeling.losses import (
    cross_entropy,
    vocabulary_cross_entropy,
    vocabulary_cross_entropy_and_samples,
)

ROWS, POSITIONS, SIZE, VOCABULARY = 6, 40, 32, 101


def inputs():
    random = np.random.default_rng(0)
    x, table = random.standard_normal((ROWS, POSITIONS, SIZE)), random.standard_normal((VOCABULARY, SIZE)) / 2
    labels = random.integers(0, VOCABULARY, (ROWS, POSITIONS)).astype(np.int32)
    return jnp.asarray(x, jnp.float32), labels, jnp.asarray(table, jnp.float32), jnp.linspace(-1, 1, VOCABULARY)


def run(function):
    """Losses, hits and gradients, for cotangents that differ from token to token and are 0 for some."""
    x, labels, table, bias = inputs()

    def total(x, table, bias):
        found, right = function(x, labels, table, bias)
        return (found * jnp.maximum(jnp.sin(jnp.arange(found.size)), 0).reshape(found.shape)).sum(), (found, right)

    (_, found), gradients = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(x, table, bias)
    return *found, *gradients


def of_all_logits(x, labels, table, bias):
    logits = jnp.einsum("bpd,vd->bpv", x, table, precision=jax.lax.Precision.HIGHEST) + bias
    return cross_entropy(logits, labels)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("tokens_at_once", [40, 100, 512])
def test_it_is_the_cross_entropy_of_all_logits(platform, tokens_at_once, monkeypatch):
    monkeypatch.setattr(losses, "_TOKENS", tokens_at_once)
    found = run(lambda *a: vocabulary_cross_entropy(*a, Compute(platform=platform)))
    for a, b in zip(found, run(of_all_logits), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_in_bfloat16_it_is_as_near_as_products_of_bfloat16_are(platform):
    found, exact = (
        run(lambda *a: vocabulary_cross_entropy(*a, Compute("bfloat16", platform=platform))),
        run(of_all_logits),
    )
    assert all(array.dtype == jnp.float32 for array in found)
    assert np.abs(found[0] - exact[0]).max() < 0.05
    for a, b in zip(found[2:], exact[2:], strict=True):
        assert np.linalg.norm(a - b) < 0.01 * np.linalg.norm(b)


@pytest.mark.parametrize("seed", [0, 1])
def test_samples_come_as_often_as_the_softmax_says(seed):
    x = jnp.zeros((400, 500, 1))  # every token has the bias alone for its logits
    bias, table = jnp.asarray([2.0, 0.0, -1.0, -3.0, 1.0, 0.5, -9.0]), jnp.zeros((7, 1))
    draw = jax.jit(vocabulary_cross_entropy_and_samples, static_argnums=5)
    samples = draw(x, jnp.zeros((400, 500), jnp.int32), table, bias, jax.random.key(seed), Compute())[2]
    expected = np.asarray(jax.nn.softmax(bias), np.float64) * samples.size
    found = np.bincount(np.asarray(samples).ravel(), minlength=7)
    assert (np.square(found - expected) / expected).sum() < 22.5  # chi-square of 6 degrees: once in a thousand


def test_what_is_drawn_does_not_depend_on_parts_and_losses_are_the_same(monkeypatch):
    def run(platform):
        key, compute = jax.random.key(0), Compute(platform=platform)
        return jax.jit(lambda *a: vocabulary_cross_entropy_and_samples(*a, key, compute))(*inputs())

    whole, (losses_alone, right_alone) = run("cpu"), vocabulary_cross_entropy(*inputs(), Compute(platform="cpu"))
    monkeypatch.setattr(losses, "_TOKENS", 40)
    parts = run("tpu")
    np.testing.assert_array_equal(whole[2], parts[2])
    assert whole[2].dtype == jnp.int32 and len(np.unique(whole[2])) > VOCABULARY // 2
    for found in (whole, parts):
        np.testing.assert_allclose(found[0], losses_alone, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found[1], right_alone)


@pytest.mark.slow
def test_devices_hold_parts_and_agree(on_a_mesh):
    assert on_a_mesh["losses"] < 1e-4


def test_no_part_is_as_large_as_the_whole():
    assert losses.number_of_parts(16, 77) == 4
    assert losses.number_of_parts(256, 20) == 16
    assert losses.number_of_parts(2, 20) == 2


@pytest.mark.parametrize("head", ["pretraining", "masked_lm"])
def test_a_model_gives_losses_for_labels(head):
    from test_models import CONFIG, batch

    model = Bert(CONFIG, head)
    params, given = model.init(jax.random.key(0)), batch()
    positions = np.array([[1, 2], [0, 2], [2, 1], [1, 1]], np.int32)
    labels = positions + 40
    out = model.apply(params, **given, masked_positions=positions)
    logits = out.logits if head == "masked_lm" else out.prediction_logits
    expected, right = cross_entropy(logits, labels)
    asked = model.apply(params, **given, masked_positions=positions, masked_labels=labels)
    np.testing.assert_allclose(asked.masked_lm_losses, expected, rtol=1e-5)
    np.testing.assert_array_equal(asked.masked_lm_correct, right)
    assert asked.logits is None and asked.prediction_logits is None
