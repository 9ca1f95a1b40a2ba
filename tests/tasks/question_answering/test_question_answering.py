"""Answering questions from SQuAD's files, through the training loop to the finished model's predictions."""

import json

import jax
import numpy as np
import pytest
from small_tasks import SmallTask

from bert_jax import evaluation, recipes
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.data.finetuning.tables import Columns
from bert_jax.errors import InputError
from bert_jax.tasks.question_answering import metrics as squad_scores
from bert_jax.tasks.question_answering.data import read_questions
from bert_jax.tasks.question_answering.evaluation import QuestionAnsweringEvaluator

FILLERS = ["the", "a", "of", "to", "in", "is", "was", "and", "on", "under", "by", "with", "from", "sees", "eats"]
# What is asked for -> the answers that there may be; of two words in part.
KINDS = {
    "man or bird?": ["man", "old man", "child", "young child", "bird", "big bird"],
    "red or blue?": ["red", "green", "blue", "red house", "blue river"],
    "one or two?": ["one", "two", "three", "two time", "one night"],
}
NO_COLUMNS = Columns()


def write_questions(path, count, seed, version=2):
    """Contexts of 8 to 30 words with one answer of each kind, of which version 2 leaves out the one in three times."""
    random = np.random.default_rng(seed)
    paragraphs = []
    for i in range(count):
        kinds = list(KINDS)
        asked = kinds[random.integers(len(kinds))]
        impossible = version == 2 and random.random() < 1 / 3
        words = list(random.choice(FILLERS, random.integers(8, 30)))
        chosen = {kind: str(random.choice(KINDS[kind])) for kind in kinds if not (impossible and kind == asked)}
        for phrase in chosen.values():
            words.insert(random.integers(len(words) + 1), phrase)
        context = " ".join(words)
        answers = [] if impossible else [{"text": chosen[asked], "answer_start": context.index(chosen[asked])}]
        row = {"id": f"q{i}", "question": asked, "answers": answers}
        paragraphs.append({"context": context, "qas": [row | ({"is_impossible": impossible} if version == 2 else {})]})
    path.write_text(json.dumps({"version": f"v{version}.0", "data": [{"title": "t", "paragraphs": paragraphs}]}))


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """Questions, and an encoder with random parameters to start from."""
    root = tmp_path_factory.mktemp("answering")
    write_questions(root / "train.json", 500, seed=0)
    write_questions(root / "dev.json", 100, seed=1)
    write_questions(root / "dev1.json", 60, seed=2, version=1)
    write_small(
        root / "encoder",
        max_position_embeddings=48,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
    )
    return root


SMALL = SmallTask("question_answering", {
    "init_from": "{place}/encoder", "data.train": "{place}/train.json", "data.dev": "{place}/dev.json",
    "data.max_seq_length": 28, "data.doc_stride": 8, "data.max_query_length": 8, "data.length_buckets": (28,),
    "global_batch_size": 32, "num_epochs": 6.0, "optimizer.learning_rate": 5e-3,
})  # fmt: skip
recipe, job = SMALL.recipe, SMALL.job


@pytest.fixture(scope="module")
def tuned(place):
    """What training returned, and the finished model."""
    return SMALL.train(place)


OPTIONS = {"max_seq_length": 28, "doc_stride": 8, "max_query_length": 8, "batch_size": 16}


def test_questions_are_learned(tuned):
    results, model = tuned
    assert results["eval/HasAns_exact"] > 85 and results["eval/NoAns_exact"] > 85
    assert results["eval/f1"] >= results["eval/exact"] > 85
    assert results["eval/total"] == 100
    assert results["train/spans_found"] > 0.85
    assert load_pretrained(model).head == "question_answering"


def test_evaluate_gives_the_figures_of_training(place, tuned):
    results, model = tuned
    scores = evaluation.evaluate(model, str(place / "dev.json"), NO_COLUMNS, **OPTIONS)
    assert scores.pop("examples") == 100
    assert scores == pytest.approx({name: results[f"eval/{name}"] for name in scores}, rel=1e-4)
    chosen = evaluation.evaluate(model, str(place / "dev.json"), NO_COLUMNS, metric_names=("f1",), **OPTIONS)
    assert chosen == {"f1": scores["f1"], "examples": 100}


def test_what_predict_writes_scores_as_evaluate_says(place, tuned, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_jax.tasks.question_answering.evaluation._CHUNK", 40)  # three parts, the last smaller
    threshold = -2.0
    spec, options = str(place / "dev.json"), OPTIONS | {"null_threshold": threshold}
    assert evaluation.predict(tuned[1], spec, tmp_path / "out.json", NO_COLUMNS, **options) == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "out.null_odds.json"]
    texts, odds = (json.loads((tmp_path / name).read_text()) for name in ("out.json", "out.null_odds.json"))
    questions = list(read_questions(spec))
    assert list(texts) == list(odds) == [question.id for question in questions]
    assert all(texts[question.id] in question.context for question in questions)
    assert {name for name, text in texts.items() if not text} == {n for n, value in odds.items() if value > threshold}
    written = squad_scores.squad_scores(questions, texts)
    evaluated = evaluation.evaluate(tuned[1], spec, NO_COLUMNS, **options)
    assert written == pytest.approx({name: evaluated[name] for name in written})
    # With every passage written, SQuAD's own search for a threshold finds what `evaluate` does.
    evaluation.predict(tuned[1], spec, tmp_path / "all.json", NO_COLUMNS, **OPTIONS, null_threshold=1e10)
    everything = squad_scores.squad_scores(questions, json.loads((tmp_path / "all.json").read_text()), odds, threshold)
    assert everything == pytest.approx({name: evaluated[name] for name in everything}, rel=1e-5)


def test_the_best_threshold_gives_the_best_figures(place, tuned):
    spec = str(place / "dev.json")
    best = evaluation.evaluate(tuned[1], spec, NO_COLUMNS, **OPTIONS)
    again = evaluation.evaluate(tuned[1], spec, NO_COLUMNS, null_threshold=best["best_f1_thresh"] + 1e-6, **OPTIONS)
    assert again["f1"] == pytest.approx(best["best_f1"])


def test_questions_that_all_have_answers(place, tuned, tmp_path):
    """Version 1.1: every question gets a passage, and no file says what speaks against it."""
    spec = str(place / "dev1.json")
    evaluation.predict(tuned[1], spec, tmp_path / "out.json", NO_COLUMNS, **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    texts = json.loads((tmp_path / "out.json").read_text())
    questions = list(read_questions(spec))
    assert all(texts[question.id] and texts[question.id] in question.context for question in questions)
    scores = evaluation.evaluate(tuned[1], spec, NO_COLUMNS, **OPTIONS)
    assert scores == squad_scores.scores_v1(questions, texts) | {"examples": 60}
    assert set(scores) == {"exact_match", "f1", "examples"} and scores["exact_match"] > 85


def test_the_loss_by_hand(place):
    made = job(place)
    params, task = jax.jit(made.init_params)(jax.random.key(0)), made.task
    loss_of = jax.jit(lambda batch, weights: task.loss(params, batch, None, weights))
    batch = made.train_source.batch(0) | {"example_weights": np.float32([1] * 30 + [0] * 2)}
    logits = jax.device_get(jax.jit(task.predict)(params, batch))
    expected = 0.0
    for row in range(30):
        size = batch["attention_mask"][row].sum()
        for kind in ("start", "end"):
            found = logits[f"{kind}_logits"][row, :size].astype(np.float64)
            expected += (np.log(np.exp(found).sum()) - found[batch[f"{kind}_positions"][row]]) / 60
    weights = task.weights(batch)
    loss, metrics = loss_of(batch, weights)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(metrics["cross_entropy"][0] / metrics["cross_entropy"][1]) == pytest.approx(expected, rel=1e-5)
    of_first = np.float32(np.arange(32) < 12)
    parts = [batch | {"example_weights": batch["example_weights"] * half} for half in (of_first, 1 - of_first)]
    assert sum(float(loss_of(part, weights)[0]) for part in parts) == pytest.approx(expected, rel=1e-5)
    padded = {name: np.pad(array, ((0, 0), (0, 9))) if array.ndim == 2 else array for name, array in batch.items()}
    assert float(loss_of(padded, weights)[0]) == pytest.approx(expected, rel=1e-5)


def test_what_is_built(place):
    made = job(place, **{"num_epochs": 0.5, "data.n_best": 7, "data.max_answer_length": 5, "data.null_threshold": -1.5})
    windows = made.train_source.features
    assert made.train_source.num_examples == len(windows) > 500
    assert made.num_steps == -(-made.train_source.steps_per_epoch // 2)
    assert (made.task.search.n_best, made.task.search.max_answer_length) == (7, 5)
    assert made.task.null_threshold == -1.5
    assert "qa_outputs" not in made.pretrained
    assert job(place, **{"data.dev": ""}).eval_source is None
    # Every answer is whole in at least one window, and where it is, its tokens spell it.
    questions = list(read_questions(str(place / "train.json")))
    spelled = set()
    for i in range(len(windows)):
        start, end = windows.answers[i]
        assert (start == 0) == (end == 0)
        if start:
            question, context = questions[windows.number[i]], windows.contexts[windows.number[i]]
            first, last = (at - windows.place(i) + windows.starts[i] for at in (start, end))
            assert context.text[context.begins[first] : context.ends[last]] == question.answers[0].text
            spelled.add(question.id)
    assert spelled == {question.id for question in questions if question.answers}


def test_answers_that_stand_elsewhere(place, tmp_path):
    tree = json.loads((place / "train.json").read_text())
    rows = [row for paragraph in tree["data"][0]["paragraphs"] for row in paragraph["qas"] if row["answers"]]
    rows[3]["answers"][0]["answer_start"] += 1
    path = tmp_path / "train.json"
    path.write_text(json.dumps(tree))
    with pytest.raises(InputError, match=rf"train\.json: question '{rows[3]['id']}': expected the answer"):
        job(place, **{"data.train": str(path)})
    made = job(place, **{"data.train": str(path), "data.invalid_rows": "skip"})
    assert len(made.train_source.features.questions) == 499
    # Scoring looks at texts alone, and never moves a figure.
    assert len(job(place, **{"data.dev": str(path)}).task.dev.questions) == 500


def test_an_answer_that_no_token_holds(place, tmp_path, tiny_tokenizer):
    """Such as one of characters that a tokenizer drops."""
    row = {"id": "q", "question": "?", "answers": [{"text": "\u200b\u200b", "answer_start": 4}]}
    tree = {"version": "1.1", "data": [{"paragraphs": [{"context": "the \u200b\u200b cat", "qas": [row]}]}]}
    (tmp_path / "a.json").write_text(json.dumps(tree))
    with pytest.raises(InputError, match="question 'q': expected an answer with a token"):
        job(place, **{"data.train": str(tmp_path / "a.json")})
    with pytest.raises(InputError, match="expected at least one valid question, found 1 invalid"):
        job(place, **{"data.train": str(tmp_path / "a.json"), "data.invalid_rows": "skip"})


def test_the_outline_is_that_of_the_job(place):
    made = SMALL.abstract_task(place)
    assert {name: (shape.shape, shape.dtype) for name, shape in made.stages[0].batch.items()} == {
        name: (array.shape, array.dtype) for name, array in job(place).train_source.batch(0).items()
    }
    without = SMALL.abstract_task(place, **{"data.train": "", "data.dev": "", "num_steps": 3})
    assert without.stages[0].batch.keys() == made.stages[0].batch.keys()
    assert without.stages[0].batch["input_ids"].shape == (32, 28)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.train": ""}, r"config\.data\.train: expected a file"),
        ({"data.train": "/no/such/file.json"}, r"/no/such/file\.json: no such file"),
        ({"data.train": "train.tsv"}, r"train\.tsv: expected a file named \.json"),
        ({"data.max_seq_length": 64}, r"config\.data\.max_seq_length: expected at most the model's 48 positions"),
        ({"data.max_query_length": 25}, r"config\.data\.max_seq_length: expected at least 29, for a question of 25"),
        ({"data.doc_stride": 0}, r"config\.data\.doc_stride: expected at least 1"),
        ({"data.null_threshold": float("nan")}, r"config\.data\.null_threshold: expected a finite number"),
        ({"data.invalid_rows": "skipp"}, r"config\.data\.invalid_rows: 'skipp' is not known; did you mean 'skip'"),
        ({"init_from": "", "tokenizer": ""}, r"config\.tokenizer: expected a tokenizer"),
    ],
)
def test_what_does_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        job(place, **changes)


def test_refused_by_evaluate_and_predict(place, tuned, tmp_path):
    dev, model = str(place / "dev.json"), tuned[1]
    with pytest.raises(InputError, match="expected a model for question_answering, found one for encoder"):
        QuestionAnsweringEvaluator(place / "encoder")
    with pytest.raises(InputError, match="expected no columns"):
        evaluation.evaluate(model, dev, Columns("sentence"))
    with pytest.raises(InputError, match=r"'f2' is not a metric of these data; known: .*f1"):
        evaluation.evaluate(model, dev, NO_COLUMNS, metric_names=("f2",), **OPTIONS)
    with pytest.raises(InputError, match="doc_stride: expected at least 1"):
        evaluation.evaluate(model, dev, NO_COLUMNS, doc_stride=0)
    with pytest.raises(InputError, match=r"expected a file named \.json"):
        evaluation.predict(model, dev, tmp_path / "out.jsonl", NO_COLUMNS)
    (tmp_path / "cut.json").write_text((place / "dev.json").read_text()[:-9])
    with pytest.raises(InputError, match=r"cut\.json: expected JSON"):
        evaluation.predict(model, str(tmp_path / "cut.json"), tmp_path / "out.json", NO_COLUMNS)
    assert [path.name for path in tmp_path.iterdir()] == ["cut.json"]


def test_the_recipe_knows_squads_files():
    path = "configs/squad.py"
    c = recipes.resolve(recipes.load_recipe(f"{path}:v2,squad"))
    assert (c.data.train, c.data.dev) == ("squad/train-v2.0.json", "squad/dev-v2.0.json")
    assert (c.global_batch_size, c.num_epochs) == (48, 2.0)
    assert recipes.load_recipe(path).data.train == ""
    with pytest.raises(InputError, match="'v3' is no version of SQuAD"):
        recipes.load_recipe(f"{path}:v3")
