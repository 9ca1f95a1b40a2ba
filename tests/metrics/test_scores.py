import numpy as np
import pytest
import sklearn.metrics
from scipy import stats

from bert_jax.errors import InputError
from bert_jax.metrics import scores as metrics


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classification_metrics_equal_scikit_learn(classes):
    rng = np.random.default_rng(classes)
    labels = rng.integers(0, classes, 200)
    predicted = np.where(rng.random(200) < 0.6, labels, rng.integers(0, classes, 200))
    assert metrics.accuracy(labels, predicted) == sklearn.metrics.accuracy_score(labels, predicted)
    assert metrics.matthews(labels, predicted) == pytest.approx(sklearn.metrics.matthews_corrcoef(labels, predicted))
    if classes == 2:
        assert metrics.f1(labels, predicted) == pytest.approx(sklearn.metrics.f1_score(labels, predicted))


def test_regression_metrics_equal_scipy():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 100).astype(np.float32)  # with ties
    predicted = labels + rng.normal(size=100).astype(np.float32)
    assert metrics.pearson(labels, predicted) == pytest.approx(stats.pearsonr(labels, predicted).statistic)
    assert metrics.spearman(labels, predicted) == pytest.approx(stats.spearmanr(labels, predicted).statistic)
    assert metrics.mse(labels, predicted) == pytest.approx(sklearn.metrics.mean_squared_error(labels, predicted))


def test_constant_answers_score_zero_without_warnings():
    labels, constant = np.array([0, 1, 1, 0]), np.array([0, 0, 0, 0])
    with np.errstate(all="raise"):
        assert metrics.f1(constant, constant) == 0.0
        assert metrics.matthews(labels, constant) == 0.0
        assert metrics.pearson(labels, constant.astype(float)) == 0.0
        assert metrics.spearman(labels[:1], constant[:1].astype(float)) == 0.0


def test_choosing_metrics():
    assert metrics.choose_metrics((), regression=False, num_labels=2) == ("accuracy", "f1", "matthews")
    assert metrics.choose_metrics((), regression=False, num_labels=3) == ("accuracy", "macro_f1", "matthews")
    assert metrics.choose_metrics((), regression=True, num_labels=1) == ("pearson", "spearman", "mse")
    assert metrics.choose_metrics(["matthews"], regression=False, num_labels=2) == ("matthews",)
    with pytest.raises(InputError, match=r"'acuracy' is not a metric of classification.*did you mean 'accuracy'"):
        metrics.choose_metrics(["acuracy"], regression=False, num_labels=2)
    with pytest.raises(InputError, match="is not a metric of regression"):
        metrics.choose_metrics(["f1"], regression=True, num_labels=1)


def test_f1_of_several_classes_equals_scikit_learn():
    labels, predicted = np.array([0, 1, 2, 2, 4, 4, 1]), np.array([0, 2, 2, 1, 4, 3, 1])
    found = metrics.compute_metrics(("macro_f1", "micro_f1", "weighted_f1"), labels, predicted)
    kinds = [sklearn.metrics.f1_score(labels, predicted, average=kind) for kind in ("macro", "micro", "weighted")]
    assert list(found.values()) == pytest.approx(kinds)
    rows = np.eye(5)[labels], np.eye(5)[predicted]
    weighted = sklearn.metrics.f1_score(*rows, average="weighted", zero_division=0)
    assert metrics.weighted_f1(*rows) == pytest.approx(weighted)


def test_the_best_metric_is_measured_too():
    assert metrics.choose_metrics((), False, 3, best="weighted_f1") == (
        "accuracy", "macro_f1", "matthews", "weighted_f1")  # fmt: skip
    assert metrics.choose_metrics(("accuracy",), False, 2, best="accuracy") == ("accuracy",)
    with pytest.raises(InputError, match=r"config\.best_metric: 'f1' is not measured; known: accuracy, macro_f1,"):
        metrics.choose_metrics((), False, 3, best="f1")
