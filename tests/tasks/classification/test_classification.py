"""Fine-tuning from a table to a finished model, through the training loop; then scoring and asking it."""

import json
import shutil

import jax
import numpy as np
import pytest
from small_tasks import SmallTask

from bert_jax import evaluation
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.data.finetuning.tables import Columns
from bert_jax.errors import InputError
from bert_jax.tasks.classification.evaluation import ClassificationEvaluator
from bert_jax.tasks.classification.task import ClassificationTask
from bert_jax.training.loop import steps, train

NICE, NASTY, NEITHER = ["good", "young", "bird"], ["bad", "old", "stone"], ["the", "cat", "sat", "on", "a", "tree"]
COLUMNS = Columns("sentence", "", "label")


def write_table(path, rows, seed):
    """Sentences of 3 to 20 words, positive when they hold a nice word and negative when they hold a nasty one."""
    rng = np.random.default_rng(seed)
    lines = ["sentence\tlabel"]
    for _ in range(rows):
        label = rng.integers(2)
        words = list(rng.choice(NEITHER, rng.integers(2, 20)))
        words.insert(rng.integers(len(words)), rng.choice(NICE if label else NASTY))
        lines.append(f"{' '.join(words)}\t{'positive' if label else 'negative'}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """Tables, and an encoder with random parameters to start from."""
    root = tmp_path_factory.mktemp("classification")
    write_table(root / "train.tsv", 400, seed=0)
    write_table(root / "dev.tsv", 101, seed=1)
    write_small(root / "encoder")
    return root


SMALL = SmallTask("classification", {
    "init_from": "{place}/encoder", "data.train": "{place}/train.tsv", "data.dev": "{place}/dev.tsv",
    "data.max_seq_length": 24, "data.length_buckets": (24,), "global_batch_size": 32, "num_epochs": 6.0,
    "optimizer.learning_rate": 2e-3,
})  # fmt: skip
recipe, job = SMALL.recipe, SMALL.job


@pytest.fixture(scope="module")
def tuned(place):
    """What training returned, and the finished model."""
    return SMALL.train(place)


def test_a_separable_task_is_learned(tuned):
    results, model = tuned
    assert results["step"] == 6 * 13
    assert results["eval/accuracy"] > 0.95
    assert results["train/compilations"] == 1  # all rows are of 24 tokens
    config = load_pretrained(model).config
    assert (config.id2label, config.problem_type) == (("negative", "positive"), "single_label_classification")


def test_token_dropout_hides_that_share_of_the_words(place, tiny_tokenizer):
    task = job(place, **{"data.token_dropout": 0.3}).task
    specials = tiny_tokenizer.special_ids
    ids = np.random.default_rng(0).integers(0, tiny_tokenizer.vocab_size, (64, 24)).astype(np.int32)
    hidden = np.asarray(task._hide_tokens(ids, jax.random.key(0)))
    changed = hidden != ids
    assert (hidden[changed] == tiny_tokenizer.mask_id).all() and not changed[np.isin(ids, specials)].any()
    words = ~np.isin(ids, specials)
    assert abs(changed[words].mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / words.sum())
    assert (hidden != np.asarray(task._hide_tokens(ids, jax.random.key(1)))).any()


def test_token_dropout_changes_training_and_not_evaluation(place):
    plain, hiding = job(place), job(place, **{"data.token_dropout": 0.5})
    params, batch = jax.jit(hiding.init_params)(jax.random.key(0)), hiding.train_source.batch(0)

    def loss(job, key):
        return float(jax.jit(job.task.loss)(params, batch, key, job.task.weights(batch))[0])

    assert loss(plain, jax.random.key(1)) != pytest.approx(loss(hiding, jax.random.key(1)), rel=1e-5)
    assert loss(plain, None) == loss(hiding, None)


def test_evaluate_scores_the_finished_model_as_training_did(place, tuned):
    results, model = tuned
    scores = evaluation.evaluate(model, str(place / "dev.tsv"), COLUMNS, batch_size=16)
    assert scores.pop("examples") == 101
    assert scores == pytest.approx({name: results[f"eval/{name}"] for name in ("accuracy", "f1", "matthews")})


@pytest.mark.slow
def test_the_average_is_what_is_scored_and_kept(place, tmp_path):
    constant = {"num_steps": 3, "optimizer.schedule": "constant", "optimizer.warmup_ratio": 0.0}
    expected = None
    for step, (state, _) in enumerate(steps(recipe(place, **constant), tmp_path / "plain", progress=False)):
        params = jax.device_get(state.params)
        kept = min(0.9, step / (step + 3))
        average = params if expected is None else expected
        expected = jax.tree.map(lambda a, p, kept=kept: kept * a + (1 - kept) * p, average, params)
    averaged = constant | {"optimizer.average_decay": 0.9}
    results = train(recipe(place, **averaged), tmp_path / "averaged", progress=False)
    model = tmp_path / "averaged" / "model"
    found = load_pretrained(model).params
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)
    assert np.abs(found["classifier"]["kernel"] - params["classifier"]["kernel"]).max() > 1e-5
    scores = evaluation.evaluate(model, str(place / "dev.tsv"), COLUMNS, metric_names=("accuracy",))
    assert scores["accuracy"] == results["eval/accuracy"]


@pytest.mark.parametrize("name", ["out.jsonl", "out.tsv"])
def test_predict_answers_every_row_in_its_order(place, tuned, tmp_path, monkeypatch, name):
    monkeypatch.setattr("bert_jax.evaluation.writing.CHUNK", 40)  # three parts, the last smaller
    lines = (place / "dev.tsv").read_text().splitlines()[1:]
    count = evaluation.predict(tuned[1], str(place / "dev.tsv"), tmp_path / name, Columns("sentence"), batch_size=16)
    written = (tmp_path / name).read_text().splitlines()
    if name.endswith(".tsv"):
        assert written.pop(0) == "label\tnegative\tpositive"
        answers = [row.split("\t") for row in written]
        labels, totals = [row[0] for row in answers], [float(row[1]) + float(row[2]) for row in answers]
    else:
        answers = [json.loads(row) for row in written]
        assert [row["text"] for row in answers] == [line.split("\t")[0] for line in lines]
        labels, totals = [row["label"] for row in answers], [sum(row["scores"].values()) for row in answers]
    assert count == len(labels) == 101
    np.testing.assert_allclose(totals, 1, atol=1e-5)
    assert np.mean([label == line.split("\t")[1] for label, line in zip(labels, lines, strict=True)]) > 0.95
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_regression(place, tmp_path):
    """The number of words, over pairs; five steps suffice to see that all of it runs."""
    rng = np.random.default_rng(0)
    rows = [(" ".join(rng.choice(NEITHER, n)), " ".join(rng.choice(NICE, n)), n) for n in rng.integers(1, 6, 40)]
    for file in ("train.jsonl", "dev.jsonl"):
        (tmp_path / file).write_text("".join(json.dumps({"a": a, "b": b, "n": int(n)}) + "\n" for a, b, n in rows))
    data = {"train": tmp_path / "train.jsonl", "dev": tmp_path / "dev.jsonl", "text_column": "a", "pair_column": "b",
            "label_column": "n", "task_type": "regression"}  # fmt: skip
    changes = {f"data.{name}": str(value) for name, value in data.items()}
    results = train(recipe(place, num_steps=5, **changes), tmp_path / "run", progress=False)
    assert {"eval/pearson", "eval/spearman", "eval/mse", "train/mse"} <= results.keys()
    model = tmp_path / "run" / "model"
    config = load_pretrained(model).config
    assert (config.num_labels, config.problem_type) == (1, "regression")
    scores = evaluation.evaluate(model, str(tmp_path / "dev.jsonl"), Columns("a", "b", "n"), metric_names=["mse"])
    assert scores == {"mse": pytest.approx(results["eval/mse"], rel=1e-4), "examples": 40}
    evaluation.predict(model, str(tmp_path / "dev.jsonl"), tmp_path / "out.tsv", Columns("a", "b"))
    header, *numbers = (tmp_path / "out.tsv").read_text().splitlines()
    assert header == "score"
    assert np.mean([(float(x) - n) ** 2 for x, (*_, n) in zip(numbers, rows, strict=True)]) == pytest.approx(
        scores["mse"], rel=1e-3
    )


def test_what_is_built(place):
    made = job(place, **{"data.length_buckets": (8, 16), "data.metrics": ("f1",), "num_epochs": 0.5})
    assert made.train_source.buckets == (8, 16, 22)
    assert made.num_steps == 7
    assert made.task.metrics == ("f1",)
    assert made.eval_source.num_examples == 101
    assert "classifier" not in made.pretrained
    assert made.pretrained["pooler"]["dense"]["kernel"].shape == (32, 32)
    assert job(place, **{"data.dev": ""}).eval_source is None


def test_the_head_of_a_finished_classifier_is_not_taken_over(place, tuned):
    made = job(place, init_from=str(tuned[1]))
    assert "classifier" not in made.pretrained
    head = jax.jit(made.init_params)(jax.random.key(0))["classifier"]["kernel"]
    assert 0.01 < float(head.std()) < 0.03  # initializer_range 0.02, truncated


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.train": ""}, r"config\.data\.train: expected a file"),
        ({"data.train": "/no/such/file.tsv"}, r"/no/such/file\.tsv: no such file"),
        (
            {"data.text_column": "sentense"},
            r"train\.tsv: line 1: expected a column 'sentense'; did you mean 'sentence'",
        ),
        ({"data.max_seq_length": 64}, r"config\.data\.max_seq_length: expected at most the model's 32 positions"),
        ({"data.metrics": ("acuracy",)}, r"data\.metrics: 'acuracy' is not a metric"),
        ({"init_from": "", "tokenizer": ""}, r"config\.tokenizer: expected a tokenizer"),
        ({"model.num_hidden_layers": 3}, r"config\.model\.num_hidden_layers: expected 1, .* found 3"),
    ],
)
def test_what_does_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        job(place, **changes)


def test_an_unknown_label_in_the_dev_data(place, tmp_path):
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\ngood\tpositive\nbad\tneutral\n")
    with pytest.raises(InputError, match=r"dev\.tsv: line 3: expected a label of 'negative', 'positive', found 'neu"):
        job(place, **{"data.dev": str(tmp_path / "dev.tsv")})


def test_refused_by_evaluate_and_predict(place, tuned, tmp_path):
    dev, model = str(place / "dev.tsv"), tuned[1]
    with pytest.raises(InputError, match="expected a model for sequence_classification, found one for encoder"):
        ClassificationEvaluator(place / "encoder")
    with pytest.raises(InputError, match="max_seq_length: expected at most the model's 32 positions"):
        evaluation.evaluate(model, dev, COLUMNS, max_seq_length=64)
    with pytest.raises(InputError, match=r"expected a file named \.jsonl or \.tsv or \.csv or \.parquet to write to"):
        evaluation.predict(model, dev, tmp_path / "out.txt", COLUMNS)
    (tmp_path / "cut.tsv").write_text((place / "dev.tsv").read_text() + "no label here")
    with pytest.raises(InputError, match=r"cut\.tsv: line 103: expected 2 columns"):
        evaluation.predict(model, str(tmp_path / "cut.tsv"), tmp_path / "out.jsonl", COLUMNS)
    assert [path.name for path in tmp_path.iterdir()] == ["cut.tsv"]


@pytest.mark.slow
def test_a_run_ends_when_it_gets_no_better(place, tmp_path, monkeypatch):
    accuracies = {4: 0.5, 8: 0.7, 12: 0.6, 16: 0.7, 20: 0.6, 24: 0.65}  # the second 0.7 is no worse
    monkeypatch.setattr(ClassificationTask, "score", lambda *_: {"accuracy": accuracies[next(steps)]})
    c = recipe(place, best_metric="accuracy", eval_every=4, stop_after=2, log_every=4)
    steps = iter(accuracies)
    results = train(c, tmp_path / "run", progress=False)
    assert next(steps, None) is None  # all were asked for, and no more
    assert (results["step"], results["eval/accuracy"]) == (16, 0.7)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in lines) == 24  # of 78
    written = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "run" / "model")  # as if killed before it was written
    assert train(c, tmp_path / "run", progress=False) == results
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == written


def test_stopping_needs_a_metric(place):
    with pytest.raises(InputError, match="stop_after: expected best_metric and eval_every to be set too"):
        job(place, stop_after=2, eval_every=4)


def test_a_submission_to_glue(place, tuned, tmp_path):
    dev = str(place / "dev.tsv")
    evaluation.predict(tuned[1], dev, tmp_path / "out.tsv", Columns(), submission=True)
    evaluation.predict(tuned[1], dev, tmp_path / "out.jsonl", Columns())
    answers = [json.loads(line)["label"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = ["index\tprediction", *(f"{i}\t{answer}" for i, answer in enumerate(answers))]
    assert (tmp_path / "out.tsv").read_text().splitlines() == expected and len(answers) == 101
    with pytest.raises(InputError, match=r"expected a file named \.tsv for a submission"):
        evaluation.predict(tuned[1], dev, tmp_path / "x.jsonl", Columns(), submission=True)
