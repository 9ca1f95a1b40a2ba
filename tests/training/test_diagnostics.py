"""What a run says of a poor result, and that it says nothing of a good one."""

import random

import pytest

from bert_jax.training.diagnostics import of_lines


def lines(losses, grad_norm=1.0, rate=1e-4, **scores):
    trained = [{"step": 10 * i, "train/loss": loss, "train/grad_norm": grad_norm, "train/learning_rate": rate}
               for i, loss in enumerate(losses, start=1)]  # fmt: skip
    return [*trained, *({"step": 10, f"eval/{name}": value} for name, value in scores.items())]


def noisy(curve, spread=0.05):
    rng = random.Random(0)
    return [value + rng.gauss(0, spread) for value in curve]


FALLING = [4 - 0.1 * i for i in range(20)]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (lines(noisy([0.69] * 20)), "the loss did not fall: 0."),
        (lines(noisy([0.5 + 0.1 * i for i in range(20)])), "the loss rose from 0.68"),
        (lines([0.5] * 20, grad_norm=0.0), "the gradient was 0 in every step"),
        (lines([0.5] * 3, rate=0.0), "the learning rate was 0 in every step"),
        (lines(FALLING, matthews=0.0), "matthews was 0 in each of 1 evaluations: every row was given the same class"),
        (
            [*lines(FALLING), {"step": 9, "eval/mlm_accuracy": 0.05, "eval/mlm_majority_accuracy": 0.06}],
            "mlm_accuracy 0.05 never beat 0.06, which the most frequent token alone gives",
        ),
    ],
)
def test_a_poor_run_is_told_of_in_a_line(told, said):
    (line,) = of_lines(told)
    assert said in line and "\n" not in line and len(line) < 300


@pytest.mark.parametrize(
    "told",
    [
        lines(noisy(FALLING)),
        lines(noisy([0.02] * 20, 0.005)),  # as good as it gets
        lines([0.69] * 5),  # too short to judge
        lines(noisy([6.8, 2.2, 1.2, 0.9, 0.7] + [0.5 - 0.01 * i for i in range(15)], 0.02)),  # steep at first
        lines(FALLING, matthews=0.4),
        lines(FALLING, accuracy=0.9),  # nothing that tells
        [*lines(FALLING), {"step": 1, "eval/matthews": 0.0}, {"step": 9, "eval/matthews": 0.3}],
        [*lines(FALLING), {"step": 9, "eval/mlm_accuracy": 0.3, "eval/mlm_majority_accuracy": 0.06}],
        [*lines(FALLING), {"step": 9, "eval/matthews": None, "train/loss": None}],
        [],
    ],
)
def test_nothing_is_said_of_a_good_one(told):
    assert of_lines(told) == []
