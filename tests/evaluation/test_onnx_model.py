"""Scores and predictions of an exported ONNX file are those of its model."""

import json

import pytest

from bert_jax.cli import main
from bert_jax.evaluation import evaluate, predict
from bert_jax.export.exporting import export_model

pytest.importorskip("onnxruntime", reason="needs onnx and onnxruntime: pip install 'bert-jax[onnx]'")
LABELS = {"id2label": ("bad", "good")}
TABLE = "sentence\tsentence2\tlabel\nthe cat sat\ta dog\tgood\ntwo big birds on the red tree\the was young\tbad\n"
FILES = {
    "sequence_classification": ("rows.tsv", TABLE),
    "sentence_embedding": ("rows.tsv", "sentence1\tsentence2\tscore\nthe cat\ta dog\t4\na bird\tthe tree\t1\n"),
    "token_classification": ("rows.txt", "the B-A\ncat O\n\ntwo O\nbig B-A\nbirds O\n"),
    "multiple_choice": ("rows.jsonl", '{"context": "the cat", "choices": ["sat", "a dog"], "label": 1}\n'),
    "question_answering": ("rows.json", json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": [
        {"context": "the cat sat on the tree", "qas": [
            {"id": "1", "question": "he sat ?", "answers": [{"text": "the tree", "answer_start": 15}]}]}]}]})),
}  # fmt: skip


@pytest.fixture(scope="module")
def exported(tmp_path_factory, write_small):
    """Return a function: head -> a model, its ONNX file, and a file of rows."""

    def make(head):
        folder = tmp_path_factory.mktemp("scored")
        name, rows = FILES[head]
        names = {"id2label": ("O", "B-A")} if head == "token_classification" else LABELS
        model = write_small(folder / "model", head, **names if head.endswith("classification") else {})
        export_model(model, folder / "out", "onnx", check=False)
        (folder / name).write_text(rows)
        return model, folder / "out" / "onnx" / "model.onnx", folder / name

    return make


@pytest.mark.sampled(6)
@pytest.mark.parametrize("head", FILES)
def test_scores(head, exported):
    model, file, rows = exported(head)
    expected = evaluate(model, str(rows))
    assert len(expected) >= 2
    assert evaluate(model, str(rows), onnx=file) == pytest.approx(expected, abs=1e-5)


def test_predictions_by_the_command_and_what_does_not_fit(tmp_path, exported, write_small, capsys):
    model, file, rows = exported("sequence_classification")
    predict(model, str(rows), tmp_path / "ours.jsonl")
    words = ["predict", "--model", str(model), "--data", str(rows), "--out", str(tmp_path / "theirs.jsonl"), "--onnx"]
    assert main([*words, str(file)]) == 0
    ours, theirs = (
        [json.loads(line)["scores"] for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in ("ours", "theirs")
    )
    assert len(ours) == 2
    for expected, found in zip(ours, theirs, strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    three = write_small(tmp_path / "three", "sequence_classification", num_labels=3)
    for wrong, message in (
        (tmp_path / "none.onnx", "none.onnx"),
        (rows, "expected an ONNX model"),
        (export_model(three, tmp_path / "out", "onnx", check=False) and tmp_path / "out/onnx/model.onnx",
         "expected an output logits (2, 2) for tokens (2, 4)"),
    ):  # fmt: skip
        capsys.readouterr()
        assert main([*words, str(wrong)]) != 0
        printed = capsys.readouterr().err
        assert message in printed and printed.count("\n") == 1


@pytest.mark.slow
def test_eight_devices(tmp_path, exported, on_eight_devices):
    model, file, rows = exported("sequence_classification")
    (tmp_path / "script.py").write_text(
        "import json\nfrom bert_jax.evaluation import evaluate\n"
        f"print(json.dumps(evaluate({str(model)!r}, {str(rows)!r}, onnx={str(file)!r})))\n"
    )
    assert on_eight_devices(tmp_path / "script.py") == pytest.approx(evaluate(model, str(rows)), abs=1e-5)
