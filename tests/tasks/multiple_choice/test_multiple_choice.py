"""Multiple choice: its files, learning through the loop, logits beside transformers, and the finished model."""

import json

import jax
import numpy as np
import pytest
from small_tasks import SmallTask

from bert_jax import evaluation, jobs, recipes
from bert_jax.cli import main
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.data.finetuning.tables import Columns
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained
from bert_jax.tasks.multiple_choice.evaluation import MultipleChoiceEvaluator
from bert_jax.tasks.multiple_choice.task import (
    MultipleChoiceTask,
    columns_of,
    encode_questions,
    read_answered,
    read_choice_questions,
)

COLUMNS = columns_of("context", "", ("choices",), "label")
GOOD, BAD, OTHERS = ["good", "young", "bird"], ["bad", "old", "stone"], ["the", "cat", "sat", "on", "a", "tree"]


def write_rows(path, rows, seed):
    """Contexts of a few words, and three choices of which one holds a nice word and the others a nasty one."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        label = int(rng.integers(3))
        choices = [" ".join(rng.permutation([*rng.choice(OTHERS, rng.integers(1, 6)),
                                             rng.choice(GOOD if i == label else BAD)])) for i in range(3)]  # fmt: skip
        lines.append({"context": " ".join(rng.choice(OTHERS, 3)), "choices": choices, "label": label})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """Tables, and an encoder with random parameters to start from."""
    root = tmp_path_factory.mktemp("choice")
    write_rows(root / "train.jsonl", 320, seed=0)
    write_rows(root / "dev.jsonl", 61, seed=1)
    write_small(root / "encoder")
    return root


SMALL = SmallTask("multiple_choice", {
    "init_from": "{place}/encoder", "data.train": "{place}/train.jsonl", "data.dev": "{place}/dev.jsonl",
    "data.max_seq_length": 24, "data.length_buckets": (24,), "global_batch_size": 32, "num_epochs": 6.0,
    "optimizer.learning_rate": 2e-3,
})  # fmt: skip
recipe, job = SMALL.recipe, SMALL.job


@pytest.fixture(scope="module")
def tuned(place):
    """What training in micro-batches returned, and the finished model."""
    return SMALL.train(place, accumulation_steps=2)


def test_a_separable_task_is_learned(tuned):
    results, model = tuned
    assert results["step"] == 60
    assert results["eval/accuracy"] > 0.95
    assert results["train/cross_entropy"] == pytest.approx(results["train/loss"], rel=1e-4)
    assert evaluation.evaluator_class(model) is MultipleChoiceEvaluator and load_pretrained(model).missing == []


def test_loss_by_hand(place):
    made = job(place)
    batch = made.train_source.batch(0)
    batch["example_weights"][5:] = 0
    params = jax.jit(made.init_params)(jax.random.key(0))
    logits = np.asarray(jax.jit(made.task.predict)(params, batch)["logits"], np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    loss, found = jax.jit(made.task.loss)(params, batch, None, made.task.weights(batch))
    assert logits.shape == (32, 3)
    assert float(loss) == pytest.approx(-np.log(shares[np.arange(5), batch["labels"][:5]]).mean(), rel=1e-5)
    assert float(found["accuracy"][0]) == (logits.argmax(1) == batch["labels"])[:5].sum() and found["accuracy"][1] == 5


@pytest.mark.oracle
def test_logits_are_those_of_transformers(tuned, tiny_tokenizer):
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    theirs = transformers.BertForMultipleChoice.from_pretrained(tuned[1]).eval()
    ours = from_pretrained(tuned[1])
    choices = ["a bird", "the old stone sat on the tree", "", "good"]  # padded to the longest
    flat = tiny_tokenizer(["the cat sat"] * 8, choices + choices[::-1])
    inputs = {name: array.reshape(2, 4, -1) for name, array in flat.items()}
    assert inputs["attention_mask"].min() == 0
    with torch.no_grad():
        expected = theirs(**{name: torch.tensor(array, dtype=torch.long) for name, array in inputs.items()}).logits
    assert np.ptp(expected.numpy()) > 0.1
    np.testing.assert_allclose(ours(**inputs).logits, expected.numpy(), atol=1e-5)
    task = MultipleChoiceTask(ours.bert)
    np.testing.assert_allclose(task.predict(ours.params, inputs)["logits"], expected.numpy(), atol=1e-5)


# Files in their shapes


def test_swag_hellaswag_and_race(tmp_path, tiny_tokenizer):
    swag = 'id,sent1,sent2,ending0,ending1,label\n7,the cat sat,it,sleeps,"eats, runs",1\n'
    hellaswag = {"ctx": "the cat sat. it", "endings": ["sleeps", "eats, runs"], "label": "1"}
    race = {"article": "the cat sat", "question": "it", "options": ["sleeps", "eats, runs"], "answer": "B"}
    (tmp_path / "swag.csv").write_text(swag)
    (tmp_path / "hellaswag.jsonl").write_text(json.dumps(hellaswag))
    (tmp_path / "race.jsonl").write_text(json.dumps(race))
    with_question = {}
    for name, columns in (
        ("swag.csv", columns_of("sent1", "sent2", ("ending0", "ending1"), "label")),
        ("race.jsonl", columns_of("article", "question", ("options",), "answer")),
        ("hellaswag.jsonl", columns_of("ctx", "", ("endings",), "label")),
    ):
        rows = encode_questions(tiny_tokenizer, read_answered(str(tmp_path / name), columns), 24)
        assert rows.labels.tolist() == [1] and rows.size == 2
        with_question[name] = rows.sequences.tokens.tolist()
    assert with_question["swag.csv"] == with_question["race.jsonl"] != with_question["hellaswag.jsonl"]
    expected = [tiny_tokenizer("the cat sat", f"it {ending}")["input_ids"][0] for ending in ("sleeps", "eats, runs")]
    assert with_question["swag.csv"] == np.concatenate(expected).tolist()


def test_real_questions_are_read(shared_data):
    rows = list(read_choice_questions(str(shared_data / "hellaswag" / "val.jsonl"), COLUMNS))
    assert len(rows) == 1500 and all(len(row.choices) == 4 for row in rows)
    assert sum(row.label == "0" for row in rows) in range(300, 450)


def test_what_is_built(place):
    made = job(place, **{"data.length_buckets": (8, 16)})
    batch = made.train_source.batch(0)
    assert batch["input_ids"].shape[:2] == (32, 3) and batch["labels"].dtype == np.int32
    assert "classifier" not in made.pretrained
    filled = made.eval_source.batch(1)
    assert filled["example_weights"].sum() == 61 - 32 and not filled["attention_mask"][29:].any()
    abstract = SMALL.abstract_task(place)
    assert [stage.batch["input_ids"].shape for stage in abstract.stages] == [(32, 3, 24)]
    c = recipes.multiple_choice()
    c.num_steps = 5
    (stage,) = jobs.abstract_task(recipes.resolve(c)).stages
    assert stage.batch["input_ids"].shape == (16, 4, 128)


# Evaluating and predicting


def test_evaluate_scores_the_finished_model_as_training_did(place, tuned):
    results, model = tuned
    scores = evaluation.evaluate(model, str(place / "dev.jsonl"), Columns(), batch_size=16)
    assert scores == {"accuracy": results["eval/accuracy"], "examples": 61}


@pytest.mark.parametrize("name", ["out.jsonl", "out.tsv"])
def test_predict_answers_every_row_in_its_order(place, tuned, tmp_path, monkeypatch, name):
    monkeypatch.setattr("bert_jax.evaluation.writing.CHUNK", 25)  # three parts, the last smaller
    rows = [json.loads(line) for line in (place / "dev.jsonl").read_text().splitlines()]
    count = evaluation.predict(tuned[1], str(place / "dev.jsonl"), tmp_path / name, COLUMNS, batch_size=16)
    written = (tmp_path / name).read_text().splitlines()
    if name.endswith(".tsv"):
        assert written.pop(0) == "label\tchoice_0\tchoice_1\tchoice_2"
        answers = [line.split("\t") for line in written]
        labels, shares = [int(row[0]) for row in answers], [list(map(float, row[1:])) for row in answers]
    else:
        answers = [json.loads(line) for line in written]
        assert [row["choices"] for row in answers] == [row["choices"] for row in rows]
        labels, shares = [row["label"] for row in answers], [row["scores"] for row in answers]
    assert count == len(labels) == 61
    np.testing.assert_allclose(np.sum(shares, 1), 1, atol=1e-5)
    assert np.argmax(shares, 1).tolist() == labels
    assert np.mean([label == row["label"] for label, row in zip(labels, rows, strict=True)]) > 0.95


def test_the_command_line_names_the_columns(place, tuned, tmp_path, capsys):
    rows = [json.loads(line) for line in (place / "dev.jsonl").read_text().splitlines()][:9]
    table = [["sent1", "sent2", "e0", "e1", "e2", "label"]]
    table += [[row["context"], "", *row["choices"], str(row["label"])] for row in rows]
    (tmp_path / "swag.csv").write_text("".join(",".join(fields) + "\n" for fields in table))
    columns = ("--text-column", "sent1", "--pair-column", "sent2", "--choice-columns", "e0,e1,e2")
    common = ("--model", str(tuned[1]), "--data", str(tmp_path / "swag.csv"), *columns)
    assert main(["predict", *common, "--out", str(tmp_path / "out.jsonl")]) == 0
    choices = [json.loads(line)["choices"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert choices == [row["choices"] for row in rows]
    capsys.readouterr()
    assert main(["evaluate", *common, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.8


# What does not fit


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"context": "a", "choices": ["x", "y"], "label": 2}'], "line 1: expected a label from 0 to 1 or from A"),
        (['{"context": "a", "choices": ["x", "y"], "label": "C"}'], "line 1: expected a label .* found 'C'"),
        (['{"context": "a", "choices": ["x", "y"], "label": -1}'], "line 1: expected a label .* found '-1'"),
        (['{"context": "a", "choices": ["x", "y"]}'], "line 1: expected a field 'label'"),
        (['{"context": "a", "choices": ["x"], "label": 0}'], "line 1: expected at least 2 choices, found 1"),
        (['{"context": "a", "choices": "x", "label": 0}'], "line 1: expected a list of texts in 'choices', found str"),
        (['{"context": "a", "choices": ["x", 3], "label": 0}'], "line 1: expected a list of .* found one with int"),
        (
            ['{"context": "a", "choices": ["x", "y"], "label": 0}', '{"context": "a", "choices": [], "label": 0}'],
            "line 2: expected at least 2 choices, found 0",
        ),
        (
            ['{"context": "a", "choices": ["x", "y"], "label": 0}',
             '{"context": "a", "choices": ["x", "y", "z"], "label": 0}'],
            "line 2: expected 2 choices as in the first row, found 3",
        ),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit(tmp_path, tiny_tokenizer, lines, message):
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError, match=rf"rows\.jsonl: {message}"):
        read_answered(str(tmp_path / "rows.jsonl"), COLUMNS)


def test_a_table_has_no_lists(tmp_path, tiny_tokenizer):
    (tmp_path / "rows.csv").write_text("context,choices,label\na,\"['x', 'y']\",0\n")
    with pytest.raises(InputError, match=r"rows\.csv: expected JSON lines or TFDS for a list of texts \('choices'\)"):
        read_answered(str(tmp_path / "rows.csv"), COLUMNS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.train": ""}, r"config\.data\.train: expected a file"),
        ({"data.choice_columns": ()}, r"config\.data\.choice_columns: expected a column, found none"),
        ({"data.choice_columns": ("choises",)}, r"expected a field 'choises'; did you mean 'choices'"),
        ({"data.choice_columns": ("choices", "context")}, r"line 1: expected text in 'choices', found list"),
        ({"data.max_seq_length": 64}, r"max_seq_length: expected at most the model's 32 positions"),
    ],
)
def test_recipes_that_do_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        job(place, **changes)


def test_refused_by_evaluate_and_predict(place, tuned, tmp_path):
    dev = str(place / "dev.jsonl")
    with pytest.raises(InputError, match="expected a model for multiple_choice, found one for encoder"):
        MultipleChoiceEvaluator(place / "encoder")
    with pytest.raises(InputError, match="'acuracy' is not a metric of multiple choice; did you mean 'accuracy'"):
        evaluation.evaluate(tuned[1], dev, COLUMNS, metric_names=("acuracy",))
    with pytest.raises(InputError, match=r"expected a file named \.jsonl or \.tsv"):
        evaluation.predict(tuned[1], dev, tmp_path / "out.txt", COLUMNS)
    (tmp_path / "cut.jsonl").write_text((place / "dev.jsonl").read_text() + '{"context": "a", "choices": ["b"')
    with pytest.raises(InputError, match=r"cut\.jsonl: line 62: expected a JSON object"):
        evaluation.predict(tuned[1], str(tmp_path / "cut.jsonl"), tmp_path / "out.jsonl", COLUMNS)
    assert [path.name for path in tmp_path.iterdir()] == ["cut.jsonl"]


def test_a_longer_choice_is_cut(tmp_path, tiny_tokenizer):
    row = {"context": "cat " * 40, "choices": ["dog", "bird " * 40], "label": 0}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    rows = encode_questions(tiny_tokenizer, read_answered(str(tmp_path / "rows.jsonl"), COLUMNS), 16)
    batch = rows.pad(np.array([0]), 16, 0)
    assert batch["attention_mask"].all()
    assert tiny_tokenizer.decode(batch["input_ids"][0, 0]).endswith("dog")
