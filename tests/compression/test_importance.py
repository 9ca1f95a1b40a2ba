"""Importance of heads, columns and layers, beside the same computed mask by mask and example by example."""

import jax
import numpy as np
import pytest
from pruned_models import random_params, small

from bert_jax.compression.importance import measure_importance
from bert_jax.compression.removal import most_important
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.tasks.classification.task import ClassificationTask
from bert_jax.tasks.embedding.dense.task import SentenceEmbeddingTask

HEAD = "sequence_classification"


def task_and_batch(rows=5, **changes):
    config, params = small(head=HEAD, num_hidden_layers=2, **changes)
    random = np.random.default_rng(3)
    batch = {
        "input_ids": random.integers(2, 50, (rows, 9)),
        "attention_mask": (np.arange(9) < random.integers(4, 10, (rows, 1))).astype(np.int32),
        "token_type_ids": np.zeros((rows, 9), np.int32),
        "labels": random.integers(0, 2, rows),
        "example_weights": np.ones(rows, np.float32),
    }
    return ClassificationTask(Bert(config, HEAD), ()), params, batch


def masked(params, heads, columns, size):
    """The parameters, with the context of heads and the activations of columns multiplied by masks [L, N], [L, F]."""
    layers = params["encoder"]["layers"]
    output, down = layers["attention"]["output"], layers["mlp"]["down"]
    rows = np.ones(size) * heads[..., None]
    output = output | {"kernel": output["kernel"] * rows.reshape(len(heads), -1, 1)}
    down = down | {"kernel": down["kernel"] * columns[..., None]}
    attention, mlp = layers["attention"] | {"output": output}, layers["mlp"] | {"down": down}
    return params | {"encoder": params["encoder"] | {"layers": layers | {"attention": attention, "mlp": mlp}}}


def loss_of_masks(task, params, batch, row):
    one = {name: array[row : row + 1] for name, array in batch.items()}

    def loss(heads, columns):
        return task.loss(masked(params, heads, columns, 8), one, None, task.weights(one))[0]

    return loss


def ones():
    return np.ones((2, 4), np.float32), np.ones((2, 24), np.float32)


def test_importance_is_the_mean_of_the_absolute_gradient_of_each_example():
    task, params, batch = task_and_batch()
    found = measure_importance(task, params, [batch])
    gradients = [jax.grad(loss_of_masks(task, params, batch, row), (0, 1))(*ones()) for row in range(5)]
    heads, columns = (np.stack(each) for each in zip(*gradients, strict=True))
    for ours, signed in ((found.heads, heads), (found.columns, columns)):
        mean = abs(signed).mean(0)
        np.testing.assert_allclose(ours, mean / np.linalg.norm(mean, axis=-1, keepdims=True), rtol=2e-4, atol=1e-6)
        # The absolute value of the batch's gradient is something else.
        assert abs(abs(signed.mean(0)) - mean).max() > 0.05 * mean.max()
    np.testing.assert_allclose(found.layers, abs(heads.sum(-1) + columns.sum(-1)).mean(0), rtol=2e-4)
    assert found.examples == 5


def test_gradients_of_masks_are_differences_of_losses():
    task, params, batch = task_and_batch(rows=1)
    found, loss = measure_importance(task, params, [batch]), jax.jit(loss_of_masks(task, params, batch, 0))
    step, differences = 0.05, np.zeros((2, 4))
    for layer, head in np.ndindex(2, 4):
        up, down = ones()[0], ones()[0]
        up[layer, head] += step
        down[layer, head] -= step
        differences[layer, head] = abs(loss(up, ones()[1]) - loss(down, ones()[1])) / (2 * step)
    differences /= np.linalg.norm(differences, axis=-1, keepdims=True)
    np.testing.assert_allclose(found.heads, differences, atol=0.02)


def test_the_kept_heads_are_the_planted_ones():
    task, params, batch = task_and_batch()
    planted, kernel = [[0, 3], [1, 2]], params["encoder"]["layers"]["attention"]["output"]["kernel"]
    for layer, heads in enumerate(planted):
        for head in set(range(4)) - set(heads):
            kernel[layer, head * 8 : (head + 1) * 8] *= 1e-3
    found = measure_importance(task, params, [batch])
    assert most_important(found.heads, 2).tolist() == planted


@pytest.mark.slow
def test_batches_and_padding_do_not_matter():
    task, params, batch = task_and_batch(rows=11)
    whole = measure_importance(task, params, [batch])
    padded = {name: np.concatenate([array[8:], array[:3]]) for name, array in batch.items()}
    padded["example_weights"] = np.array([1, 1, 1, 0, 0, 0], np.float32)
    first = {name: array[:8] for name, array in batch.items()}
    parts = measure_importance(task, params, [first, padded])
    assert parts.examples == whole.examples == 11
    for a, b in zip(whole[:3], parts[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_rows_that_are_negatives_of_each_other_are_one_example():
    config, _ = small(num_hidden_layers=2, pooler=False)
    task = SentenceEmbeddingTask(Bert(config, "sentence_embedding"), "in_batch_negatives")
    params = random_params(config, "sentence_embedding")
    ids = np.random.default_rng(4).integers(2, 50, (6, 2, 7))
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    batch = inputs | {"labels": np.zeros(6, np.float32), "example_weights": np.ones(6, np.float32)}
    found = measure_importance(task, params, [batch, batch])
    assert found.examples == 2

    def loss(heads, columns):
        return task.loss(masked(params, heads, columns, 8), batch, None, task.weights(batch))[0]

    gradient = abs(np.asarray(jax.grad(loss)(*ones())))
    np.testing.assert_allclose(found.heads, gradient / np.linalg.norm(gradient, axis=-1, keepdims=True), rtol=1e-3)


def test_no_examples():
    task, params, batch = task_and_batch()
    with pytest.raises(InputError, match="expected at least one example, found none"):
        measure_importance(task, params, [])
    with pytest.raises(InputError, match="expected finite gradients"):
        params["classifier"]["kernel"][:] = np.inf
        measure_importance(task, params, [batch])
