"""docs/troubleshooting.md: its messages are those that commands print, and are all accounted for."""

import ast
import functools
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import world
from blocks import ROOT, blocks_of
from jax._src import xla_bridge

from bert_jax.cli import main

PAGE = "docs/troubleshooting.md"
MESSAGES = [block.text.strip() for block in blocks_of(PAGE) if block.language == "output"]
FINETUNE = (
    "finetune --config classification --workdir runs/new --config.init_from=path/to/bert --config.num_steps=1 "
    "--config.global_batch_size=4 --config.data.train=train.csv --config.data.text_column=review --quiet"
)
AGAIN = FINETUNE.replace("runs/new", "runs/reviews")
# How a message that is here begins, without `bert-jax: ` -> the command that prints it, in the folder of `place`.
COMMANDS = {
    "no verb": "finetun",
    "classify: '--lon'": "classify runs/sst2/model --lon cut x",
    "'--lr=1e-4'": f"{FINETUNE} --lr=1e-4",
    "config.optimizer.lr": f"{FINETUNE} --config.optimizer.lr=1e-4",
    "config.optimizer.schedule": f"{FINETUNE} --config.optimizer.schedule=cosin",
    "classification: the task": FINETUNE.replace("finetune", "pretrain"),
    "config.tokenizer": FINETUNE.replace("path/to/bert", ""),
    "config.data.prepared": "pretrain --config bert_base --workdir runs/new",
    "runs/ss2/model": "fill-mask runs/ss2/model x",
    "path/to/bert: text-classification": "classify path/to/bert x",
    "path/to/bert: expected a model": "evaluate --model path/to/bert --data dev.csv",
    "wide": "fill-mask wide x",
    "expected a model with a tokenizer": "fill-mask untokenized x",
    "lfs/": "fill-mask lfs x",
    "damaged/": "fill-mask damaged x",
    "gpt/": "fill-mask gpt x",
    "text 1 of the command line": "classify runs/sst2/model '" + "the cat sat " * 300 + "'",
    "config.data.max_seq_length": f"{FINETUNE} --config.data.max_seq_length=1024",
    "train.csv: line 1": FINETUNE.replace("text_column=review", "text_column=text"),
    "empty.csv": FINETUNE.replace("train.csv", "empty.csv"),
    "newlabel.csv": "evaluate --model runs/reviews/model --data newlabel.csv --text-column review --label-column label",
    "latin.csv": FINETUNE.replace("train.csv", "latin.csv"),
    "path/to/bert: expected a new": FINETUNE.replace("runs/new", "path/to/bert"),
    "runs: expected": "prepare corpus/ --tokenizer path/to/bert --out runs",
    "runs/reviews belongs": f"{AGAIN} --config.optimizer.learning_rate=1",
    "runs/reviews: the data": f"{AGAIN} --config.num_steps=2",
    "attention=fused": f"{FINETUNE} --config.attention=fused",
    "mesh": f"{FINETUNE} --config.mesh.fsdp=3",
    "--topology": "plan --config bert_base --topology v5litepod-17",
}
# Messages that need a package that is missing, a bucket, another run or many steps: their words are in the source.
IN_SOURCE = (
    "google-bert/", "runs/base", "step 812", "matthews was 0", "the loss did not fall", "s3://", "gs://my-bucket: no",
    "gs://my-bucket/base", "expected a spawned process",
)  # fmt: skip
OF_JAX = ("RESOURCE_EXHAUSTED: Out of memory", "An NVIDIA GPU may be present")


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_tokenizer):
    """The files of the pages, with what is wrong in the messages."""
    folder = tmp_path_factory.mktemp("troubles")
    world.build(folder, tiny_tokenizer)
    for name in ("damaged", "gpt", "lfs", "untokenized"):
        shutil.copytree(folder / "path/to/bert", folder / name)
    weights = folder / "damaged" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    (folder / "gpt" / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    (folder / "lfs" / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid x\nsize 1\n")
    for path in (folder / "untokenized").iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    world.model(folder / "wide", "masked_lm", {"vocab_size": 100}, tiny_tokenizer)
    (folder / "newlabel.csv").write_text("review,label\nnice film,great\n")
    (folder / "latin.csv").write_bytes("review,label\ncafé,good\n".encode("latin1"))
    (folder / "empty.csv").write_text("review,label\n,good\nthe cat,bad\n")
    return folder


def find(beginning):
    found = [text for text in MESSAGES if text.removeprefix("bert-jax: ").startswith(beginning)]
    assert found, f"{PAGE} has no message that begins with {beginning!r}"
    return found


def test_every_message_of_the_page_is_tested_and_every_tested_message_is_on_the_page():
    listed = [text for beginning in (*COMMANDS, *IN_SOURCE, *OF_JAX) for text in find(beginning)]
    assert sorted(listed) == sorted(MESSAGES)


def test_the_commands_print_the_messages(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    for beginning, command in COMMANDS.items():
        (expected,) = find(beginning)
        if beginning == "runs/reviews belongs":  # the run whose recipe, and then whose data, change
            shutil.rmtree("runs/reviews")
            assert main(shlex.split(AGAIN)) == 0
        if beginning == "runs/reviews: the data":
            Path("train.csv").write_text(Path("train.csv").read_text().replace("dull", "blue"))
        capsys.readouterr()
        assert main(shlex.split(command)) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert re.sub(r"\d+", "#", said) == re.sub(r"\d+", "#", expected)  # sizes are those of small models


@functools.cache
def _messages_of_the_source() -> list[re.Pattern[str]]:
    """Every text of the package that is long enough to be one, with anything in the place of its values."""
    patterns = []
    for path in (ROOT / "bert_jax").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                fixed = [part.value if isinstance(part, ast.Constant) else None for part in parts]
                if sum(len(part) for part in fixed if isinstance(part, str)) >= 14:
                    text = ".+?".join(_escaped(fixed))
                    patterns.append(re.compile(text, re.DOTALL))
    return patterns


def _escaped(fixed):
    """The parts of a text between its values, as regular expressions."""
    joined, found = "", []
    for part in fixed:
        if part is None:
            found.append(joined)
            joined = ""
        else:
            joined += re.escape(str(part))
    return [*found, joined]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("beginning", [*IN_SOURCE, *COMMANDS])
def test_the_words_of_a_message_are_in_the_source(beginning):
    for message in find(beginning):
        text = message.removeprefix("bert-jax: ")
        found = [match.end() - match.start() for p in _messages_of_the_source() if (match := p.search(text))]
        assert max(found, default=0) >= len(text) / 3, message


def test_the_messages_of_jax_are_its_own():
    (message,) = find(OF_JAX[1])
    source = re.sub(r'"\s*\n\s*f?"', "", Path(xla_bridge.__file__).read_text())
    assert message.partition("Falling back")[0].strip() in source
