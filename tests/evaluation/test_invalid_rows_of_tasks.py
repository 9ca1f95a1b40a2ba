"""Rows that do not fit, through every task: what is learned from, scored and answered is the rest, in its place."""

import json

import jax
import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.jobs.base import Job

NOTE = r"\(and {} more invalid {}s; --config\.data\.invalid_rows=skip skips them\)"
RECIPES = {
    "sequence_classification": recipes.classification,
    "token_classification": recipes.token_classification,
    "multiple_choice": recipes.multiple_choice,
    "sentence_embedding": recipes.sentence_embedding,
    "question_answering": recipes.question_answering,
}


def squad(*rows):
    return json.dumps({"version": "v2.0", "data": [{"paragraphs": [{"context": "the cat sat", "qas": rows}]}]})


def asked(name, text="cat", start=4, question="who?"):
    return {"id": name, "question": question, "answers": [{"text": text, "answer_start": start}]}


# Head -> name of a file, its text, how many rows fit, how many do not, where the first is that does not, and what it
# lacks; every kind of flaw that is of one task alone.
TABLES = {
    "sequence_classification": (
        "a.tsv", "sentence\tlabel\nthe cat\tno\nthe dog\n \tno\nthe bird\t\nthe fish\tyes\n", 2, 3, "line 3",
        "expected 2 columns as in the first line, found 1",
    ),
    "token_classification": (
        "a.jsonl",
        '{"tokens": ["the", "cat"], "tags": ["O", "B-PER"]}\n{"tokens": ["the", "cat"], "tags": ["O"]}\n'
        '{"tokens": ["cat"], "tags": ["B_PER"]}\n{"tokens": ["cat", "the"], "tags": ["B-PER", "O"]}\n',
        2, 2, "line 2", "expected a tag for each word, found 2 words and 1 tags",
    ),
    "multiple_choice": (
        "a.jsonl",
        '{"context": "the", "choices": ["cat", "dog"], "label": 0}\n{"context": "a", "choices": ["cat"], "label": 0}\n'
        '{"context": "a", "choices": ["cat", ""], "label": 0}\n{"context": "a", "choices": ["a", "b"], "label": 2}\n'
        '{"context": "the", "choices": ["bird", "dog"], "label": "B"}\n', 2, 3, "line 2",
        "expected at least 2 choices, found 1",
    ),
    "sentence_embedding": (
        "a.csv", "sentence1,sentence2,score\nthe cat,a cat,1\na dog,,1\na dog,the dog,high\nthe man,a child,0\n", 2, 2,
        "line 3", "expected a text in 'sentence2', found none",
    ),
    "question_answering": (
        "a.json", squad(asked("a"), asked("b", question=""), asked("c", start=5), asked("d", text="the", start=0)),
        2, 2, "question 'b'", "expected a text in 'question', found none",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """A table for each head, and an encoder with random parameters to start from."""
    root = tmp_path_factory.mktemp("invalid_rows")
    for head, (name, text, *_) in TABLES.items():
        (root / head).mkdir()
        (root / head / name).write_text(text)
    write_small(root / "encoder", max_position_embeddings=48)
    return root


def job(place, head, **changes) -> Job:
    c = RECIPES[head]()
    c.init_from, c.data.train = str(place / "encoder"), str(place / head / TABLES[head][0])
    c.data.max_seq_length, c.num_steps = 24, 1
    if head == "question_answering":
        c.data.max_query_length = 8
    if head == "sentence_embedding":
        c.data.loss, c.data.label_column = "cosine", "score"
    c.update_from_flattened_dict(changes)
    return jobs.build(recipes.resolve(c))


@pytest.fixture(scope="module")
def models(place, tiny_tokenizer):
    """An untrained model for each head, from what fits of its table."""
    random = np.random.default_rng(0)
    for head in TABLES:
        made = job(place, head, **{"data.invalid_rows": "skip"})
        shapes = jax.eval_shape(made.init_params, jax.random.key(0))
        params = jax.tree.map(lambda leaf: random.normal(scale=0.02, size=leaf.shape).astype(leaf.dtype), shapes)
        made.save(place / head / "model", params)
    return {head: str(place / head / "model") for head in TABLES}


@pytest.mark.parametrize("head", TABLES)
def test_training(place, head, caplog):
    _, _, fitting, bad, first, message = TABLES[head]
    noun = {"token_classification": "sentence", "question_answering": "question"}.get(head, "row")
    note = NOTE.format(bad - 1, noun)
    if head == "token_classification":  # what most of its tags are is known of a file that has been read without error
        note = r"\(--config\.data\.invalid_rows=skip skips it\)"
    with pytest.raises(InputError, match=rf"{first}: {message} {note}"):
        job(place, head)
    made = job(place, head, **{"data.invalid_rows": "skip"})
    assert made.train_source.num_examples == fitting
    assert caplog.records[-1].getMessage().split(": ")[1] == f"skipped {bad} of {bad + fitting} {noun}s"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("head", TABLES)
def test_evaluation(place, models, head, capsys, caplog):
    name, _, fitting, bad, first, message = TABLES[head]
    command = ["evaluate", "--json", "--model", models[head], "--data", str(place / head / name)]
    if head == "question_answering":
        fitting, bad = fitting + 1, bad - 1  # scoring looks at texts alone, wherever these stand
    for strict in ([], ["--strict"]):
        assert main([*command, *strict]) == 2
        refusal = capsys.readouterr().err
        assert f"{first}: {message}" in refusal and "--skip skips" in refusal
        assert (f"(and {bad - 1} more " in refusal) == (bad > 1)
    assert main([*command, "--skip"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == fitting
    assert f"skipped {bad} of {bad + fitting} " in caplog.records[-1].getMessage()
    assert main([*command, "--skip", "--strict"]) == 2


BAD_TO_ANSWER = {  # places of the rows that cannot be answered, which need no labels
    "sequence_classification": [1, 2],
    "multiple_choice": [1, 2],
    "sentence_embedding": [1],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("head", BAD_TO_ANSWER)
def test_answers_keep_their_places(place, models, head, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("bert_jax.evaluation.writing.CHUNK", 1)  # some without a row that fits
    name, _, fitting, bad, first, message = TABLES[head]
    command = ["predict", "--model", models[head], "--data", str(place / head / name), "--out"]
    assert main([*command, str(tmp_path / "out.jsonl")]) == 2 and not any(tmp_path.iterdir())
    assert f"{first}: {message}" in capsys.readouterr().err
    for out in ("out.jsonl", "out.tsv"):
        assert main([*command, str(tmp_path / out), "--skip"]) == 0
        assert capsys.readouterr().out == f"{tmp_path / out}: {fitting + bad} rows\n"
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    header, *table = (line.split("\t") for line in (tmp_path / "out.tsv").read_text().split("\n")[:-1])
    assert len(rows) == len(table) == fitting + bad
    key = header[0]
    for i, (row, fields) in enumerate(zip(rows, table, strict=True)):
        assert len(fields) == len(header)
        if i in BAD_TO_ANSWER[head]:
            assert row[key] is None and set(fields) == {""}
        else:
            assert "error" not in row and str(row[key]) == fields[0]
    missing = rows[1]
    assert f"{first}: {message}" in missing["error"] and set(missing) - {"scores"} == {key, "error"}


def test_tags_keep_their_places_where_the_format_has_any(place, models, tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"tokens": ["the"]}\n{"tokens": ["cat", ""]}\n{"tokens": ["a", "dog"]}\n')
    command = ["predict", "--model", models["token_classification"], "--data", str(tmp_path / "in.jsonl"), "--skip"]
    assert main([*command, "--out", str(tmp_path / "out.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["tokens"] for row in rows] == [["the"], None, ["a", "dog"]] and len(rows[2]["tags"]) == 2
    assert rows[1]["tags"] is rows[1]["scores"] is None and "line 2: expected strings" in rows[1]["error"]
    capsys.readouterr()
    assert main([*command, "--out", str(tmp_path / "out.conll")]) == 2
    assert "out.conll: expected a file named .jsonl with --skip" in capsys.readouterr().err


def test_a_question_that_cannot_be_answered_has_an_empty_answer(place, models, tmp_path, capsys):
    rows = [asked("a"), asked("b", question=""), {"question": "who?"}, asked("a", question="what?"), asked("d")]
    (tmp_path / "in.json").write_text(squad(*rows))
    command = ["predict", "--model", models["question_answering"], "--data", str(tmp_path / "in.json")]
    assert main([*command, "--out", str(tmp_path / "out.json")]) == 2
    assert "(and 2 more invalid questions; --skip skips them)" in capsys.readouterr().err
    assert main([*command, "--out", str(tmp_path / "out.json"), "--skip", "--null-threshold", "1e6"]) == 0
    answers = json.loads((tmp_path / "out.json").read_text())
    odds = json.loads((tmp_path / "out.null_odds.json").read_text())
    assert answers.keys() == odds.keys() == {"a", "b", "d"}
    assert answers["b"] == "" and answers["a"] and answers["d"] and odds["b"] == 1e9


def test_a_submission_answers_every_row(place, models, tmp_path, capsys):
    (tmp_path / "in.tsv").write_text("sentence\nthe cat\n \n")
    command = ["predict", "--submission", "--model", models["sequence_classification"], "--data"]
    assert main([*command, str(tmp_path / "in.tsv"), "--out", str(tmp_path / "out.tsv")]) == 0
    assert len((tmp_path / "out.tsv").read_text().splitlines()) == 3
    assert main([*command, str(tmp_path / "in.tsv"), "--out", str(tmp_path / "no.tsv"), "--skip"]) == 2
    assert "--skip: expected none with --submission" in capsys.readouterr().err


def test_a_label_never_seen_in_training_is_left_out_of_the_dev_data(place, tmp_path, caplog):
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text("sentence\tlabel\nthe cat\tno\nthe dog\tyes\n")
    dev.write_text("sentence\tlabel\nthe cat\tmaybe\nthe dog\tyes\n")
    changes = {"data.train": str(train), "data.dev": str(dev)}
    with pytest.raises(
        InputError, match=r"dev\.tsv: line 2: expected a label of 'no', 'yes', found 'maybe' \(--config"
    ):
        job(place, "sequence_classification", **changes)
    made = job(place, "sequence_classification", **changes, **{"data.invalid_rows": "skip"})
    assert made.eval_source.num_examples == 1
    assert f"{dev}: skipped 1 of 2 rows" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["O B-PER", "I_PER O", "B-LOC"], "found 'I_PER' of the word 'w0'"),
        (["O B-PER", "B- O", "B-LOC"], "found 'B-' of the word 'w0'"),
        (["NN VB", "B-X NN"], ""),  # parts of speech, whatever they are called
        (["B I O", "B O"], ""),
    ],
)
def test_a_tag_of_no_entity_among_those_that_are(place, tmp_path, tags, expected):
    rows = [{"tokens": [f"w{i}" for i in range(len(row.split()))], "tags": row.split()} for row in tags]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    changes = {"data.train": str(tmp_path / "a.jsonl")}
    if not expected:
        assert job(place, "token_classification", **changes).train_source.num_examples == len(tags)
        return
    with pytest.raises(
        InputError, match=f"line 2: in the sentence that begins there, expected O or a tag .*{expected}"
    ):
        job(place, "token_classification", **changes)
    made = job(place, "token_classification", **changes, **{"data.invalid_rows": "skip"})
    assert made.task.names == ("O", "B-LOC", "B-PER")  # of what is learned from alone
