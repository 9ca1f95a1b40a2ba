"""Long texts in windows: what a row shows, what it weighs, and that their answers are one answer everywhere."""

import json

import jax
import numpy as np
import pytest
from small_tasks import SmallTask

from bert_jax import evaluation
from bert_jax.cli import main
from bert_jax.data.finetuning.features import encode_texts
from bert_jax.data.finetuning.tables import Columns, Example
from bert_jax.data.finetuning.windows import averaged, text_windows
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.tokenization.layout import RowLayout

COLUMNS = Columns("sentence", "", "label")
WORDS = ["the", "cat", "sat", "on", "a", "tree", "and", "bird"]


def write_table(path, rows, seed, filling, telling):
    """Some words that tell nothing, up to `filling`, and behind them some of which the half tells the label."""
    random = np.random.default_rng(seed)
    lines = ["sentence\tlabel"]
    for _ in range(rows):
        label = random.integers(2)
        words = list(random.choice(WORDS, random.integers(2, filling)))
        words += list(random.choice([*WORDS[:3], *["good" if label else "bad"] * 3], random.integers(2, telling)))
        lines.append(f"{' '.join(words)}\t{'yes' if label else 'no'}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("long")
    write_table(root / "train.tsv", 160, seed=0, filling=40, telling=20)
    write_table(root / "dev.tsv", 61, seed=1, filling=40, telling=20)
    write_table(root / "short.tsv", 60, seed=2, filling=8, telling=7)
    write_small(root / "encoder", max_position_embeddings=16, initializer_range=0.2)
    return root


SMALL = SmallTask("classification", {
    "init_from": "{place}/encoder", "data.train": "{place}/train.tsv", "data.dev": "{place}/dev.tsv",
    "data.max_seq_length": 16, "data.length_buckets": (16,), "data.long_texts": "windows", "data.doc_stride": 7,
    "global_batch_size": 32, "num_epochs": 3.0, "optimizer.learning_rate": 2e-3,
})  # fmt: skip
recipe, job = SMALL.recipe, SMALL.job


@pytest.fixture(scope="module")
def tuned(place):
    """What training returned, and the finished model."""
    return SMALL.train(place)


def test_windows_over_a_text():
    layout = RowLayout.bert(101, 102)
    rows, numbers = text_windows([[1, 2, 3, 4, 5, 6, 7], [8], [], [1, 2, 3, 4]], layout, 6, 2)
    assert rows == [[101, 1, 2, 3, 4, 102], [101, 3, 4, 5, 6, 102], [101, 5, 6, 7, 102], [101, 8, 102], [101, 102],
                    [101, 1, 2, 3, 4, 102]]  # fmt: skip
    assert numbers.tolist() == [0, 0, 0, 1, 2, 3]
    assert text_windows([range(1, 8)], layout, 6, 0)[0] == rows[:3]  # half of the four that there is room for
    assert [len(row) for row in text_windows([range(9)], layout, 6, 9)[0]] == [6, 6, 3]  # none is left out between


def test_the_average_by_hand():
    logits = np.array([[1.0, 2.0], [4.0, -1.0], [0.1, 0.3], [7.0, 0.0]], np.float32)
    found = averaged(logits, np.array([0, 0, 1, 0]), np.array([6, 3, 5, 1]))
    expected = [[(6 * 1 + 3 * 4 + 1 * 7) / 10, (6 * 2 - 3 * 1) / 10], [0.1, 0.3]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    many = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    lengths = np.random.default_rng(1).integers(2, 9000, 1000)
    np.testing.assert_array_equal(averaged(many, np.arange(1000), lengths), many)  # one window: to the bit


def test_a_text_weighs_the_same_in_however_many_windows(tiny_tokenizer):
    rows = [Example(1, "the cat sat on a tree and a bird", None, "x"), Example(2, "the cat", None, "y")]
    features = encode_texts(tiny_tokenizer, rows, np.array([4, 5], np.int32), 6, stride=4)
    batch = features.pad(np.array([0, 2, 3, 1, -1]), 8, 0)
    assert batch["documents"].tolist() == [0, 0, 1, 0, -1] and features.num_examples == 2
    assert batch["labels"].tolist() == [4, 4, 5, 4, 0]
    np.testing.assert_allclose(batch["example_weights"], [1 / 3, 1 / 3, 1, 1 / 3, 0])
    whole = encode_texts(tiny_tokenizer, rows[1:], np.array([5], np.int32), 6)
    for name, expected in whole.pad(np.array([0]), 8, 0).items():
        np.testing.assert_array_equal(batch[name][2:3], expected)


def test_the_loss_by_hand(place):
    made = job(place, **{"data.class_weights": "balanced"})
    task, batch = made.task, made.train_source.batch(0)
    params = jax.jit(made.init_params)(jax.random.key(0))
    logits = np.asarray(jax.jit(task.predict)(params, batch)["logits"], np.float64)
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(32), batch["labels"]]
    weights = batch["example_weights"] * np.array(task.class_weights)[batch["labels"]]
    assert 0 < batch["example_weights"].min() < 0.3  # some text of this batch has more than three windows
    loss, _ = jax.jit(lambda params, batch: task.loss(params, batch, None, task.weights(batch)))(params, batch)
    assert float(loss) == pytest.approx((losses * weights).sum() / weights.sum(), rel=1e-5)
    labels = np.array([line.split("\t")[1] == "yes" for line in (place / "train.tsv").read_text().splitlines()[1:]])
    assert task.class_weights == pytest.approx((80 / (~labels).sum(), 80 / labels.sum()))  # of texts, not of windows


def test_every_text_is_scored_once_and_alike_everywhere(place, tuned, tmp_path, capsys):
    results, model = tuned
    dev, options = str(place / "dev.tsv"), {"long_texts": "windows", "doc_stride": 7, "batch_size": 8}
    labels = [line.split("\t")[1] for line in (place / "dev.tsv").read_text().splitlines()[1:]]
    texts = [line.split("\t")[0] for line in (place / "dev.tsv").read_text().splitlines()[1:]]
    scores = evaluation.evaluate(model, dev, COLUMNS, **options)
    assert scores.pop("examples") == 61
    assert scores == pytest.approx({name: results[f"eval/{name}"] for name in scores})
    assert evaluation.predict(model, dev, tmp_path / "out.jsonl", COLUMNS, **options) == 61
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == texts
    assert np.mean([row["label"] == label for row, label in zip(rows, labels, strict=True)]) == pytest.approx(
        scores["accuracy"]
    )
    answers = pipeline("text-classification", model, batch_size=5)(texts, windows=True, doc_stride=7)
    assert [answer["label"] for answer in answers] == [row["label"] for row in rows]
    np.testing.assert_allclose(
        [answer["score"] for answer in answers], [row["scores"][row["label"]] for row in rows], atol=1e-5
    )
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    command = ["classify", str(model), "--json", "--file", str(tmp_path / "texts.txt"), "--long-texts", "windows"]
    assert main([*command, "--doc-stride", "7"]) == 0
    asked = [json.loads(line)["scores"][0] for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose([row["score"] for row in asked], [answer["score"] for answer in answers], atol=1e-6)
    command = ["--model", str(model), "--data", dev, "--long-texts", "windows", "--doc-stride", "7"]
    assert main(["evaluate", "--json", *command]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(scores["accuracy"])
    cut = evaluation.evaluate(model, dev, COLUMNS)
    assert cut["accuracy"] < scores["accuracy"]  # what tells the label is often behind the cut


def test_the_average_of_a_model_by_hand(place, tuned, tiny_tokenizer):
    """One text through the model window by window."""
    text = " ".join(["the cat sat on a tree and"] * 4 + ["good"])
    ids = tiny_tokenizer.encode(text)
    pipe = pipeline("text-classification", tuned[1])
    windows = [ids[start : start + 14] for start in range(0, len(ids) - 7, 7)]
    logits = []
    for window in windows:
        row = np.array([[*tiny_tokenizer.layout.start, *window, *tiny_tokenizer.layout.end]])
        inputs = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        logits.append(pipe.model.run(inputs, ("logits",)).logits[0])
    mean = np.average(logits, axis=0, weights=[len(window) + 2 for window in windows])
    shares = np.exp(mean) / np.exp(mean).sum()
    found = {answer["label"]: answer["score"] for answer in pipe(text, top_k=None, windows=True, doc_stride=7)}
    assert len(windows) > 2
    assert found == pytest.approx(dict(zip(("no", "yes"), shares, strict=True)), abs=1e-6)


def test_short_texts_are_as_ever_to_the_bit(place, tuned, tmp_path):
    short = str(place / "short.tsv")
    cut, windows = (
        job(place, **{"data.train": short, "data.dev": short, "data.long_texts": name}) for name in ("cut", "windows")
    )
    for source in ("train_source", "eval_source"):
        a, b = getattr(cut, source).batch(1), getattr(windows, source).batch(1)
        assert a.keys() == b.keys() - {"documents"}
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
    scores, answers = [], []
    for name in ("cut", "windows"):
        scores.append(evaluation.evaluate(tuned[1], short, COLUMNS, long_texts=name))
        evaluation.predict(tuned[1], short, tmp_path / "out.jsonl", COLUMNS, long_texts=name)
        answers.append((tmp_path / "out.jsonl").read_text())
    assert scores[0] == scores[1] and answers[0] == answers[1]


def test_the_outline_is_that_of_the_job(place):
    made = job(place)
    without = SMALL.abstract_task(place, **{"data.train": "", "data.dev": "", "num_steps": 3})
    expected = {name: (array.shape, array.dtype) for name, array in made.train_source.batch(0).items()}
    assert {name: (shape.shape, shape.dtype) for name, shape in without.stages[0].batch.items()} == expected


def test_what_does_not_fit(place, tuned, tmp_path, capsys):
    model, dev = str(tuned[1]), str(place / "dev.tsv")
    with pytest.raises(InputError, match=r"config\.data\.long_texts: expected cut for pairs of texts"):
        job(place, **{"data.pair_column": "label"})
    with pytest.raises(InputError, match=r"config\.data\.long_texts: 'window' is not known; did you mean 'windows'"):
        job(place, **{"data.long_texts": "window"})
    with pytest.raises(InputError, match="expected single texts to read in windows, found pairs of texts"):
        evaluation.evaluate(model, dev, Columns("sentence", "sentence", "label"), long_texts="windows")
    with pytest.raises(InputError, match="doc_stride of at least 0, found 'windows' and -1"):
        evaluation.evaluate(model, dev, COLUMNS, long_texts="windows", doc_stride=-1)
    pipe = pipeline("text-classification", model)
    with pytest.raises(InputError, match="windows: expected single texts, found pairs"):
        pipe({"text": "a", "text_pair": "b"}, windows=True)
    with pytest.raises(InputError, match=r"a doc_stride of at least 0 .* of 4 to 16 tokens"):
        pipe("a", windows=True, doc_stride=-1)
    assert main(["classify", model, "a cat", "--long-texts", "windows", "--labels", "a,b"]) == 2
    assert "--long-texts: expected none with --labels" in capsys.readouterr().err
