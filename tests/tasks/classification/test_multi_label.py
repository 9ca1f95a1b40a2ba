"""Several labels a text, weights of classes, and smoothed labels."""

import json

import jax
import numpy as np
import pytest
import sklearn.metrics
from small_tasks import SmallTask

from bert_jax import evaluation
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.data.finetuning.tables import Columns
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.metrics import scores as metrics

SIGNS = {"cat": "animal", "bird": "animal", "tree": "plant", "good": "praise", "young": "praise"}
FILLING = ["the", "sat", "on", "a", "stone"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """Tables whose labels are those of the words in a text, once with lists and once with texts, and a model."""
    root = tmp_path_factory.mktemp("several")
    for name, rows, seed in (("train", 500, 0), ("dev", 90, 1)):
        rng = np.random.default_rng(seed)
        lines, table = [], ["sentence\tlabel"]
        for _ in range(rows):
            signs = rng.choice(list(SIGNS), rng.integers(0, 3), replace=False)
            words = [*signs, *rng.choice(FILLING, 6 - len(signs))]  # six, so that the number of words tells nothing
            labels = sorted({SIGNS[word] for word in words if word in SIGNS})
            text = " ".join(rng.permutation(words))
            lines.append(json.dumps({"sentence": text, "label": labels}))
            table.append(f"{text}\t{', '.join(labels)}")
        (root / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        (root / f"{name}.tsv").write_text("\n".join(table) + "\n")
    write_small(root / "encoder", initializer_range=0.2)
    return root


SMALL = SmallTask("classification", {
    "init_from": "{place}/encoder", "data.train": "{place}/train.jsonl", "data.dev": "{place}/dev.tsv",
    "data.task_type": "multi_label", "data.max_seq_length": 16, "data.length_buckets": (16,), "num_epochs": 30.0,
    "optimizer.learning_rate": 5e-3,
})  # fmt: skip
recipe, build = SMALL.recipe, SMALL.job


@pytest.fixture(scope="module")
def tuned(place):
    return SMALL.train(place)


def truth(place):
    rows = [json.loads(line) for line in (place / "dev.jsonl").read_text().splitlines()]
    names = ("animal", "plant", "praise")
    return [row["sentence"] for row in rows], np.array([[name in row["label"] for name in names] for row in rows])


def test_several_labels_are_learned_and_scored_as_scikit_learn_does(place, tuned, tmp_path):
    results, model = tuned
    config = load_pretrained(model).config
    assert (config.id2label, config.problem_type) == (("animal", "plant", "praise"), "multi_label_classification")
    assert results["eval/micro_f1"] > 0.9
    scores = evaluation.evaluate(model, str(place / "dev.tsv"), Columns())
    assert scores == evaluation.evaluate(model, str(place / "dev.jsonl"), Columns())  # lists, and texts
    assert evaluation.predict(model, str(place / "dev.jsonl"), tmp_path / "out.jsonl", Columns()) == 90
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    found = np.array([[name in answer["labels"] for name in config.id2label] for answer in answers])
    texts, labels = truth(place)
    assert scores["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(labels, found))
    assert scores["micro_f1"] == pytest.approx(sklearn.metrics.f1_score(labels, found, average="micro"))
    assert scores["macro_f1"] == pytest.approx(sklearn.metrics.f1_score(labels, found, average="macro"))
    shares = pipeline("text-classification", model)(texts[:3], top_k=None)
    for answer, share in zip(answers, shares, strict=False):
        assert answer["scores"] == pytest.approx({x["label"]: x["score"] for x in share}, abs=1e-4)
        assert set(answer["labels"]) == {x["label"] for x in share if x["score"] > 0.5}


def test_a_table_of_answers(place, tuned, tmp_path):
    evaluation.predict(tuned[1], str(place / "dev.tsv"), tmp_path / "out.tsv", Columns())
    header, *rows = (tmp_path / "out.tsv").read_text().splitlines()
    assert header == "labels\tanimal\tplant\tpraise" and len(rows) == 90
    assert {row.split("\t")[0] for row in rows} >= {"", "animal", "animal,praise"}


def test_the_metrics_on_answers_with_mistakes():
    rng = np.random.default_rng(0)
    labels, found = rng.integers(0, 2, (50, 4)), rng.integers(0, 2, (50, 4))
    ours = metrics.compute_metrics(("accuracy", "micro_f1", "macro_f1"), labels, found, labels.shape[1])
    theirs = [sklearn.metrics.f1_score(labels, found, average=kind) for kind in ("micro", "macro")]
    assert list(ours.values()) == pytest.approx([sklearn.metrics.accuracy_score(labels, found), *theirs])


def both_losses(place, torch_loss, **changes):
    """Ours on a batch that is not full, and PyTorch's on the rows that are there."""
    torch = pytest.importorskip("torch", reason="an oracle of the [torch] extra")
    job = build(place, **changes)
    params = job.init_params(jax.random.key(3))
    batch = job.train_source.batch(0)
    batch["example_weights"][5:] = 0
    logits = torch.tensor(np.asarray(job.task.predict(params, batch)["logits"]))[:5]
    ours, shown = job.task.loss(params, batch, None, job.task.weights(batch))
    return float(ours), float(torch_loss(torch, logits, torch.tensor(batch["labels"][:5]))), shown, job


@pytest.mark.slow
def test_the_loss_of_several_labels_is_pytorchs(place):
    ours, theirs, shown, _ = both_losses(
        place, lambda torch, logits, labels: torch.nn.BCEWithLogitsLoss()(logits, labels)
    )
    assert ours == pytest.approx(theirs, rel=1e-6)
    total, count = shown["cross_entropy"]
    assert float(total / count) == pytest.approx(theirs, rel=1e-6)


@pytest.fixture(scope="module")
def lopsided(place):
    rng = np.random.default_rng(2)
    rows = [f"the cat sat\t{rng.choice(['a', 'b', 'c'], p=[0.7, 0.2, 0.1])}" for _ in range(64)]
    (place / "lopsided.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    table = str(place / "lopsided.tsv")
    return {"data.train": table, "data.dev": "", "data.task_type": "classification"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("smoothing", "weights"), [(0.0, ""), (0.1, ""), (0.0, "balanced")])
def test_smoothed_and_weighted_losses_are_pytorchs(place, lopsided, smoothing, weights):
    rows = (place / "lopsided.tsv").read_text().splitlines()[1:]
    counts = np.array([sum(row.endswith(name) for row in rows) for name in "abc"])
    balance = 64 / (3 * counts) if weights else np.ones(3)

    def loss(torch, logits, labels):
        weight = torch.tensor(balance, dtype=torch.float32)
        return torch.nn.CrossEntropyLoss(weight=weight, label_smoothing=smoothing)(logits, labels.long())

    changes = lopsided | {"label_smoothing": smoothing, "data.class_weights": weights}
    ours, theirs, _, job = both_losses(place, loss, **changes)
    assert ours == pytest.approx(theirs, rel=1e-5)
    if weights:
        np.testing.assert_allclose(job.task.class_weights, balance)


def test_r_drop_of_several_labels_is_the_mean_divergence_of_each(place):
    task = build(place, r_drop=1.0).task
    logits = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)  # of two rows, each twice
    p, q = 1 / (1 + np.exp(-logits[0])), 1 / (1 + np.exp(-logits[1]))
    both = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)) + q * np.log(q / p)
    both += (1 - q) * np.log((1 - q) / (1 - p))
    np.testing.assert_allclose(task._divergence(logits)[:2], both.mean() / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.class_weights": "balanced"}, "config.data.class_weights: expected '' for this task_type"),
        ({"label_smoothing": 0.1}, "config.label_smoothing: expected 0 for multi_label, found 0.1"),
        ({"data.label_separator": ""}, "config.data.label_separator: expected the separator of labels"),
        ({"data.metrics": ("f1",)}, "data.metrics: 'f1' is not a metric of"),
        ({"data.task_type": "multi-label"}, "'multi-label' is not known; did you mean 'multi_label'"),
    ],
)
def test_recipes_that_do_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        build(place, **changes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"sentence": "the cat", "label": ["animal", "plant,praise"]}', "line 2: expected labels that are texts with"),
        ('{"sentence": "the cat", "label": ["animal", 3]}', "line 2: expected labels that are texts with"),
        ('{"sentence": "the cat", "label": ["mineral"]}', "line 2: expected a label of 'animal', .*, found 'mineral'"),
    ],
)  # fmt: skip
def test_labels_that_do_not_fit(place, tuned, tmp_path, line, message):
    (tmp_path / "odd.jsonl").write_text('{"sentence": "the cat", "label": []}\n' + line + "\n")
    with pytest.raises(InputError, match=message):
        evaluation.evaluate(tuned[1], str(tmp_path / "odd.jsonl"), Columns())
