"""A share of the training rows to evaluate on, through every task."""

import collections
import json
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.errors import InputError
from bert_jax.tasks.classification.task import _class_weights
from bert_jax.training.loop import train

WORDS = ["cat", "dog", "bird", "fish", "tree", "river", "stone", "house", "man", "child"]


def squad():
    """Ten articles with 1 to 10 questions each, whose contexts say which they are of."""
    articles = []
    for i, word in enumerate(WORDS):
        answers = [{"text": word, "answer_start": 4}]
        rows = [{"id": f"{word}{j}", "question": "who?", "answers": answers} for j in range(i + 1)]
        articles.append({"paragraphs": [{"context": f"the {word} sat", "qas": rows}]})
    return json.dumps({"version": "1.1", "data": articles})


def lines(count, **fields):
    return "".join(json.dumps({name: field(i) for name, field in fields.items()}) + "\n" for i in range(count))


def word(i):
    return WORDS[i % 10]


def text(i):
    return f"the {word(i)} sat on a {word(i // 10)}"


# Task -> the name of its file, its text, and how many of its rows a share of a fifth holds out.
DATA = {
    "classification": ("a.jsonl", lines(60, sentence=text, label=lambda i: ["no", "yes", "no"][i % 3]), 12),
    "token_classification": ("a.jsonl", lines(
        40, tokens=lambda i: text(i).split(), tags=lambda i: ["O", "B-X", "O", "O", "O", "B-Y"]), 8),
    "multiple_choice": ("a.jsonl", lines(
        30, context=text, choices=lambda i: [word(i), word(i + 1)], label=lambda i: i % 2), 6),
    "sentence_embedding": ("a.jsonl", lines(
        30, sentence1=text, sentence2=lambda i: text(i + 1), negative=lambda i: text(i + 3), score=lambda i: i % 5), 6),
    "question_answering": ("a.json", squad(), None),
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("validation_split")
    for task, (name, content, _) in DATA.items():
        (root / task).mkdir()
        (root / task / name).write_text(content)
    write_small(root / "encoder", max_position_embeddings=48)
    return root


def recipe(place, task, **changes):
    c = recipes.RECIPES[task]()
    c.init_from, c.data.train = str(place / "encoder"), str(place / task / DATA[task][0])
    c.data.max_seq_length, c.num_epochs, c.global_batch_size = 24, 1.0, 8
    if task == "question_answering":
        c.data.max_query_length = 8
    c.update_from_flattened_dict(changes)
    return c


def job(place, task, **changes):
    return jobs.build(recipes.resolve(recipe(place, task, **changes)))


def rows(features):
    """Each example as what its batch holds, without what depends on the others."""
    found = []
    for i in range(len(features)):
        batch = features.pad(np.array([i]), 24, 0)
        found.append(tuple(batch[name].tobytes() for name in sorted(batch) if name not in ("first_word", "windows")))
    return collections.Counter(found)


@pytest.mark.parametrize("task", DATA)
def test_both_sides_are_all_rows_and_share_none(place, task):
    whole, made = job(place, task), job(place, task, **{"data.validation_split": 0.2})
    assert whole.eval_source is None
    everything, learned, held = (
        source.features if hasattr(source, "features") else source._features
        for source in (whole.train_source, made.train_source, made.eval_source)
    )
    assert len(learned) + len(held) == len(everything)
    assert DATA[task][2] in (None, len(held))
    if task == "question_answering":
        inputs = [{context.text for context in side.contexts} for side in (learned, held)]
        assert not inputs[0] & inputs[1] and len(inputs[0] | inputs[1]) == 10  # whole articles
        assert abs(len(held) - 11) <= 5
        assert len(made.task.dev.questions) == len(held)
    else:
        assert rows(learned) + rows(held) == rows(everything)
    assert made.num_steps == -(-len(learned) // 8)
    changed = {"data.validation_split": 0.2, "seed": 7, "data.length_buckets": (24,), "global_batch_size": 4}
    again = job(place, task, **changed).eval_source._features  # other keys have no say in it
    other = job(place, task, **{"data.validation_split": 0.2, "data.split_seed": 1}).eval_source._features
    assert rows(again) == rows(held) != rows(other)


@pytest.mark.parametrize("task", DATA)
def test_a_share_of_none_changes_nothing(place, task):
    changes = {"data.validation_split": 0.0, "data.split_seed": 5}
    plain, none = job(place, task), job(place, task, **changes)
    assert none.eval_source is None and none.num_steps == plain.num_steps
    for step in range(3):
        a, b = plain.train_source.batch(step), none.train_source.batch(step)
        assert a.keys() == b.keys() and all((a[name] == b[name]).all() for name in a)


def test_classes_keep_their_shares_and_their_names(place):
    for seed in range(4):
        made = job(place, "classification", **{"data.validation_split": 0.1, "data.split_seed": seed})
        counts = [np.bincount(f.labels).tolist() for f in (made.train_source.features, made.eval_source._features)]
        assert counts == [[36, 18], [4, 2]]
    made = job(place, "classification", **{"data.validation_split": 0.1, "data.class_weights": "balanced"})
    assert made.task.class_weights == pytest.approx((54 / 72, 54 / 36))  # of the rows that are learned from


@pytest.mark.parametrize("absent", [1, 2])
def test_a_class_without_a_row_has_a_finite_weight(absent):
    labels = np.array([0] * 6 + [3 - absent] * 2)
    weights = _class_weights(SimpleNamespace(class_weights="balanced"), labels, 3)
    assert weights[0] == pytest.approx(8 / 12) and weights[3 - absent] == 2 and weights[absent] == 4
    assert np.mean(np.array(weights)[labels]) == pytest.approx(1)


def test_the_columns_that_are_scored_are_read_too(place):
    changes = {"data.validation_split": 0.2, "data.label_column": "score", "data.negative_column": "negative"}
    made = job(place, "sentence_embedding", **changes)
    learned, held = made.train_source.features, made.eval_source._features
    assert (learned.size, held.size) == (3, 2)
    assert not learned.labels.any() and set(held.labels) <= {0, 1, 2, 3, 4} and held.labels.any()


def test_a_run_is_scored_on_what_it_holds_out(place, tmp_path):
    results = train(recipe(place, "classification", **{"data.validation_split": 0.2}), tmp_path / "run", progress=False)
    assert results["step"] == 6 and 0 <= results["eval/accuracy"] <= 1


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("classification", {"data.dev": "a.tsv"}, r"config\.data: expected dev or validation_split, found both"),
        (
            "classification",
            {"data.validation_split": 1.0},
            r"config\.data\.validation_split: expected at least 0 and below 1, found 1",
        ),
        (
            "classification",
            {"data.validation_split": -0.1},
            r"config\.data\.validation_split: expected at least 0 and below 1",
        ),
        ("classification", {"data.validation_split": 0.001}, r"leaves rows on both sides, found 0\.001 of 60 rows"),
        (
            "question_answering",
            {"data.validation_split": 0.001},
            r"found 0\.001 of 55 rows in 10 groups that stay together$",
        ),
    ],
)
def test_shares_that_do_not_fit(place, task, changes, message):
    with pytest.raises(InputError, match=message):
        job(place, task, **({"data.validation_split": 0.2} | changes))
