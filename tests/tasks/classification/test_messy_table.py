"""A messy table, from the file to a model, a report and predictions: by the commands that its messages name."""

import csv
import json
import re

import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.cli import main
from bert_jax.conversion.file_names import RECORD
from bert_jax.errors import InputError
from bert_jax.training.loop import train

WORDS = {"1": ["bad", "old", "stone"], "5": ["good", "young", "bird"]}
SPELLINGS = {"1": ["1", " 1", "1.0", '"1"'], "5": ["5", "5 ", "5.0", "\uff15"]}


def write_reviews(path, count, seed):
    """Reviews with semicolons, quotes, emoji, newlines, empty cells and stars in four spellings."""
    random = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter=";")
        table.writerow(["id", "date", "review", "stars"])
        for i in range(count):
            stars = random.choice(["1", "5"])
            words = [*random.choice(WORDS[stars], 2), *random.choice(["the", "cat", "sat", "on"], 3)]
            text = " ".join(random.permutation(words))
            text = random.choice([text, f'"{text}", he said; \U0001f600', f"{text}\nthe cat"])
            label = str(random.choice(SPELLINGS[stars], p=[0.7, 0.1, 0.1, 0.1]))
            # An id of a text, a missing label and an empty text are rows that a user has to decide about.
            table.writerow(
                [f"r{i}", "", "" if i % 250 == 17 else text, ["", "-", "n/a"][i % 3] if i % 100 == 3 else label]
            )


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("messy")
    write_reviews(root / "reviews.csv", 2000, seed=0)
    write_reviews(root / "new.csv", 120, seed=1)
    write_small(root / "encoder")
    return root


@pytest.fixture(scope="module")
def model(place):
    """The command line that its messages lead to, as it is followed, and the model that comes of it."""
    said = []
    changes = {"init_from": str(place / "encoder"), "data.train": str(place / "reviews.csv"),
               "data.validation_split": 0.1, "num_steps": 30, "global_batch_size": 32, "optimizer.learning_rate": 3e-3,
               "data.length_buckets": (24,), "data.max_seq_length": 24}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bert_jax.data.finetuning.labels._log.warning", lambda text, *values: said.append(text % values))
        for _ in range(6):
            said.clear()
            recipe = recipes.classification()
            recipe.update_from_flattened_dict(changes)
            try:
                jobs.build(recipes.resolve(recipe))
            except InputError as error:
                said.append(str(error))
            options = re.findall(r"--config\.(\S+?)=([^\s)]+)", " ".join(said))
            new = {name: value for name, value in options if changes.get(name) != value}
            if not new:
                break
            changes |= new
    results = train(recipe, place / "run", progress=False)
    return changes, results, place / "run" / "model"


def test_the_messages_lead_to_a_model_of_two_classes(model):
    changes, results, directory = model
    followed = {name: value for name, value in changes.items() if isinstance(value, str) and name.startswith("data.")}
    del followed["data.train"]
    assert followed == {
        "data.text_column": "review", "data.label_column": "stars", "data.invalid_rows": "skip",
        "data.near_duplicate_labels": "merge", "data.missing_labels": "drop",
    }  # fmt: skip
    assert results["eval/accuracy"] > 0.9
    stored = json.loads((directory / RECORD).read_text())
    # 2,000 rows less 20 without a label, less 8 without a text, less a tenth that is held out
    assert sorted(stored["classes"]) == ["1", "5"]
    assert sum(stored["classes"].values()) == pytest.approx(0.9 * (2000 - 20 - 8), abs=1)
    assert stored["columns"] == {"text": "review", "label": "stars", "has_header": True}


def test_evaluate_and_predict_know_the_columns_and_keep_the_ids(place, model, capsys, tmp_path):
    command = ["--model", str(model[2]), "--data", str(place / "new.csv")]
    assert main(["evaluate", *command, "--json"]) == 2
    option = re.search(r"\((--\S+) skips it\)", capsys.readouterr().err)[1]
    assert main(["evaluate", *command, "--json", option, "--report", str(tmp_path / "report.html")]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["examples"] == 120 - 2 - 1 and scores["accuracy"] > 0.9
    assert main(["predict", *command, option, "--out", str(tmp_path / "answers.csv")]) == 0
    with (tmp_path / "answers.csv").open(newline="") as file:
        answers = list(csv.DictReader(file))
    with (place / "new.csv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert [row["id"] for row in answers] == [row["id"] for row in rows]
    assert list(answers[0]) == ["id", "label", "1", "5"]
    assert [bool(row["label"]) for row in answers] == [bool(row["review"]) for row in rows]
