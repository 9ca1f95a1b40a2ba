"""What reaches a terminal or a log of a user's text: no control character, no control of direction, no endless line.

Every verb is run with hostile texts, files, names of files and models; JSON says all of them as they are.
"""

import ast
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from random_models import write_model

from bert_jax import errors
from bert_jax.cli import build_parser, main
from bert_jax.cli.output import console, print_table, say_names
from bert_jax.config import BertConfig
from bert_jax.conversion.encoder_decoder import save_encoder_decoder
from bert_jax.conversion.generation_settings import GenerationSettings
from bert_jax.errors import InputError
from bert_jax.modeling import EncoderDecoder
from bert_jax.tokenization import word_piece
from bert_jax.training.monitoring import Timer
from bert_jax.training.progress import Bar

PACKAGE = Path(errors.__file__).parent
ESCAPES = "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe \x9b1m"
LONG = "the cat " * 7500  # 60,000 characters
WORDS = ["the", "cat", "dog", "sat", "\u202ethe", *(f"##{c}" for c in "abcdefg")]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LONGEST_LINE = 520  # 500 of a message, and who says it
# Written without the module's own pattern, by Unicode's categories: controls but tab and newline, and directions.
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def assert_printable(text: str) -> None:
    found = FORBIDDEN.search(text)
    assert not found, ascii(text[max(0, found.start() - 80) : found.end() + 80])
    longest = max(text.split("\n"), key=len)
    assert len(longest) <= LONGEST_LINE, longest[:200]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a hostile name, and in it models with hostile labels and tokens, tables, corpora and recipes."""
    root = tmp_path_factory.mktemp("printable") / "a\x1b[31m\u202eb"
    root.mkdir()
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(PIECES), max_position_embeddings=64, **size)
    tags = ("O", f"B-{ESCAPES}", "B-good")
    heads = {
        "sequence_classification": {"id2label": (ESCAPES, "x" * 5000)},
        "token_classification": {"id2label": tags, "num_labels": 3},
        "question_answering": {},
        "masked_lm": {},
        "sentence_embedding": {},
    }
    tokenizer = word_piece(PIECES, lowercase=False)
    for head, more in heads.items():
        write_model(root / head, config.replace(**more), head, tokenizer)
    config = config.replace(num_labels=2, id2label=(ESCAPES, "x" * 5000))
    write_model(root / "relations", config, "sequence_classification", tokenizer)
    settings = {"markers": "entity_marker_punct", "null_label": ""}
    (root / "relations" / "bert_jax.json").write_text(json.dumps({"relations": settings}))
    writer = EncoderDecoder(config, config)
    settings = GenerationSettings(decoder_start_token_id=2, eos_token_id=3, pad_token_id=0)
    params = writer.init(jax.random.key(0))
    save_encoder_decoder(root / "encoder_decoder", writer, params, settings, tokenizer)
    rows = "".join(f"the cat {ESCAPES}\t{label}\n" for label in (ESCAPES, "x" * 5000) * 4)
    (root / "table.tsv").write_text(f"sentence\tlabel\n{rows}")
    (root / "wrong.tsv").write_text(f"sentence\tlabel\nthe cat\t{ESCAPES}{LONG}\n\t{ESCAPES}\n")
    (root / "tags.conll").write_text(f"the O\ncat B-{ESCAPES.replace(' ', '')}\n\n" * 3)
    (root / "lines.txt").write_text(f"the {ESCAPES}\n{LONG}\n")
    (root / "lines.jsonl").write_text(json.dumps({ESCAPES: LONG}) + "\n" + json.dumps({"text": ESCAPES}) + "\n")
    (root / "corpus.txt").write_text(f"the cat {ESCAPES}\nthe dog sat\n\n" * 20)
    recipe = ["from bert_jax import recipes", "def get_config(path=''):", " c = recipes.classification()"]
    recipe += [" c.num_steps, c.global_batch_size = 1, 4", f" c.init_from = {str(root / 'sequence_classification')!r}"]
    recipe += [f" c.data.train = {str(root / 'table.tsv')!r}", " c.data.dev = c.data.train", " return c"]
    (root / "recipe.py").write_text("\n".join(recipe))
    return root


# Command lines of each verb; {0} is the folder. Those of `demo` and `plan`, which take long, end in an error.
COMMANDS = {
    "answer": [["{0}/question_answering", f"the {ESCAPES}?", "--text", f"the cat {ESCAPES} the dog"]],
    "classify": [
        ["{0}/sequence_classification", f"the {ESCAPES}", "the cat"],
        ["{0}/sequence_classification", LONG],
        ["{0}/sequence_classification", "the \udcff"],
        ["{0}/sequence_classification", "--file", "{0}/lines.jsonl", "--skip"],
        ["{0}/sequence_classification", "--file", "{0}/lines.jsonl", "--field", ESCAPES, "--long-texts", "cut"],
    ],
    "config": [["{0}/recipe.py"], [ESCAPES], ["{0}/recipe.py", ESCAPES]],
    "convert": [["{0}/masked_lm", f"{{0}}/converted{ESCAPES}", "--tensors"], ["{0}/absent", "{0}/x"]],
    "demo": [["--workdir", "{0}/table.tsv"]],
    "distill": [
        [
            "--config",
            "{0}/recipe.py",
            "--workdir",
            f"{{0}}/student{ESCAPES}",
            "--config.distillation.teacher={0}/sequence_classification",
            "--config.distillation.weights.soft_labels=1",
        ],
        [
            "--config",
            "{0}/recipe.py",
            "--workdir",
            "{0}/x",
            f"--config.distillation.teacher={{0}}/{ESCAPES}",
            "--config.distillation.weights.soft_labels=1",
        ],
    ],
    "embed": [["{0}/sentence_embedding", f"the {ESCAPES}", LONG[:400]], ["{0}/sentence_embedding", "\ud800"]],
    "evaluate": [
        ["--model", "{0}/sequence_classification", "--data", "{0}/table.tsv"],
        ["--model", "{0}/sequence_classification", "--data", "{0}/wrong.tsv"],
        ["--model", "{0}/sequence_classification", "--data", "{0}/table.tsv", "--text-column", ESCAPES],
        ["--model", "{0}/token_classification", "--data", "{0}/tags.conll"],
    ],
    "distill-static": [
        ["{0}/masked_lm", "--out", f"{{0}}/static{ESCAPES}", "--dims", "4"],
        ["{0}/masked_lm", "--out", "{0}/x", "--dims", "4", "--remove", ESCAPES],
    ],
    "evaluate-reranking": [
        ["{0}/sentence_embedding", "--data", f"{{0}}/{ESCAPES}"],
        ["{0}/sentence_embedding", "--data", "{0}/lines.jsonl", "--metrics", ESCAPES],
    ],
    "evaluate-search": [
        ["{0}/sentence_embedding", "--data", f"{{0}}/{ESCAPES}"],
        ["{0}/sentence_embedding", "--data", "{0}", "--split", ESCAPES],
        ["{0}/sentence_embedding", "--data", "{0}", "--metrics", ESCAPES],
    ],
    "export": [
        ["{0}/sequence_classification", "--out", f"{{0}}/exported{ESCAPES}", "--format", "stablehlo"],
        ["{0}/sequence_classification", "--out", "{0}/x", "--format", ESCAPES],
        ["{0}/sequence_classification", "--out", "{0}/x", "--format", "stablehlo", "--dtype", ESCAPES],
    ],
    "generate": [
        ["{0}/masked_lm", f"the {ESCAPES}", "--max-new-tokens", "4"],
        ["{0}/masked_lm", f"the [MASK] {ESCAPES}", "--fill"],
        ["{0}/masked_lm", f"the {LONG}"],
        ["{0}/masked_lm", "the", "--prefix", ESCAPES, "--forbid", ESCAPES],
    ],
    "fill-mask": [["{0}/masked_lm", f"the [MASK] {ESCAPES}", "--top-k", "20"], ["{0}/masked_lm", f"the {LONG}"]],
    "finetune": [
        ["--config", "{0}/recipe.py", "--workdir", f"{{0}}/run{ESCAPES}"],
        ["--config", "{0}/recipe.py", "--workdir", "{0}/x", f"--config.data.train={{0}}/{ESCAPES}"],
        ["--config", "{0}/recipe.py", "--workdir", "{0}/x", f"--config.{ESCAPES}=1"],
    ],
    "inspect": [["{0}/sequence_classification"], [ESCAPES]],
    "mine-negatives": [
        [
            "{0}/sentence_embedding",
            "--data",
            "{0}/table.tsv",
            "--out",
            f"{{0}}/mined{ESCAPES}.jsonl",
            "--query-column",
            "sentence",
            "--positive-column",
            "label",
        ],
        ["{0}/sentence_embedding", "--data", "{0}/table.tsv", "--out", "{0}/x.jsonl", "--query-column", ESCAPES],
        ["{0}/sentence_embedding", "--data", "{0}/table.tsv", "--out", f"{{0}}/{ESCAPES}"],
    ],
    "plan": [["--config", "{0}/recipe.py", "--topology", ESCAPES]],
    "predict": [
        ["--model", "{0}/sequence_classification", "--data", "{0}/table.tsv", "--out", f"{{0}}/{ESCAPES}.jsonl"],
        ["--model", "{0}/sequence_classification", "--data", "{0}/wrong.tsv", "--skip", "--out", "{0}/out.jsonl"],
        ["--model", "{0}/token_classification", "--data", "{0}/tags.conll", "--out", f"{{0}}/{ESCAPES}.conll"],
    ],
    "prepare": [["{0}/corpus.txt", "--tokenizer", "{0}/masked_lm", "--out", f"{{0}}/prepared{ESCAPES}"]],
    "pretrain": [["--config", f"{{0}}/{ESCAPES}.py", "--workdir", "{0}/x"]],
    "prune": [
        [
            "{0}/sequence_classification",
            "--out",
            f"{{0}}/pruned{ESCAPES}",
            "--columns",
            "0.25",
            "--data",
            "{0}/table.tsv",
        ],
        ["{0}/sequence_classification", "--out", "{0}/x", "--columns", "0.25", "--data", f"{{0}}/{ESCAPES}"],
    ],
    "quantize": [
        ["{0}/sequence_classification", "--out", f"{{0}}/quantized{ESCAPES}", "--mode", "int8"],
        ["{0}/sequence_classification", "--out", "{0}/x", "--mode", "int8", "--keep", ESCAPES],
    ],
    "index": [
        ["{0}/sentence_embedding", "--corpus", "{0}/lines.txt", "--out", f"{{0}}/index{ESCAPES}"],
        ["{0}/sentence_embedding", "--corpus", f"{{0}}/{ESCAPES}", "--out", "{0}/x"],
    ],
    "relations": [
        ["{0}/relations", f"the {ESCAPES} cat", "--tagger", "{0}/token_classification"],
        ["{0}/relations", f"the {ESCAPES}", "--tagger", f"{{0}}/{ESCAPES}"],
        ["{0}/sequence_classification", "the cat", "--tagger", "{0}/token_classification"],
    ],
    "rerank": [["{0}/sequence_classification", f"the {ESCAPES}", "--corpus", "{0}/lines.txt"]],
    "score": [
        ["{0}/masked_lm", f"the {ESCAPES}", "the cat"],
        ["{0}/masked_lm", f"the {ESCAPES}", "--tokens"],
        ["{0}/masked_lm", f"the {LONG}"],
    ],
    "search": [["{0}/sentence_embedding", f"the {ESCAPES}", "--corpus", "{0}/lines.txt"]],
    "serve": [[f"{{0}}/{ESCAPES}"], ["{0}/question_answering", "--name", ESCAPES]],
    "similarity": [["{0}/sentence_embedding", f"the {ESCAPES}", "\x1b"]],
    "tag": [["{0}/token_classification", f"the {ESCAPES} dog", "the cat", "--strategy", "none"]],
    "text2text": [
        ["{0}/encoder_decoder", f"the {ESCAPES} dog", "the cat"],
        ["{0}/encoder_decoder", "--file", "{0}/lines.jsonl", "--skip"],
        [f"{{0}}/{ESCAPES}", "the cat"],
    ],
    "train-tokenizer": [["{0}/corpus.txt", "--vocab-size", "60", "--out", f"{{0}}/tokenizer{ESCAPES}"]],
}


def test_every_verb_is_tried():
    assert COMMANDS.keys() == build_parser()[1].keys()


@pytest.mark.sampled(24)
@pytest.mark.parametrize("verb", COMMANDS)
def test_no_verb_prints_what_a_terminal_obeys(verb, place, capfd, caplog, recwarn):
    for arguments in COMMANDS[verb]:
        for more in ([], ["--debug"]):
            status = main([verb, *(argument.replace("{0}", str(place)) for argument in arguments), *more])
            assert status in (0, 2)
            printed = capfd.readouterr()
            assert printed.out or printed.err
            for text in (*printed, caplog.text, *(str(warning.message) for warning in recwarn)):
                assert_printable(text)


def test_json_is_unchanged(place, capsys):
    text = f"the {ESCAPES}"
    assert main(["classify", str(place / "sequence_classification"), text, "--json"]) == 0
    printed = capsys.readouterr().out
    assert not FORBIDDEN.search(printed)  # the escapes are JSON's, of C1 and directions too
    said = json.loads(printed)
    assert said["text"] == text
    assert {score["label"] for score in said["scores"]} == {ESCAPES, "x" * 5000}


def test_a_bug_in_a_process_of_its_own(place):
    """The traceback of an error that nobody caught, a warning and a library's log."""
    code = f"""
import logging, sys, warnings, bert_jax.cli as cli
from bert_jax.__main__ import main
def run(args):
    logging.getLogger("other").warning({ESCAPES!r})
    warnings.warn({ESCAPES + LONG!r})
    raise RuntimeError({ESCAPES + LONG!r})
cli.config.run_config = run
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code, "config"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("gnp.exe") >= 3 and "RuntimeError" in done.stderr
    assert_printable(done.stderr)


def test_loggers_of_the_package(caplog):
    errors.logger("bert_jax.test").warning("%s: line %d", f"a\n{ESCAPES}", 3)
    errors.logger("bert_jax.test").info("%s is not even made printable", ESCAPES)
    (record,) = caplog.records
    assert record.name == "bert_jax.test" and record.filename == Path(__file__).name
    assert record.getMessage() == "a \\x1b[31mred\\x1b]0;title\\x07 \\u202egnp.exe \\x9b1m: line 3"


def test_messages_and_tables(capsys):
    assert str(InputError(f"{ESCAPES}{LONG}")).startswith("\\x1b[31mred\\x1b]0;title\\x07 \\u202egnp.exe")
    print_table(ESCAPES, (ESCAPES, "[red]text"), [(LONG, "[MASK]"), ("a\nb", ESCAPES)])
    say_names("left out", [f"layer.{i}.{ESCAPES}" for i in range(50)])
    out = capsys.readouterr().out
    assert_printable(out)
    assert "[red]text" in out and "[MASK]" in out and out.count("layer.") == 50
    assert len(out) < 60_000  # a cell is cut


def test_an_error_is_one_line():
    assert str(InputError("a\nb.txt: expected a")) == "a\\nb.txt: expected a"


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_a_table_in_a_file_is_drawn_as_rich_draws_it(columns, capsys):
    from rich.table import Table

    rng = random.Random(columns)
    for _ in range(50):
        header, *rows = [
            tuple(
                "".join(rng.choices(["a", "b ", "北", "é", "-", "[x]", " "], k=rng.randint(0, 9)))
                for _ in range(columns)
            )
            for _ in range(rng.randint(1, 6))
        ]
        table = Table(*header)
        for row in rows:
            table.add_row(*row)
        console().print(table)
        expected = capsys.readouterr().out
        print_table("a title", header, rows)
        assert capsys.readouterr().out == f"a title\n{expected}"


def test_the_progress_of_a_run(capsys):
    from rich.console import Console

    bar = Bar(10, 0, True, Timer(), Console(file=sys.stderr, highlight=False, soft_wrap=True))
    bar.say(f"step 1: f1_{ESCAPES}{LONG} 0.5")
    bar.close()
    printed = capsys.readouterr().err
    assert "f1_" in printed
    assert_printable(printed)


# The module that makes text printable, a word before anything is imported, and pages of the documentation.
PRINT_THEIR_OWN_WORDS = (
    "cli/output.py",
    "__main__.py",
    "cli/describe.py",
    "recipes/page.py",
    "notebook.py",  # in a cell
    "config/describe.py",
    "config/model_files_page.py",
)


def test_one_module_prints_and_one_logs():
    sources = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    logging = [name for name, text in sources.items() if "logging.getLogger(__name__)" in text and name != "errors.py"]
    assert not logging, "use bert_jax.errors.logger"
    prints = ("print(", "sys.stdout.write(", "sys.stderr.write(")
    safe = ("print(json.dumps(", "print(printable(")
    for name, text in sources.items():
        if name not in PRINT_THEIR_OWN_WORDS and any(word in text for word in prints):
            called = [ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            printed = [call for call in called if call.startswith(prints) and not call.startswith(safe)]
            assert not printed, f"{name}: use bert_jax.cli.output"
