"""Losses of the tasks against numpy, and that parts of a batch add up to the whole."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.modeling import Bert
from bert_jax.modeling.losses import cross_entropy
from bert_jax.tasks.classification.task import ClassificationTask
from bert_jax.tasks.pretraining.task import PretrainingTask

CONFIG = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
    num_labels=3,
    initializer_range=0.3,  # so that logits differ
)
B, S, P = 6, 12, 4


def inputs(rng):
    lengths = rng.integers(4, S + 1, B)
    mask = (np.arange(S) < lengths[:, None]).astype(np.int32)
    ids = rng.integers(5, CONFIG.vocab_size, (B, S)).astype(np.int32) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": (mask * (np.arange(S) > 5)).astype(np.int32)}


def pretraining_batch():
    rng = np.random.default_rng(1)
    return inputs(rng) | {
        "masked_positions": rng.integers(0, 4, (B, P)).astype(np.int32),
        "masked_labels": rng.integers(5, 9, (B, P)).astype(np.int32),
        "masked_weights": (np.arange(P) < np.array([4, 1, 2, 0, 3, 0])[:, None]).astype(np.float32),
        "next_sentence_labels": np.array([0, 1, 1, 0, 1, 0], np.int32),
        "example_weights": np.array([1, 1, 1, 1, 1, 0], np.float32),
    }


def classification_batch(regression=False):
    labels = np.array([0.5, 2.5, 1.0, 3.0, 0.0, 0.0], np.float32) if regression else np.array([0, 2, 1, 2, 0, 0])
    weights = np.array([1, 1, 1, 1, 1, 0], np.float32)
    return inputs(np.random.default_rng(2)) | {
        "labels": labels.astype(np.float32 if regression else np.int32),
        "example_weights": weights,
    }


@functools.cache
def setup(kind):
    """A task, a batch, parameters, and the task's loss (with gradients) and predictions, compiled."""
    task, batch = task_and_batch(kind)
    params = task.model.init(jax.random.key(0))
    loss = jax.jit(jax.value_and_grad(task.loss, has_aux=True))
    return task, batch, params, lambda *given: jax.device_get(loss(*given)), jax.jit(task.predict)


def task_and_batch(kind):
    if kind == "pretraining":
        return PretrainingTask(Bert(CONFIG, "pretraining"), majority_id=6), pretraining_batch()
    if kind == "mlm":
        return PretrainingTask(Bert(CONFIG, "masked_lm"), majority_id=6, objective="mlm"), pretraining_batch()
    regression = kind == "regression"
    config = CONFIG.replace(num_labels=1, problem_type="regression") if regression else CONFIG
    names = ("pearson",) if regression else ("accuracy",)
    return ClassificationTask(Bert(config, "sequence_classification"), names), classification_batch(regression)


def log_softmax(x):
    x = np.asarray(x, np.float64)
    return x - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)) - x.max(-1, keepdims=True)


def rows(batch, start, stop):
    return {name: value[start:stop] for name, value in batch.items()}


def ratios(metrics):
    return {name: float(total / count) for name, (total, count) in metrics.items()}


def test_pretraining_loss_by_hand():
    task, batch, params, loss_and_grads, _ = setup("pretraining")
    inputs = (batch[name] for name in ("input_ids", "attention_mask", "token_type_ids"))
    out = jax.jit(task.model.apply)(params, *inputs, masked_positions=batch["masked_positions"])
    mlm, labels = log_softmax(out.prediction_logits), batch["masked_labels"]
    total = right = 0.0
    for b in range(B):
        for p in range(int(batch["masked_weights"][b].sum())):
            total -= mlm[b, p, labels[b, p]]
            right += mlm[b, p].argmax() == labels[b, p]
    nsp = log_softmax(out.seq_relationship_logits)[np.arange(5), batch["next_sentence_labels"][:5]]
    (loss, metrics), _ = loss_and_grads(params, batch, None, task.weights(batch))
    assert float(loss) == pytest.approx(total / 10 - nsp.mean(), rel=1e-5)
    expected = {
        "mlm_loss": total / 10,
        "mlm_accuracy": right / 10,
        "nsp_loss": -nsp.mean(),
        "nsp_accuracy": np.mean(np.exp(nsp) > 0.5),
        "packing": batch["attention_mask"].mean(),
    }
    assert ratios(metrics) == pytest.approx(expected, rel=1e-5)


def test_masked_lm_alone_by_hand():
    task, batch, params, loss_and_grads, predict = setup("mlm")
    inputs = (batch[name] for name in ("input_ids", "attention_mask", "token_type_ids"))
    mlm = log_softmax(jax.jit(task.model.apply)(params, *inputs, masked_positions=batch["masked_positions"]).logits)
    losses = -np.take_along_axis(mlm, batch["masked_labels"][..., None], -1)[..., 0]
    expected = (losses * batch["masked_weights"]).sum() / 10
    (loss, metrics), _ = loss_and_grads(params, batch, None, task.weights(batch))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert set(metrics) == {"mlm_loss", "mlm_accuracy", "packing"}
    assert task.score([jax.tree.map(np.asarray, predict(params, batch))], [batch])["mlm_loss"] == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_r_drop_by_hand(kind):
    plain, batch, params, _, _ = setup(kind)
    task, key = dataclasses.replace(plain, r_drop=0.7), jax.random.key(3)
    inputs = (np.repeat(batch[name], 2, axis=0) for name in ("input_ids", "attention_mask", "token_type_ids"))
    logits = np.asarray(jax.jit(task.model.apply)(params, *inputs, dropout_key=key).logits, np.float64)
    first, second = logits[::2][:5], logits[1::2][:5]  # the last row is padding
    labels = batch["labels"][:5]
    if kind == "regression":
        errors = [np.square(y[:, 0] - labels) for y in (first, second)]
        apart = np.square(first - second)[:, 0]
    else:
        errors = [-log_softmax(y)[np.arange(5), labels] for y in (first, second)]
        log_p, log_q = log_softmax(first), log_softmax(second)
        apart = ((np.exp(log_p) * (log_p - log_q)).sum(-1) + (np.exp(log_q) * (log_q - log_p)).sum(-1)) / 2
    loss, metrics = jax.jit(task.loss)(params, batch, key, task.weights(batch))
    assert apart.max() > 1e-3
    assert float(loss) == pytest.approx(np.mean(errors) + 0.7 * apart.mean(), rel=1e-5)
    assert ratios(metrics)["mse" if kind == "regression" else "cross_entropy"] == pytest.approx(
        np.mean(errors), rel=1e-5
    )
    ours, theirs = (jax.jit(t.loss)(params, batch, None, t.weights(batch))[0] for t in (task, plain))
    assert float(ours) == float(theirs)


def test_classification_loss_by_hand():
    task, batch, params, loss_and_grads, predict = setup("classification")
    logits = log_softmax(predict(params, batch)["logits"])[:5]
    labels = batch["labels"][:5]
    (loss, metrics), _ = loss_and_grads(params, batch, None, task.weights(batch))
    expected = -logits[np.arange(5), labels].mean()
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    accuracy = np.mean(logits.argmax(-1) == labels)
    packing = batch["attention_mask"].mean()
    found = {"cross_entropy": expected, "accuracy": accuracy, "packing": packing}
    assert ratios(metrics) == pytest.approx(found, rel=1e-5)


def test_regression_loss_by_hand():
    task, batch, params, loss_and_grads, predict = setup("regression")
    predicted = np.asarray(predict(params, batch)["logits"])[:5, 0]
    (loss, metrics), _ = loss_and_grads(params, batch, None, task.weights(batch))
    assert float(loss) == pytest.approx(np.square(predicted - batch["labels"][:5]).mean(), rel=1e-5)
    assert ratios(metrics) == pytest.approx({"mse": float(loss), "packing": batch["attention_mask"].mean()})


@pytest.mark.parametrize("kind", ["pretraining", "classification"])
def test_parts_of_a_batch_add_up(kind):
    """Two micro-batches, with the weights of the whole, give its loss, gradients and metrics."""
    task, batch, params, loss_and_grads, _ = setup(kind)
    weights = task.weights(batch)
    (loss, metrics), grads = loss_and_grads(params, batch, None, weights)
    parts = [loss_and_grads(params, rows(batch, i, i + 3), None, weights) for i in (0, 3)]
    assert sum(float(part[0][0]) for part in parts) == pytest.approx(float(loss), rel=1e-5)
    summed = jax.tree.map(lambda *leaves: sum(leaves), *(part[1] for part in parts))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), summed, grads)
    together = jax.tree.map(lambda *leaves: sum(leaves), *(part[0][1] for part in parts))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), together, metrics)


@pytest.mark.parametrize("kind", ["pretraining", "classification"])
def test_a_batch_of_padding_rows_gives_zero_and_no_nan(kind):
    task, batch, params, loss_and_grads, _ = setup(kind)
    empty = {name: np.zeros_like(value) for name, value in batch.items()}
    (loss, _), grads = loss_and_grads(params, empty, None, task.weights(empty))
    assert float(loss) == 0.0
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize("kind", ["pretraining", "classification"])
def test_score_of_predictions_equals_the_metrics_of_the_loss(kind):
    task, batch, params, loss_and_grads, predict = setup(kind)
    (_, metrics), _ = loss_and_grads(params, batch, None, task.weights(batch))
    parts = [{name: np.roll(value, i, axis=0) for name, value in batch.items()} for i in (0, 2)]
    scores = task.score([jax.device_get(predict(params, part)) for part in parts], parts)
    for name in scores.keys() & metrics.keys():
        assert scores[name] == pytest.approx(ratios(metrics)[name], rel=1e-5), name
    if kind == "pretraining":
        masked = batch["masked_weights"] > 0
        assert scores["mlm_majority_accuracy"] == pytest.approx(np.mean(batch["masked_labels"][masked] == 6))
    else:
        assert scores.keys() == {"accuracy"}


def test_dropout_needs_a_key():
    task, batch, params, loss_and_grads, _ = setup("classification")
    weights = task.weights(batch)
    plain = loss_and_grads(params, batch, None, weights)[0][0]
    dropped = [loss_and_grads(params, batch, jax.random.key(i), weights)[0][0] for i in (1, 1, 2)]
    assert dropped[0] == dropped[1] != dropped[2]
    assert plain not in dropped


def test_cross_entropy_is_float32_for_bfloat16_logits():
    logits = jnp.array([[100.0, 0.0], [0.0, 0.0]], jnp.bfloat16)
    losses, right = jax.jit(cross_entropy)(logits, np.array([1, 0]))
    assert losses.dtype == jnp.float32
    np.testing.assert_allclose(losses, [100.0, np.log(2)], rtol=1e-6)
    assert right.tolist() == [0.0, 1.0]
