"""The command line: what each verb prints, and what bad input is answered."""

import contextlib
import gzip
import io
import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from random_models import write_model

from bert_jax import cli
from bert_jax.cli import build_parser, main
from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.tokenization import load_tokenizer, word_piece

WORDS = ["the", "a", "cat", "dog", "film", "is", "was", "good", "bad", "on", "mat"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *[f"##{c}" for c in "abcdefg"]]
TINY = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
)
VERBS = sorted(build_parser()[1])


def save_model(directory, head, **changes):
    return str(write_model(directory, TINY.replace(**changes), head, word_piece(PIECES, lowercase=True)))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A tiny random model directory for each of some heads, by head."""
    root = tmp_path_factory.mktemp("models")
    labels = {"num_labels": 2, "id2label": ("neg", "pos")}
    return {
        "pretraining": save_model(root / "pretraining", "pretraining"),
        "sequence_classification": save_model(root / "classifier", "sequence_classification", **labels),
        "sentence_embedding": save_model(root / "embedder", "sentence_embedding"),
    }


def run(capsys, *arguments):
    """Exit status, stdout and stderr of a command line that is run in this process."""
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def in_process(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "bert_jax", *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )


def refused(capsys, *arguments):
    """The one line that a command line is refused with."""
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("bert-jax: ") and err.count("\n") == 1 and err.endswith("\n")
    return err


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from bert_jax.cli import main\n"
        "try: main(['prepare', '--help'])\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "heavy = {'jax', 'numpy', 'flax', 'rich', 'tokenizers', 'ml_collections', 'etils'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "usage: bert-jax prepare" in result.stdout


def test_training_starts_without_libraries_of_evaluation():
    code = (
        "import sys, bert_jax.recipes, bert_jax.tasks.pretraining.task, bert_jax.training.loop\n"
        "heavy = {'matplotlib', 'pandas', 'scipy', 'sklearn', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_shows_an_example_that_parses(verb, capsys):
    parser, _ = build_parser()
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    examples = text.partition("\nexamples:\n")[2].replace("\\\n", " ").splitlines()
    assert examples
    for example in examples:
        words = shlex.split(example.split("|")[-1])
        assert words[:2] == ["bert-jax", verb]
        parsed, unknown = parser.parse_known_args(words[1:])
        assert all(word.startswith("--config.") for word in unknown), unknown
        assert callable(parsed.run)


def test_version(capsys):
    import bert_jax

    with pytest.raises(SystemExit):
        main(["--version"])
    assert bert_jax.__version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrian"], "no verb 'pretrian'; did you mean 'pretrain'?"),
        (["train"], "no verb 'train'; did you mean 'finetune' or 'pretrain'?"),
        (["qa", "m"], "no verb 'qa'; did you mean 'answer'?"),
        (["evaluate", "--model", "m", "--data", "d", "--max-length", "9"], "did you mean '--max-seq-length'?"),
        (["convert", "a", "b", "--head", "classification"], "did you mean 'sequence_classification'?"),
        (
            ["finetune", "--config", "classification", "--workdir", "x", "--lr=3e-5"],
            "--config.KEY=VALUE, here --config.optimizer.learning_rate=3e-5",
        ),
        (["embed", "m", "--jso"], "'--jso' was not expected; did you mean '--json'?"),
        (["inspect", "base", "large"], "inspect: 'large' was not expected"),
        (["evaluate", "--model", "m"], "required: --data"),
        (["prepare", "x", "--tokenizer", "t", "--out", "o", "--max-seq-length", "1k"], "invalid length value: '1k'"),
        (["prepare", "x", "--tokenizer", "nowhere", "--out", "o"], "nowhere: no such file or directory"),
        (
            ["prepare", "x", "--tokenizer", "t", "--out", "o", "--num-workers", "0"],
            "--num-workers: expected a positive",
        ),
        (["inspect", "nowhere"], "nowhere: no such model directory"),
        (
            ["plan", "--config", "demo", "--topology", "v5e:1x1", "--length", "64"],
            "--length: expected only with --forward, as a recipe has its own",
        ),
        (["classify", "m", "text", "--batch-size", "0"], "--batch-size: expected a positive integer, found 0"),
        (["predict", "--model", "m", "--data", "d", "--out", "o.tsv", "--batch-size", "-1"], "--batch-size"),
        (["pretrain", "--config", "nowhere.py", "--workdir", "w"], "nowhere.py: no such recipe file"),
        (["pretrain", "--config", "c.py", "--workdir", "w", "stray"], "'stray' was not expected"),
        (["finetune", "t.csv", "--out", "w", "--modle", "m"], "'--modle' was not expected; did you mean '--model'?"),
        (["pretrain", "--config", "c.py", "--workdir", "w", "--confg.seed=1"], "'--confg.seed=1' was not expected"),
    ],
)
def test_what_does_not_fit_is_answered_in_one_line(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, *arguments)
    assert not any(tmp_path.iterdir())


def test_debug_shows_the_traceback_wherever_it_stands(capsys):
    for arguments in (["--debug", "inspect", "nowhere"], ["inspect", "nowhere", "--debug"]):
        status, _, err = run(capsys, *arguments)
        assert status == 2
        assert err.startswith("Traceback") and err.splitlines()[-1].startswith(
            "bert-jax: nowhere: no such model directory"
        )


def test_inspect_counts_bert_base_by_part(capsys):
    status, out, _ = run(capsys, "inspect", "base", "--json")
    parts = json.loads(out)["parameters"]
    assert status == 0
    assert list(parts.items())[:3] == [("embeddings", 23_837_184), ("encoder", 85_054_464), ("pooler", 590_592)]
    _, table, _ = run(capsys, "inspect", "base")
    assert "23,837,184" in table and f"{sum(parts.values()):,}" in table


def test_inspect_reads_a_directory(models, capsys):
    _, out, _ = run(capsys, "inspect", models["sequence_classification"], "--json")
    found = json.loads(out)
    assert found["head"] == "sequence_classification"
    assert found["parameters"]["classifier"] == 2 * 16 + 2
    assert found["config"]["id2label"] == ["neg", "pos"]
    assert found["unused"] == []


def test_fill_mask_shows_probabilities_that_fall(models, capsys):
    status, out, _ = run(capsys, "fill-mask", models["pretraining"], "the [MASK] is good", "--json", "--top-k", "3")
    assert status == 0
    (answers,) = json.loads(out)["masks"]
    scores = [answer["score"] for answer in answers]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    _, table, _ = run(capsys, "fill-mask", models["pretraining"], "the [MASK] is [MASK]")
    assert "the [MASK] is [MASK]  (blank 2)" in table
    assert answers[0]["token_str"] in out


def test_classify_names_the_labels(models, capsys):
    _, out, _ = run(capsys, "classify", models["sequence_classification"], "--json", "a good film", "a bad film")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["text"] for row in rows] == ["a good film", "a bad film"]
    for row in rows:
        assert {score["label"] for score in row["scores"]} == {"neg", "pos"}
        assert sum(score["score"] for score in row["scores"]) == pytest.approx(1)


def test_texts_come_from_arguments_a_file_or_stdin(models, capsys, tmp_path, monkeypatch):
    texts = ["a good film", "", "the dog is on the mat"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    model = models["sentence_embedding"]
    _, from_arguments, _ = run(capsys, "embed", model, "--json", *texts)
    _, from_file, _ = run(capsys, "embed", model, "--json", "--file", tmp_path / "texts.txt")
    from_stdin = in_process("embed", model, "--json", input="\n".join(texts) + "\n").stdout
    assert from_arguments == from_file
    assert [json.loads(line)["text"] for line in from_stdin.splitlines()] == texts
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper((tmp_path / "texts.txt").open("rb")))
    assert run(capsys, "embed", model, "--json", "--file", "-")[1] == from_file


def test_embed_writes_an_array(models, capsys, tmp_path):
    out = tmp_path / "vectors.npy"
    run(capsys, "embed", models["sentence_embedding"], "a cat", "a dog", "--out", out)
    vectors = np.load(out)
    assert vectors.shape == (2, 16) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    _, table, _ = run(capsys, "embed", models["sentence_embedding"], "a cat", "a dog")
    assert f"{vectors[0] @ vectors[1]:.3f}" in table


def test_a_long_file_of_vectors_is_written_in_parts(models, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_jax.cli.over_texts.TEXTS_AT_ONCE", 3)
    texts, model = ["a cat", "a dog", "the mat", "a film", "", "good", "bad"], models["sentence_embedding"]
    with gzip.open(tmp_path / "texts.txt.gz", "wt") as file:
        file.write("\n".join(texts))
    run(capsys, "embed", model, "--file", tmp_path / "texts.txt.gz", "--out", tmp_path / "parts.npy")
    run(capsys, "embed", model, *texts, "--out", tmp_path / "whole.npy")
    np.testing.assert_allclose(np.load(tmp_path / "parts.npy"), np.load(tmp_path / "whole.npy"), atol=1e-6)


BROKEN = {3: b'{"txt": "no text"}', 4: b'{"text": "cut', 6: b'{"text": "caf\xe9"}', 7: b'{"text": 3}', 8: b'["a"]'}
MESSAGES = {3: "an object with a text in 'text', found the fields txt", 4: "expected a JSON object", 6: "byte 0xe9",
            7: "a text in 'text', found 3;", 8: "found list"}  # fmt: skip


@pytest.fixture
def broken(tmp_path):
    lines = [BROKEN.get(number, b'{"text": "a good film"}') for number in range(1, 11)]
    (tmp_path / "texts.jsonl").write_bytes(b"\n".join(lines) + b"\n\n")
    return tmp_path / "texts.jsonl"


def test_broken_lines_are_named_and_the_rest_goes_on(models, capsys, broken):
    model = models["sequence_classification"]
    _, out, err = run(capsys, "classify", model, "--json", "--skip", "--file", broken)
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["a good film"] * 5
    *named, total = err.splitlines()
    for (number, message), line in zip(MESSAGES.items(), named, strict=True):
        assert f"texts.jsonl: line {number}: " in line and message in line and line.endswith("skipped")
    assert total == "bert-jax: 5 texts skipped"
    piped = in_process("classify", model, "--json", "--skip", "--jsonl", input=broken.read_bytes().decode("latin-1"))
    assert piped.returncode == 0 and len(piped.stdout.splitlines()) == 6  # 0xe9 came as UTF-8
    assert "stdin: line 7" in piped.stderr


def test_the_first_broken_line_is_the_end_unless_told_otherwise(models, capsys, broken):
    assert "line 3: expected an object" in refused(
        capsys, "classify", models["sequence_classification"], "--file", broken
    )


def test_texts_that_the_model_refuses_are_named_by_their_line(models, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_jax.cli.over_texts.TEXTS_AT_ONCE", 2)
    model, path = models["pretraining"], tmp_path / "texts.txt"
    lines = ["the [MASK]", "a [MASK]", "a cat", "the [MASK] sat", "a [MASK] " * 600, "[MASK]"]
    path.write_text("".join(f"{line}\n" for line in lines))
    status, _, err = run(capsys, "fill-mask", model, "--file", path)
    assert status == 2 and "texts.txt: line 3: expected a [MASK] to fill" in err and err.count("\n") == 1
    _, out, err = run(capsys, "fill-mask", model, "--file", path, "--skip", "--json")
    assert [json.loads(line)["text"] for line in out.splitlines()] == [lines[i] for i in (0, 1, 3, 5)]
    first, second, total = err.splitlines()
    assert "line 3: expected a [MASK]" in first and "line 5: expected at most the model's" in second
    assert total == "bert-jax: 2 texts skipped"
    assert "text 2 of the command line: expected a [MASK]" in refused(capsys, "fill-mask", model, "[MASK]", "a")


def test_options_that_are_no_text_are_named_and_no_text_is_skipped_for_them(models, capsys):
    bad, model = os.fsdecode(b"caf\xe9"), models["sentence_embedding"]
    for option in (["--prompt", bad], ["--skip", "--prompt", bad]):
        assert "prompt: expected Unicode text" in refused(capsys, "embed", model, "a cat", *option)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "expected texts, found none"), (b"good\xff", "byte 0xff at offset 4"), (None, "no such file")],
)
def test_a_file_of_texts_that_cannot_be_read(models, capsys, tmp_path, content, message):
    path = tmp_path / "texts.txt"
    if content is not None:
        path.write_bytes(content)
    assert message in refused(capsys, "embed", models["sentence_embedding"], "--file", path)


def test_a_model_is_not_asked_what_it_was_not_trained_for(models, capsys):
    assert "needs a trained masked_lm head" in refused(capsys, "fill-mask", models["sentence_embedding"], "a [MASK]")
    assert "expected a [MASK]" in refused(capsys, "fill-mask", models["pretraining"], "a cat")


def test_convert_keeps_every_value_and_the_tokenizer(models, capsys, tmp_path):
    source, destination = models["pretraining"], tmp_path / "copy"
    status, out, _ = run(capsys, "convert", source, destination)
    assert status == 0 and "pretraining" in out
    before, after = load_pretrained(source), load_pretrained(destination)
    assert before.config == after.config
    jax.tree.map(np.testing.assert_array_equal, before.params, after.params)
    assert load_tokenizer(destination).pieces == load_tokenizer(source).pieces
    assert "found one with files in it" in refused(capsys, "convert", source, destination)


def test_convert_of_a_model_without_a_tokenizer(models, capsys, tmp_path):
    source = tmp_path / "bare"
    source.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(Path(models["pretraining"], name), source)
    run(capsys, "convert", source, tmp_path / "copy")
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"config.json", "model.safetensors"}


def test_convert_to_another_head_says_what_is_fresh(models, capsys, tmp_path):
    _, out, _ = run(capsys, "convert", models["pretraining"], tmp_path / "start", "--head", "sequence_classification")
    assert "freshly initialised: classifier.weight" in out and "left out: cls.predictions.bias" in out
    loaded = load_pretrained(tmp_path / "start")
    assert loaded.head == "sequence_classification" and loaded.missing == []
    assert np.std(loaded.params["classifier"]["kernel"]) > 0.01, "initialised as a classifier is"


def test_convert_to_half_the_bytes_and_to_flax(models, capsys, tmp_path):
    _, out, _ = run(capsys, "convert", models["pretraining"], tmp_path / "half", "--dtype", "bfloat16", "--tensors")
    assert "read: bert.embeddings.word_embeddings.weight float32 [" in out
    sizes = [Path(folder, "model.safetensors").stat().st_size for folder in (models["pretraining"], tmp_path / "half")]
    assert sizes[1] < 0.7 * sizes[0]  # the header is not halved
    run(capsys, "convert", models["pretraining"], tmp_path / "flax", "--format", "flax")
    _, out, _ = run(capsys, "convert", tmp_path / "flax", tmp_path / "back")
    assert "from flax" in out
    before, after = load_pretrained(models["pretraining"]), load_pretrained(tmp_path / "back")
    jax.tree.map(np.testing.assert_array_equal, before.params, after.params)


def test_convert_refuses_what_it_does_not_know(models, capsys, tmp_path):
    for flags, said in (
        (("--dtype", "bfloat61"), "dtype 'bfloat61' is not known; did you mean 'bfloat16'"),
        (("--family", "robert"), "--family 'robert' is not known; did you mean 'roberta'"),
        (("--format", "onnx"), "weights 'onnx' is not known"),
    ):
        assert said in refused(capsys, "convert", models["pretraining"], tmp_path / "new", *flags)
    assert not (tmp_path / "new").exists()


def test_evaluate_and_predict_agree(models, capsys, tmp_path):
    rows = [("a good film", "pos"), ("a bad film", "neg"), ("the cat is on the mat", "pos")]
    data, out = tmp_path / "dev.tsv", tmp_path / "answers.jsonl"
    data.write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    model = models["sequence_classification"]
    _, printed, _ = run(capsys, "evaluate", "--model", model, "--data", data, "--json", "--metrics", "accuracy")
    run(capsys, "predict", "--model", model, "--data", data, "--out", out)
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [answer["text"] for answer in answers] == [text for text, _ in rows]
    right = sum(answer["label"] == label for answer, (_, label) in zip(answers, rows, strict=True))
    assert json.loads(printed) == {"accuracy": pytest.approx(right / 3), "examples": 3}
    _, table, _ = run(capsys, "evaluate", "--model", model, "--data", data)
    assert "matthews" in table


def test_tables_without_a_header_are_read_by_number(models, capsys, tmp_path):
    (tmp_path / "cola.tsv").write_text("x\tpos\t\ta good film\nx\tneg\t*\ta bad\n")
    flags = ["--no-header", "--text-column", "3", "--label-column", "1", "--json"]
    model = models["sequence_classification"]
    _, out, _ = run(capsys, "evaluate", "--model", model, "--data", tmp_path / "cola.tsv", *flags)
    assert json.loads(out)["examples"] == 2


def test_a_table_that_does_not_fit_leaves_no_answers(models, capsys, tmp_path):
    (tmp_path / "dev.tsv").write_text("text\tlabel\na good film\tpos\n")
    model, out = models["sequence_classification"], tmp_path / "answers.tsv"
    message = refused(capsys, "predict", "--model", model, "--data", tmp_path / "dev.tsv", "--out", out)
    assert "expected a column 'sentence'" in message
    assert [path.name for path in tmp_path.iterdir()] == ["dev.tsv"]


def test_a_broken_pipe_is_quiet(models):
    embed = shlex.join([sys.executable, "-m", "bert_jax", "embed", models["sentence_embedding"], "--json"])
    command = embed + " | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}"
    result = subprocess.run(
        ["bash", "-c", command], input="a cat\n" * 5000, capture_output=True, text=True, timeout=120
    )
    assert (result.returncode, result.stderr) == (141, "")


def test_an_interrupt_is_one_line(models):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax", "embed", models["sentence_embedding"]],
        stdin=subprocess.PIPE,  # stays open: the verb waits for texts
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(2)
    for _ in range(10):  # what comes while a library is being loaded may be lost in there
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=6)
            break
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "bert-jax: interrupted\n")


def test_the_console_script_is_installed():
    script = Path(sys.executable).parent / "bert-jax"
    assert subprocess.run([script, "--version"], capture_output=True).returncode == 0


def test_only_a_classifier_writes_a_submission(models, capsys, tmp_path):
    command = ["predict", "--data", "pairs.tsv", "--out", tmp_path / "out.tsv", "--submission"]
    assert "--submission: expected a model for classification, found one for sentence_embedding" in refused(
        capsys, *command, "--model", models["sentence_embedding"]
    )
    evaluate = ["evaluate", "--data", "pairs.tsv", "--model", models["sequence_classification"], "--submission"]
    assert "submission: expected only with predict, which writes it, found with evaluate" in refused(capsys, *evaluate)
    (tmp_path / "rows.tsv").write_text("sentence\na good film\na bad film\n")
    command[2] = tmp_path / "rows.tsv"
    run(capsys, *command, "--model", models["sequence_classification"])
    header, *rows = (tmp_path / "out.tsv").read_text().splitlines()
    assert header == "index\tprediction" and [row.split("\t")[0] for row in rows] == ["0", "1"]


def test_a_table_alone_trains_a_classifier_and_holds_rows_out(tmp_path, capsys):
    model, table = save_model(tmp_path / "bert", "encoder"), tmp_path / "reviews.csv"
    table.write_text("review,stars\n" + "the film is good,5\nthe cat is bad,1\n" * 20)
    short = ["--text", "review", "--label", "stars", "--model", model, "--config.num_steps=2",
             "--config.data.max_seq_length=32"]  # fmt: skip
    status, out, err = run(capsys, "finetune", str(table), *short, "--out", str(tmp_path / "run"), "--quiet")
    assert status == 0 and "eval/accuracy" in out, err
    recipe = json.loads((tmp_path / "run/config.json").read_text())
    assert recipe["task"] == "classification" and recipe["data"]["validation_split"] == 0.1
    again = tmp_path / "again"  # a value may be a word of its own, and the recipe and the table to score may be named
    words = [
        "--config",
        "classification",
        "--config.data.train",
        str(table),
        "--workdir",
        str(again),
        "--dev",
        str(table),
    ]
    assert run(capsys, "finetune", *words, *short, "--quiet")[0] == 0
    assert json.loads((again / "config.json").read_text())["data"]["validation_split"] == 0
    assert "expected a table, or --config RECIPE" in refused(capsys, "finetune", "--out", str(tmp_path / "none"))
    assert "nowhere.csv" in refused(capsys, "finetune", "nowhere.csv", *short, "--out", str(tmp_path / "none"))


def test_without_a_verb_the_verbs_are_listed(capsys):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0 and "finetune" in capsys.readouterr().out


def test_libraries_that_log_everything_print_warnings_alone(capsys):
    lines = cli._LogLines()
    for name, level in (("bm25s", logging.DEBUG), ("bm25s", logging.WARNING), ("bert_jax.x", logging.INFO)):
        lines.emit(logging.LogRecord(name, level, __file__, 1, f"{name} {level}", (), None))
    assert capsys.readouterr().err.splitlines() == ["bm25s 30", "bert_jax.x 20"]
