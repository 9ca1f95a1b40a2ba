"""What the documents say is so: their links, the files that they name, and the commands that they show."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from random_models import write_model

from bert_jax.cli import build_parser
from bert_jax.cli.describe import as_page as command_line_page
from bert_jax.config import BertConfig
from bert_jax.config.describe import config_page
from bert_jax.config.model_files_page import model_files_page
from bert_jax.config.model_files_page import tables as model_files_tables
from bert_jax.recipes.keys import KEYS
from bert_jax.recipes.page import recipes_page
from bert_jax.recipes.shipped import recipe_names

ROOT = Path(__file__).parent.parent
NAMES = ("README", "ARCHITECTURE", "CONTRIBUTING", "launch/README", "launch/gke/README")
DOCUMENTS = [*(ROOT / f"{name}.md" for name in NAMES), *sorted((ROOT / "docs").rglob("*.md"))]
LAUNCHERS = sorted(path for path in (ROOT / "launch").rglob("*") if path.suffix in (".sh", ".yaml"))
CLI = sorted((ROOT / "bert_jax" / "cli").glob("*.py"))


# The verb and the recipe of the task that docs/extend.md adds: tests/integration/test_a_task_of_your_own.py runs them.
OF_A_TASK_OF_YOUR_OWN = {"grade", "ordinal_regression"}


def commands(text):
    """The `bert-jax ...` lines of the bash blocks, and what launch/tpu.sh and launch/slurm.sh are given to run."""
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "bert-jax" in words:
                yield words[words.index("bert-jax") + 1 :]
            elif words[:2] == ["launch/tpu.sh", "run"]:
                yield words[3:]
            elif "launch/slurm.sh" in words:
                yield words[words.index("launch/slurm.sh") + 1 :]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_parse(document):
    parser, _ = build_parser()
    for words in commands(document.read_text()):
        if words[0] in OF_A_TASK_OF_YOUR_OWN:
            continue
        _, unknown = parser.parse_known_args(words)
        assert all(word.startswith("--config.") for word in unknown), unknown


def test_the_documents_show_every_training_verb():
    verbs = {words[0] for document in DOCUMENTS for words in commands(document.read_text())}
    assert verbs >= {"pretrain", "finetune", "evaluate", "predict", "prepare", "train-tokenizer", "convert", "inspect"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("source", [*DOCUMENTS, *CLI, *LAUNCHERS], ids=lambda path: str(path.relative_to(ROOT)))
def test_recipes_that_are_named_are_there(source):
    text = source.read_text()
    for name in re.findall(r"configs/\w+\.py", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"--config +([a-z]\w+)\b(?![./=-])", text):
        assert name in recipe_names() or name in OF_A_TASK_OF_YOUR_OWN, name


def test_the_page_of_recipe_keys_is_that_of_the_code():
    assert (ROOT / "docs" / "recipes.md").read_text() == recipes_page(), "run `make docs`"


def test_the_page_of_the_configuration_is_that_of_the_declarations():
    assert (ROOT / "docs" / "api" / "config.md").read_text() == config_page(), "run `make docs`"


def test_the_page_of_the_command_line_is_that_of_the_parser():
    page = (ROOT / "docs" / "command_line.md").read_text()
    assert page == command_line_page(), "run `make docs`"
    _, verbs = build_parser()
    for name, parser in verbs.items():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for action in parser._actions:
            if action.help and "SUPPRESS" not in action.help and "--help" not in action.option_strings:
                assert all(f"`{option}" in section for option in action.option_strings), action


def test_the_keys_that_pages_name_are_keys():
    known = {key for keys in KEYS.values() for key in keys} | {"KEY", "a.b", "data.task"}  # the last is of a set alone
    known |= {".".join(key.split(".")[: i + 1]) for key in known for i in range(key.count("."))}
    for document in DOCUMENTS:
        for key in re.findall(r"--config\.([a-zA-Z_0-9.]+)", document.read_text()):
            key = re.sub(r"^data\.sets\.\w+\.", "data.", key)  # a key of one of several data sets
            assert key.rstrip(".") in known, f"{document}: {key}"


def test_the_page_of_the_keys_of_model_files_is_that_of_the_code():
    assert (ROOT / "docs" / "model_files.md").read_text() == model_files_page(), "run `make docs`"
    titles = model_files_tables()
    for name in ("config.json", "tokenizer_config.json", "modules.json", "adapter_config.json", "sentence_bert_config"):
        assert any(name in title for title in titles), name


def test_the_picture_of_the_map_is_that_of_the_imports():
    sys.path.insert(0, str(ROOT / "docs"))
    import house

    assert f"```\n{house.picture()}```" in (ROOT / "ARCHITECTURE.md").read_text(), "run `make docs`"
    assert house.floors({"a": {"b"}, "b": set(), "c": {"a", "b"}}) == [["b"], ["a"], ["c"]]
    with pytest.raises(ValueError, match="found a circle among"):
        house.floors({"a": {"b"}, "b": {"a"}})


def test_the_map_names_every_part():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for path in (ROOT / "bert_jax").iterdir():
        if not path.name.startswith("__") and (
            path.is_file() or any(path.glob("*.py"))
        ):  # else it is gone, but its caches
            name = f"{path.name}/" if path.is_dir() else path.name
            assert f"`{name}`" in text, f"ARCHITECTURE.md does not mention {name}"


def test_make_test_ends_with_pytest():
    """So that pytest's closing line is the last one printed, after lint and types."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of an outer make
    plan = subprocess.run(
        ["make", "--dry-run", "test"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    tools = [
        tool
        for line in plan.splitlines()
        for tool in ("ruff format", "ruff check", "mypy", "-m pytest")
        if tool in line
    ]
    assert tools == ["ruff format", "ruff check", "mypy", "-m pytest"]
    assert "-m pytest" in plan.splitlines()[-1]
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test"


def test_the_python_of_the_readme_runs(tmp_path, tiny_tokenizer):
    text = (ROOT / "README.md").read_text()
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    models = {
        "path/to/bert": "pretraining",
        "path/to/all-MiniLM-L6-v2": "sentence_embedding",
        "runs/conll2003/model": "token_classification",
        "runs/squad/model": "question_answering",
    }
    for name, head in models.items():
        labels = 2 if head == "question_answering" else 3
        config = BertConfig.named("tiny", vocab_size=tiny_tokenizer.vocab_size, num_labels=labels)
        write_model(tmp_path / head, config, head, tiny_tokenizer)
        code = code.replace(name, str(tmp_path / head))
    names: dict[str, Any] = {}
    exec(code.replace("path/to/copy", str(tmp_path / "copy")), names)
    assert names["out"].last_hidden_state.shape[::2] == names["out"].pooler_output.shape == (2, 128)
    assert names["logits"].shape == (2, 2)
    assert (tmp_path / "copy" / "model.safetensors").exists()


@pytest.mark.slow
def test_the_python_of_the_page_for_users_of_other_libraries_runs(tmp_path, tiny_tokenizer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "coming_from.md").read_text(), re.DOTALL))
    config = BertConfig.named("tiny", vocab_size=tiny_tokenizer.vocab_size, num_hidden_layers=1)
    write_model("path/to/bert", config, "encoder", tiny_tokenizer)
    Path("path/to/SST-2").mkdir()
    rows = "".join(f"{'good' if i % 2 else 'bad'} film {i}\t{i % 2}\n" for i in range(40))
    for name in ("train", "dev"):
        Path(f"path/to/SST-2/{name}.tsv").write_text("sentence\tlabel\n" + rows)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["first"].shape[::2] == (2, 128) and names["scores"].shape == (1, 2)
    assert names["results"]["step"] == 4 and Path("path/to/run/model/model.safetensors").exists()
    assert int(names["state"].step) == 4
