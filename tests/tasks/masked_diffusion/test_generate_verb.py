"""`generate`, and `evaluate` and `predict` with models of masked diffusion, as a user runs them."""

import json

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.data.finetuning.columns import Columns
from bert_jax.errors import InputError
from bert_jax.evaluation import evaluate
from bert_jax.inference import pipeline
from bert_jax.jobs.training_metadata import TrainingMetadata, write_training_metadata
from bert_jax.tasks.masked_diffusion.evaluation import BOUNDS
from bert_jax.tasks.masked_diffusion.settings import Generated

PROMPTS = ["the cat sat", "a dog"]


@pytest.fixture(scope="module")
def model(tmp_path_factory, write_small):
    path = write_small(tmp_path_factory.mktemp("verb") / "model", "masked_lm", seed=1, initializer_range=0.5,
                       max_position_embeddings=48)  # fmt: skip
    write_training_metadata(
        path,
        TrainingMetadata(Columns("prompt", label="answer"), records={"generated": Generated(8, "random", (0, 0, 1))}),
    )
    return path


def run(capsys, *words):
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


def test_answers_are_those_of_the_pipeline(model, capsys):
    write = pipeline("generate", model)
    status, out, _ = run(capsys, "generate", model, *PROMPTS, "--json", "--steps", "3")
    assert status == 0
    found = [json.loads(line) for line in out.splitlines()]
    expected = write(PROMPTS, steps=3)
    assert [each["prompt"] for each in found] == PROMPTS
    assert [each["answers"][0]["generated_text"] for each in found] == [each[0]["generated_text"] for each in expected]
    sampled = (
        "--samples",
        "3",
        "--temperature",
        "1",
        "--seed",
        "2",
        "--length",
        "5",
        "--order",
        "margin",
        "--top-p",
        "0.9",
    )
    status, out, _ = run(capsys, "generate", model, "", *sampled, "--live", "--forbid", "cat")
    options = {"num_return_sequences": 3, "temperature": 1.0, "seed": 2, "length": 5, "order": "margin", "top_p": 0.9}
    assert status == 0 and "(no prompt)" in out
    for answer in write("", **options, forbidden=["cat"]):
        assert answer["generated_text"][:20] in out


def test_masks_are_filled_in(model, capsys, tmp_path):
    (tmp_path / "texts.txt").write_text("the [MASK] sat\na [MASK] [MASK] dog\n")
    status, out, _ = run(capsys, "generate", model, "--fill", "--file", tmp_path / "texts.txt", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and [len(each["tokens"]) for each in found] == [1, 2]
    assert found[0]["sequence"].startswith("the ") and "[MASK]" not in out.replace("the [MASK] sat", "")[:40]
    status, out, _ = run(capsys, "generate", model, "the [MASK] sat", "--fill", "--gap-lengths", "1,3", "--json")
    assert len(json.loads(out)["tokens"]) in (1, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["the", "--gap-lengths", "1"], "--gap-lengths: expected --fill too, found none"),
        (["the [MASK]", "--fill", "--samples", "2"], "--samples: expected no --fill, found both"),
        (["the [MASK]", "--fill", "--gap-lengths", "a"], "expected numbers such as 1,2,3, found 'a'"),
        (["the cat", "--fill"], "text 1 of the command line: expected a [MASK] to fill, found none"),
        (["--shards", "a.txt", "--out", "answers", "--live"], "--live: expected no --shards, found both"),
        (["the", "--batch-size", "0"], "--batch-size: expected a positive integer, found 0"),
        (["the", "--temperature", "-1"], "temperature: expected at least 0, found -1.0"),
        (["the", "--length", "short"], "length: expected auto, free, sampled or a number of tokens, found 'short'"),
    ],
)
def test_what_does_not_fit_is_one_line(model, capsys, words, message):
    status, _, err = run(capsys, "generate", model, *words)
    assert status == 2 and message in err and err.count("\n") == 1


def test_a_model_without_the_head_is_refused(capsys, tmp_path, write_small):
    status, _, err = run(capsys, "generate", write_small(tmp_path / "encoder"), "the")
    assert status == 2 and "text-generation needs a trained masked_lm head, found none" in err


@pytest.mark.slow
def test_evaluate_and_predict(model, capsys, tmp_path):
    write = pipeline("generate", model)
    answers = [found[0]["generated_text"] for found in write(PROMPTS)]
    rows = [{"id": 5, "prompt": PROMPTS[0], "answer": answers[0]}, {"id": 6, "prompt": PROMPTS[1], "answer": "tree"}]
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = evaluate(model, str(table))
    assert scores["exact_match"] == 0.5 and scores["examples"] == 2
    assert scores["diffusion_perplexity"] == pytest.approx(np.exp(scores["diffusion_loss"]))
    assert evaluate(model, str(table), metric_names=("exact_match",)) == {"exact_match": 0.5, "examples": 2}
    status, _, err = run(capsys, "evaluate", "--model", model, "--data", table, "--metrics", "blue")
    assert status == 2 and "metrics: 'blue' is not a metric of texts; did you mean 'bleu'?" in err
    shouted = tmp_path / "shouted.jsonl"  # the tokenizer is uncased
    shouted.write_text("".join(json.dumps(row | {"answer": row["answer"].upper()}) + "\n" for row in rows))
    assert evaluate(model, str(shouted), metric_names=("exact_match",))["exact_match"] == 0.5
    status, _, _ = run(capsys, "predict", "--model", model, "--data", table, "--out", tmp_path / "out.jsonl")
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert status == 0 and [each["generated_text"] for each in written] == answers
    assert [each["prompt"] for each in written] == PROMPTS
    chat = [{"role": "user", "content": PROMPTS[0]}, {"role": "assistant", "content": "x"}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"chat": chat}) + "\n")
    write_training_metadata(
        model, TrainingMetadata(Columns(texts="chat"), records={"generated": Generated(8, "random", (0, 0, 1))})
    )
    status, _, err = run(
        capsys, "predict", "--model", model, "--data", tmp_path / "chats.jsonl", "--out", tmp_path / "c.tsv"
    )
    assert status == 0, err
    assert (tmp_path / "c.tsv").read_text().splitlines()[1].startswith(answers[0])
    assert evaluate(model, str(tmp_path / "chats.jsonl"))["examples"] == 1
    write_training_metadata(
        model, TrainingMetadata(Columns(label="answer"), records={"generated": Generated(8, "random", (0, 0, 1))})
    )
    assert set(evaluate(model, str(table))) == {*BOUNDS, "examples"}
    with pytest.raises(InputError, match="for texts without prompts, found 'bleu'"):
        evaluate(model, str(table), metric_names=("bleu",))


def test_each_call_of_the_pipeline_has_its_own_random_numbers(model, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_jax.tasks.masked_diffusion.verb._PROMPTS_AT_ONCE", 2)
    (tmp_path / "prompts.txt").write_text("the cat\n" * 6)
    sampled = ["--temperature", "1", "--length", "6", "--json"]
    status, out, _ = run(capsys, "generate", model, "--file", tmp_path / "prompts.txt", *sampled)
    assert status == 0 and len({json.loads(line)["answers"][0]["generated_text"] for line in out.splitlines()}) == 6


@pytest.mark.slow
def test_resumed_shards_hold_the_answers_of_one_run(model, capsys, tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text("the cat\na dog on a tree\n\n" * (number + 1))
    words = ["generate", model, "--shards", tmp_path / "in", "--length", "4", "--temperature", "1"]
    assert run(capsys, *words, "--out", tmp_path / "whole")[0] == 0
    assert run(capsys, *words, "--out", tmp_path / "again")[0] == 0
    (tmp_path / "again" / "1.jsonl").unlink()
    assert run(capsys, *words, "--out", tmp_path / "again")[0] == 0
    for number in range(3):
        name = f"{number}.jsonl"
        written = (tmp_path / "whole" / name).read_text()
        assert (tmp_path / "again" / name).read_text() == written
        assert len(written.splitlines()) == 3 * (number + 1)
