import json

import numpy as np
import pytest
import sklearn.metrics
from scipy import stats

import bert_jax.metrics
from bert_jax import recipes, training
from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.metrics import entities, generation, register_metric
from bert_jax.metrics import scores as metrics
from bert_jax.training.metrics import merit


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
    found = metrics.compute_metrics(("macro_f1", "micro_f1", "weighted_f1"), labels, predicted, 5)
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


@pytest.fixture
def added():
    """The registered metrics, without those of the test after it."""
    before = dict(bert_jax.metrics._registered)
    yield bert_jax.metrics._registered
    bert_jax.metrics._registered.clear()
    bert_jax.metrics._registered.update(before)


@pytest.mark.slow
def test_a_registered_metric_selects_the_best_checkpoint_and_is_evaluated(tmp_path, tiny_tokenizer, added, capsys):
    register_metric("hamming", sklearn.metrics.hamming_loss, ("classes", "label_sets"), lower_is_better=True)
    tiny_tokenizer.save(tmp_path)
    rows = "".join(f"{'cat ' if i % 3 else 'dog '} {i % 5}\t{i % 3}\n" for i in range(48))
    (tmp_path / "data.tsv").write_text("sentence\tlabel\n" + rows)
    c = recipes.classification()
    c.update_from_flattened_dict(
        {"tokenizer": str(tmp_path), "data.train": str(tmp_path / "data.tsv"), "data.dev": str(tmp_path / "data.tsv"),
         "data.length_buckets": (12,), "data.max_seq_length": 12, "global_batch_size": 8, "num_steps": 4,
         "model.size": "tiny", "model.hidden_size": 16, "model.intermediate_size": 32, "model.num_hidden_layers": 1,
         "model.max_position_embeddings": 16, "eval_every": 2, "best_metric": "hamming"}
    )  # fmt: skip
    results = training.train(c, tmp_path / "run", progress=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert results["eval/hamming"] == min(line["eval/hamming"] for line in lines if "eval/hamming" in line)
    assert results["eval/hamming"] == pytest.approx(1 - results["eval/accuracy"])
    table, model = str(tmp_path / "data.tsv"), str(tmp_path / "run" / "model")
    main(["evaluate", "--model", model, "--data", table, "--metrics", "hamming", "--json"])
    assert json.loads(capsys.readouterr().out)["hamming"] == pytest.approx(results["eval/hamming"])


def test_registered_metrics_of_other_kinds(added):
    register_metric("longest", lambda labels, predicted: max(map(len, labels)), ("tags", "texts"))
    assert entities.choose_tagging_metrics(["longest", "f1"], ["O", "B-A"]) == ("longest", "f1")
    found = entities.tagging_scores(("longest", "f1"), ["O", "B-A"], np.array([0, 1, -1, 1, 1, 1]), np.ones(6, int))
    assert found == {"f1": pytest.approx(8 / 9), "longest": 3.0}
    assert generation.choose_text_metrics(["longest"]) == ("longest",)
    assert generation.text_scores(["longest", "exact_match"], ["a"], ["a cat"]) == {"longest": 5.0, "exact_match": 0.0}
    register_metric("both", lambda labels, predicted: (labels & predicted).mean(), ("relations",))
    assert entities.choose_relation_metrics((), "both")[-1] == "both"
    labels = np.array([1, 0, 1])
    assert entities.relation_scores(("f1", "both"), ["a", "b"], "a", labels, labels) == {"f1": 1.0, "both": 2 / 3}
    with pytest.raises(InputError, match="expected a new name for tags, found 'f1', which bert_jax has"):
        register_metric("f1", len, ("tags",))
    with pytest.raises(InputError, match="kind 'class' is not known; did you mean 'classes'"):
        register_metric("own", len, ("classes", "class"))
    with pytest.raises(InputError, match="expected a new name for classes, found 'f1', which bert_jax has"):
        register_metric("f1", len, ("classes",))  # two classes have it
    with pytest.raises(InputError, match="expected a name, found ''"):
        register_metric("", len)
    assert not {name for _, name in added} & {"own", "f1", ""}


def test_the_metric_of_the_number_of_classes_is_measured(added):
    labels = np.array([0, 1, 1])
    for first, second in (("classes", "two_classes"), ("two_classes", "classes")):
        added.clear()
        for kind in (first, second):
            register_metric("own", lambda labels, predicted, kind=kind: 2 if kind == "two_classes" else 3, (kind,))
        assert [metrics.compute_metrics(["own"], labels, labels, count)["own"] for count in (2, 3)] == [2, 3]


def test_the_direction_of_a_metric_is_declared(added):
    assert [merit(name, 2.0) for name in ("accuracy", "mse", "eval_loss", "perplexity")] == [2.0, -2.0, -2.0, -2.0]
    register_metric("error_rate", lambda labels, predicted: 0.0, lower_is_better=True)
    assert merit("error_rate", 2.0) == -2.0
    lower = [metric.name for metric in bert_jax.metrics.METRICS if metric.lower_is_better]
    meaning = recipes.KEYS["classification"]["best_metric"].meaning
    assert f"(lower is better for loss, perplexity and {', '.join(lower)})" in meaning
