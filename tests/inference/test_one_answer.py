"""One model, one answer: every verb and pipeline is asked the same thing of the same model."""

import json

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.jobs import build
from bert_jax.recipes import classification, resolve

TEXTS = ["the cat sat", "a red river of stone", "dog"]
OTHERS = ["a dog sat", "blue", "the old house is green"]


@pytest.fixture
def ask(capsys):
    def run(*arguments):
        assert main([str(argument) for argument in arguments]) in (0, None)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith(("{", "["))]

    return run


def table(path, **columns):
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def predicted(ask, model, data, *options):
    out = data.with_suffix(".out.jsonl")
    ask("predict", "--model", model, "--data", data, "--out", out, *options)
    return [json.loads(line) for line in out.read_text().splitlines()]


CLASSIFIERS = {
    "one output": {"num_labels": 1},
    "regression": {"num_labels": 1, "problem_type": "regression"},
    "classes": {"num_labels": 3},
    "named classes": {"num_labels": 2, "id2label": ("no", "yes")},
    "several classes": {"num_labels": 3, "problem_type": "multi_label_classification"},
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("pairs", [False, True])
def test_classifiers(write_small, tmp_path, ask, name, pairs):
    model = write_small(tmp_path / "model", "sequence_classification", initializer_range=0.5, **CLASSIFIERS[name])
    asked = [{"text": a, "text_pair": b} for a, b in zip(TEXTS, OTHERS, strict=True)] if pairs else TEXTS
    answers = [{a["label"]: a["score"] for a in row} for row in pipeline("classify", model)(asked, top_k=None)]
    names = list(from_pretrained(model).config.label_names)
    assert all(set(answer) == set(names) for answer in answers)
    columns = {"sentence": TEXTS} | ({"other": OTHERS} if pairs else {})
    options = ("--pair-column", "other") if pairs else ()
    rows = predicted(ask, model, table(tmp_path / "data.jsonl", **columns), *options)
    for row, answer in zip(rows, answers, strict=True):
        found = {names[0]: row["score"]} if "score" in row else row["scores"]
        assert found == pytest.approx(answer, rel=1e-5)
        if "label" in row:
            assert row["label"] == max(answer, key=answer.get)
        if "labels" in row:
            assert row["labels"] == [label for label in names if answer[label] > 0.5]
    if not pairs:
        printed = ask("classify", model, *TEXTS, "--json")
        for row, answer in zip(printed, answers, strict=True):
            assert {a["label"]: a["score"] for a in row["scores"]} == pytest.approx(answer, rel=1e-5)
    if pairs and len(names) < 3:
        ranked = pipeline("rerank", model)(TEXTS[0], OTHERS)
        alone = [{"text": TEXTS[0], "text_pair": other} for other in OTHERS]
        scores = [
            {a["label"]: a["score"] for a in row}[names[-1]] for row in pipeline("classify", model)(alone, top_k=None)
        ]
        assert [a["corpus_id"] for a in ranked] == np.argsort(scores)[::-1].tolist()
        assert [a["score"] for a in ranked] == pytest.approx(sorted(scores)[::-1], rel=1e-5)
    if "labels" not in rows[0]:  # what `predict` says is right, `evaluate` finds right, by name and by number
        labels = [row.get("label", row.get("score")) for row in rows]
        data = table(tmp_path / "labelled.jsonl", **columns, label=labels)
        (scores,) = ask("evaluate", "--model", model, "--data", data, "--json", *options)
        assert scores["mse"] < 1e-9 if "mse" in scores else scores["accuracy"] == 1
        if "accuracy" in scores:
            numbers = [names.index(label) for label in labels]
            data = table(tmp_path / "numbers.jsonl", **columns, label=numbers)
            assert ask("evaluate", "--model", model, "--data", data, "--json", *options) == [scores]


def test_taggers(write_small, tmp_path, ask):
    model = write_small(tmp_path / "model", "token_classification", num_labels=3, initializer_range=0.5)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps({"tokens": text.split()}) + "\n" for text in TEXTS))
    rows = predicted(ask, model, tmp_path / "data.jsonl")
    answers = pipeline("tag", model)(TEXTS, aggregation_strategy="none", ignore_labels=())
    printed = [row["entities"] for row in ask("tag", model, *TEXTS, "--strategy", "none", "--json")]
    for row, answer, shown in zip(rows, answers, printed, strict=True):
        assert row["tags"] == [piece["entity"] for piece in answer]  # each word is one piece
        assert row["scores"] == pytest.approx([piece["score"] for piece in answer], rel=1e-5)
        assert [piece["entity"] for piece in shown] == [tag for tag in row["tags"] if tag != "O"]


def test_sentence_embeddings(write_small, tmp_path, ask):
    model = write_small(tmp_path / "model", "sentence_embedding", initializer_range=0.5)
    rows = predicted(ask, model, table(tmp_path / "data.jsonl", sentence1=TEXTS, sentence2=OTHERS))
    alike = pipeline("similarity", model)
    vectors = [pipeline("embed", model)(texts) for texts in (TEXTS, OTHERS)]
    printed = [ask("embed", model, *texts, "--json") for texts in (TEXTS, OTHERS)]
    found = ask("search", model, TEXTS[0], "--corpus", table_of_lines(tmp_path, OTHERS), "--json")[0]["answers"]
    by_number = {answer["corpus_id"]: answer["score"] for answer in found}
    for i, row in enumerate(rows):
        (shown,) = ask("similarity", model, TEXTS[i], OTHERS[i], "--json")
        expected = float(vectors[0][i] @ vectors[1][i])
        for score in (row["score"], alike(TEXTS[i], OTHERS[i]), shown["score"]):
            assert score == pytest.approx(expected, abs=2e-6)
        assert by_number[i] == pytest.approx(float(vectors[0][0] @ vectors[1][i]), abs=2e-6)
        for side in range(2):
            np.testing.assert_allclose(printed[side][i]["embedding"], vectors[side][i], atol=1e-6)


def table_of_lines(tmp_path, texts):
    (tmp_path / "corpus.txt").write_text("".join(f"{text}\n" for text in texts))
    return tmp_path / "corpus.txt"


def test_questions(write_small, tmp_path, ask):
    model = write_small(tmp_path / "model", "question_answering", initializer_range=0.5)
    context, questions = "the old house is green and the river is blue", ["the cat", "a dog"]
    paragraphs = [{"context": context, "qas": [{"id": str(i), "question": q} for i, q in enumerate(questions)]}]
    (tmp_path / "data.json").write_text(
        json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]})
    )
    out = tmp_path / "out.json"
    ask("predict", "--model", model, "--data", tmp_path / "data.json", "--out", out, "--max-answer-length", 4)
    answers = pipeline("answer", model)(questions, context, max_answer_len=4)
    printed = ask("answer", model, *questions, "--text", context, "--max-answer-length", 4, "--json")
    written = json.loads(out.read_text())
    for i, answer in enumerate(answers):
        assert written[str(i)] == answer["answer"] == printed[i]["answers"][0]["answer"]


def test_training_refuses_the_vocabulary_that_opening_refuses(write_small, tmp_path, tiny_tokenizer):
    """By the same words: one function decides."""
    rows = tiny_tokenizer.vocab_size + 1024
    c = classification()
    c.data.train = str(table(tmp_path / "train.jsonl", sentence=TEXTS[:2], label=["a", "b"]))
    tiny_tokenizer.save(tmp_path / "tokenizer")
    c.tokenizer, c.model.size, c.model.vocab_size = str(tmp_path / "tokenizer"), "tiny", rows
    with pytest.raises(InputError, match=f"the vocabulary does not fit the embedding: expected .* for the {rows} rows"):
        build(resolve(c))
