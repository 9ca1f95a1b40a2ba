"""Every code block of every page: run as a reader would, or checked in the way that is listed here for it."""

import contextlib
import dataclasses
import functools
import importlib.util
import io
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
import small_commands
import world
from blocks import PAGES, ROOT, Block, blocks_of
from test_troubleshooting import MESSAGES, PAGE

from bert_jax.cli import build_parser, main
from bert_jax.cli.train import overrides_of
from bert_jax.planning.accelerators import topology_of
from bert_jax.recipes import load_recipe, resolve

# Pages whose blocks another test runs, each in its order; what that test leaves out is checked here.
RUN_ELSEWHERE = {
    "README.md": "tests/integration/test_wheel.py",  # from the built package; its Python by tests/test_docs.py
    "docs/coming_from.md": "tests/test_docs.py",
    "docs/extend.md": "tests/integration/test_a_task_of_your_own.py",  # and test_a_family_of_your_own.py
    "docs/serving.md": "tests/serving/test_page.py",  # against a server
    "docs/tpu.md": "tests/launch/test_tpu_page.py",  # against an emulator of Cloud Storage
    "docs/training_loop.md": "tests/pages/test_training_loop.py",  # over eight devices
}
# Blocks that are no commands, by page and first line -> the test that checks them.
NO_COMMANDS = {
    ("ARCHITECTURE.md", "12  a task"): "tests/test_docs.py",
    ("docs/inside.md", "corpus --units--> files and ranges of fi"): "test_the_flow_of_a_batch_names_modules",
    ("docs/inside.md", "path --model_kinds--> CheckpointFiles: t"): "test_the_road_of_opening_a_model_names_modules",
    ("docs/inside.md", "embeddings/{word,position,token_type,tas"): "test_the_parameter_tree_names_parameters",
    ("docs/get_started.md", "review,label"): "test_a_page",  # the table that the page's commands read
    ("docs/packing.md", "input_ids      [CLS] a cat sat [SEP] [CL"): "test_the_packed_row_is_that_of_the_code",
    ("docs/pretraining.md", "dask scheduler --port 8786"): "tests/data/pretraining/test_dask.py",
    **{(PAGE, message[:40].strip()): "tests/pages/test_troubleshooting.py" for message in MESSAGES},
}
# What needs minutes: what is replaced so that it takes seconds.
SMALLER = {
    "docs/api/planning.md": {
        '"bert_base"': '"bert_base", ["config.model.size=tiny", "config.stages=((1,128,16),)", '
        '"config.optimizer.warmup_steps=0"]'
    },
    "docs/command_line.md": {
        "python-docs ": "books/ ",
        "seed=0,1,2 ": "seed=0 ",
        "--heads 0.25 --columns 0.25 --data": "--heads 0.5 --columns 0.25 --data",
        "--layers 0,2,4": "--layers 0",
        "--relative-margin 0.05": "--relative-margin 0",
        "--rounds 2": "--rounds 2 --config.num_steps=1 --config.global_batch_size=4 --quiet",
        "--heads 0.25 --columns 0.5": "--heads 0.5 --columns 0.5",
    },
    "docs/pruning.md": {
        "--heads 0.25 --columns 0.25": "--heads 0.5 --columns 0.25",
        "--rounds 2 ": "--rounds 2 --config.num_steps=1 --config.global_batch_size=4 --quiet ",
    },
    "docs/sentence_embeddings.md": {"--relative-margin 0.05": "--relative-margin 0"},
    "docs/tasks.md": {"seed=0,1,2 ": "seed=0 "},
}
OF_ALTERNATIVES = ("docs/command_line.md",)  # pages whose commands are each for itself
# Programs of others, which are not run: their command lines are the reader's to try.
OF_OTHERS = (
    "gcloud",
    "kubectl",
    "podman",
    "unzip",
    "tar",
    "google-cloud-sdk/install.sh",
    "cd",
    "curl",
    "export",
    "python3",
    ".",
)
ADDED = small_commands.ADDED | {"train-tokenizer": ["--vocab-size", "400"]}
# What is added to the command of a recipe, for the models of the pages, which have one layer of 32.
_HELD_OUT = ["--config.data.validation_split=0.3"]
_ONE_LAYER = ["--config.distillation.student_layers=(0,)"]
ADDED_TO_RECIPES = {
    **dict.fromkeys(
        ("distil_sst2", "distil_classification", "distil_conll2003", "distil_stsb", "distil_text", "distil_reranker"),
        _ONE_LAYER,
    ),
    **dict.fromkeys(("retrieval", "reranker"), _HELD_OUT),
    "relation_extraction": ["--config.data.markers=entity_marker"],  # the pages' vocabulary has no punctuation
    "gliner": ["--config.data.hidden_size=16", "--config.data.max_seq_length=64"],
    "distil_minilm": ["--config.optimizer.warmup_steps=0", "--config.distillation.relation_heads=4",
                      "--config.data.eval_batches=1"],
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny_tokenizer) -> Path:
    """The files that the pages take to be there."""
    folder = tmp_path_factory.mktemp("world")
    world.build(folder, tiny_tokenizer)
    return folder


@pytest.fixture
def place(files, tmp_path, monkeypatch) -> Path:
    """A copy of them, which is the current folder."""
    folder = tmp_path / "place"
    shutil.copytree(files, folder, symlinks=False)
    monkeypatch.chdir(folder)
    return folder


# They take longest, for verbs and recipes that other pages and tests run too.
SLOW = (
    "docs/api/evaluation.md",
    "docs/api/modeling.md",
    "docs/command_line.md",
    "docs/distillation.md",
    "docs/export.md",
    "docs/generation.md",
    "docs/multiple_choice.md",
    "docs/packing.md",
    "docs/pretraining.md",
    "docs/pruning.md",
    "docs/quantization.md",
    "docs/question_answering.md",
    "docs/recipes.md",
    "docs/relation_extraction.md",
    "docs/reranking.md",
    "docs/retrieval.md",
    "docs/sentence_embeddings.md",
    "docs/sequence_to_sequence.md",
    "docs/smaller.md",
    "docs/tasks.md",
    "docs/token_classification.md",
)
RUN_HERE = [
    pytest.param(page, marks=pytest.mark.slow) if page in SLOW else page
    for page in PAGES
    if blocks_of(page) and page not in RUN_ELSEWHERE
]


@pytest.mark.parametrize("page", RUN_HERE)
def test_a_page(page, place, request):
    """A page from its first block to its last, in one folder and one namespace."""
    if page == "docs/api/planning.md":
        if importlib.util.find_spec("libtpu") is None:
            pytest.skip("needs the TPU compiler: pip install 'bert-jax[tpu]'")
        jax.config.update("jax_optimization_level", "O0")
        request.addfinalizer(functools.partial(jax.config.update, "jax_optimization_level", "UNKNOWN"))
    names: dict[str, Any] = {}
    written: set[str] = set()
    for block in map(_smaller, blocks_of(page)):
        if block.language == "python":
            exec(compile(block.text, f"{page}:{block.line}", "exec"), names)
            if file := re.match(r"# (\w+\.py)\n", block.text):  # a file that the reader writes
                Path(file[1]).write_text(block.text)
        elif block.language == "bash":
            for number, words in enumerate(block.commands):
                _run(block, number, words, written)
        elif block.language == "csv":
            for name in ("train.csv", "dev.csv"):  # what the page shows is how they begin
                Path(name).write_text(block.text + Path(name).read_text().partition("\n")[2])
        else:
            check = NO_COMMANDS[block.key]
            assert check in globals() or (ROOT / check).exists()


@pytest.mark.parametrize("page", RUN_ELSEWHERE)
def test_a_page_that_another_test_runs(page):
    test = (ROOT / RUN_ELSEWHERE[page]).read_text()
    assert Path(page).name in test
    for block in blocks_of(page):
        assert block.language in ("python", "bash", "javascript", "toml", "")
        for words in block.commands if block.language == "bash" else ():
            if words[0] != "bert-jax":
                _check(words)
            elif words[1] in PARSED and page != "docs/extend.md":  # whose family and task are unknown here
                PARSED[words[1]](words[1:])


def test_what_is_listed_here_is_there():
    there = {block.key for page in PAGES for block in blocks_of(page)}
    assert NO_COMMANDS.keys() <= there
    assert all(old in (ROOT / page).read_text() for page, changes in SMALLER.items() for old in changes)


def test_no_page_has_blocks_that_are_not_found_here():
    """Blocks are found by their fences: MkDocs, which also takes indented lines for code, finds as many."""
    markdown = pytest.importorskip("markdown")
    for page in PAGES:
        text = (ROOT / page).read_text()
        html = markdown.markdown(text, extensions=["pymdownx.superfences", "tables", "admonition"])
        assert html.count("<pre>") == len(blocks_of(page)), page


def _smaller(block: Block) -> Block:
    text = block.text
    for old, new in SMALLER.get(block.page, {}).items():
        text = text.replace(old, new)
    return dataclasses.replace(block, text=text)


def _run(block: Block, number: int, words: list[str], written: set[str]) -> None:
    """Runs a command of bert-jax, and checks any other.

    What it writes is removed before, unless an earlier command of the page has written it.
    """
    if words[0] != "bert-jax":
        _check(words)
        return
    words = [re.sub(r"gs://(my-)?bucket/", "bucket/", word) for word in words[1:]]  # tests/storage has the emulator
    if words[0] in PARSED or "--distributed" in words or "--coordinator" in words:
        PARSED.get(words[0], _parse)(words)
        return
    for new in _written_by(words):
        if new not in written or block.page in OF_ALTERNATIVES:
            shutil.rmtree(new, ignore_errors=True)
        written.add(new)
    before = block.commands[number - 1] if number else []
    stdin = io.BytesIO(Path(before[1]).read_bytes() if before[:1] == ["cat"] else b"")
    printed = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        patch.setattr("sys.stdin", io.TextIOWrapper(stdin))
        status = main([*words, *_added(words)])
    assert status == 0, f"{block.page}:{block.line}: {words}: {printed.getvalue()[-2000:]}"


def _added(words: list[str]) -> list[str]:
    """What is added to a command: of its verb, and of its recipe, but for keys that it sets."""
    recipe = words[words.index("--config") + 1].partition(":")[0] if "--config" in words else ""
    set_here = {word.partition("=")[0] for word in words}
    of_recipe = [word for word in ADDED_TO_RECIPES.get(recipe, []) if word.partition("=")[0] not in set_here]
    added = ADDED.get(words[0], [])
    if any(word.startswith("--config.init_from=") for word in words):  # the model has its sizes already
        added = [word for word in added if not word.startswith("--config.model.")]
    return [*added, *of_recipe]


def _written_by(words: list[str]) -> list[str]:
    """The directories that a command makes."""
    if words[0] == "convert":
        return [words[2]]
    return [words[i + 1] for i, word in enumerate(words[:-1]) if word in ("--workdir", "--out")]


def _parse(words: list[str]) -> Any:
    """The arguments of a command line; its recipe is opened, changed and checked."""
    parser, _ = build_parser()
    args, unknown = parser.parse_known_args(words)
    assert all(word.startswith("--config.") for word in unknown), unknown
    if (getattr(args, "config", "") or "...") != "...":
        resolve(load_recipe(args.config, overrides_of(unknown)))
    return args


def _plan(words: list[str]) -> None:
    """Compiling takes minutes: tests/planning does it. The recipe and the slice are read."""
    topology_of(_parse(words).topology)


# Verbs that take minutes.
PARSED: dict[str, Callable[[list[str]], Any]] = {
    "plan": _plan,
    "demo": _parse,
    "serve": _parse,
}  # tests/test_notebook.py tells its story


def _check(words: list[str]) -> None:
    """A command of another program: as far as it can be checked without running it."""
    program, rest = words[0], words[1:]
    if program == "pip":
        assert rest[0] == "install"
        assert set(re.findall(r"\[(\w+)\]", rest[1])) <= _extras().keys()
        assert rest[1].startswith(".") or rest[1] in _extras()["hub"]
    elif program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program.startswith("launch/"):
        _check_launcher(program, rest)
    elif program == "sbatch":
        assert rest[1] == "launch/slurm.sh" and (ROOT / rest[1]).exists()
        _parse(rest[2:])
    elif program == "hf":
        known = subprocess.run([Path(sys.executable).parent / "hf", rest[0], "--help"], capture_output=True, text=True)
        assert all(word.split("=")[0] in known.stdout for word in rest if word.startswith("--")), known.stdout
    elif program == ".venv/bin/python":
        assert rest[:2] == ["-m", "pytest"] and (ROOT / rest[2]).exists()
    elif program == "python":
        assert rest[0] == "evaluate-v2.0.py" or f'"{rest[2]}"' in (ROOT / "benchmarks" / "__main__.py").read_text()
    elif program == "cat":
        assert Path(rest[0]).exists()
    else:
        assert program in OF_OTHERS, words


def _check_launcher(program: str, rest: list[str]) -> None:
    """A verb of a launcher, which tests/launch runs with stand-ins; what it gives to bert-jax is parsed."""
    verb, flags = rest[0], [word for word in rest[1:] if word.startswith("--") and word != "--"]
    usage = subprocess.run([ROOT / program, "--help"], capture_output=True, text=True).stdout
    assert re.search(rf"{program} {verb} ", usage), (program, verb)
    if verb == "run":
        _parse([word for word in rest[2:] if word != "--"])
    else:
        assert all(flag in usage for flag in flags), flags


@functools.cache
def _extras() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def _block(page: str, beginning: str) -> str:
    return next(block.text for block in blocks_of(page) if block.text.startswith(beginning))


def test_the_flow_of_a_batch_names_modules():
    _check_modules(_block("docs/inside.md", "corpus"))


def test_the_road_of_opening_a_model_names_modules():
    _check_modules(_block("docs/inside.md", "path"))


def _check_modules(block: str) -> None:
    named = re.findall(r"\s([a-z_]+/[\w/,{}]*(?:\.py|/))", block)
    assert len(named) >= 8
    for name in named:
        base, _, several = name.partition("{")
        for each in several.partition("}")[0].split(",") if several else [""]:
            path = f"{base}{each}{several.partition('}')[2]}" if several else name
            assert (ROOT / "bert_jax" / path).exists() or (ROOT / path).exists() or path.startswith("checkpoints"), path


def test_the_parameter_tree_names_parameters():
    from bert_jax.config import BertConfig
    from bert_jax.config.gliner import GlinerConfig
    from bert_jax.modeling import HEADS, Bert

    shown = {line.partition("/")[0] for line in _block("docs/inside.md", "embeddings/").splitlines()}
    config = BertConfig.named("tiny", vocab_size=8, gliner=GlinerConfig())
    of_electra = BertConfig.named("small", "electra", vocab_size=8)
    trees = [Bert(config, head).abstract_params() for head in HEADS if head != "replaced_token_detection"]
    trees.append(Bert(of_electra, "replaced_token_detection").abstract_params())
    trees.append(Bert(config, "decoder").abstract_params())
    for family, head in (("big_bird", "question_answering"), ("esm", "encoder")):
        trees.append(Bert(BertConfig.named("tiny", family, vocab_size=8), head).abstract_params())
    assert shown <= set().union(*trees)
    assert jax.tree.leaves(trees)


def test_the_packed_row_is_that_of_the_code():
    import numpy as np

    from bert_jax.data.packing import pack_examples

    names, *lines = zip(*(line.split() for line in _block("docs/packing.md", "input_ids").splitlines()), strict=True)
    shown = dict(zip(names, zip(*lines, strict=True), strict=True))
    lengths = [shown["segment_ids"].count(example) for example in "12"]
    mask = np.arange(6) < np.array(lengths)[:, None]
    batch = {"attention_mask": mask.astype(int), "input_ids": np.arange(12).reshape(2, 6)}
    packed = pack_examples(batch, np.array([0, 0]), 1, len(shown["input_ids"]), 2, {"input_ids": -1})
    for name in ("segment_ids", "position_ids"):
        assert packed[name][0].tolist() == [int(number) for number in shown[name]]
    assert (packed["input_ids"][0] == -1).tolist() == [piece == "[PAD]" for piece in shown["input_ids"]]
