"""A plain directory is opened without the modules of other kinds of models, and no two files import each other."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from bert_jax import conversion

FOLDER = Path(conversion.__path__[0])
# Modules of other kinds of models and formats, and what writes model directories.
OTHERS = (
    "adapters", "apply_modules", "bare_files", "bge_m3", "cross_encoders", "encoder_decoder", "foreign_kinds",
    "formats.flax_msgpack", "formats.sstables", "formats.tf1", "formats.torch_files", "formats.torch_pickles",
    "generated", "gliner", "multi_vector_encoders", "record", "sentence_transformers", "sentence_transformers_writing",
    "sparse_encoders", "stanford_colbert", "task_adapters", "write_checkpoint",
)  # fmt: skip
MOST_LINES = 2_500
OPEN = """
import json, sys
from bert_jax.conversion.huggingface import load_pretrained

load_pretrained(sys.argv[1])
print(json.dumps({name: module.__file__ for name, module in sys.modules.items() if "bert_jax.conversion." in name}))
"""


def test_a_plain_directory_imports_no_other_kinds(write_small, tmp_path):
    model = write_small(tmp_path / "model", "masked_lm")
    (model / "bert_jax.json").unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(model)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout.splitlines()[-1])
    imported = {name.removeprefix("bert_jax.conversion."): file for name, file in files.items()}
    assert {"open_checkpoint", "state_dict", "formats.safetensors_files"} <= imported.keys()
    assert not [name for name in OTHERS if name in imported]
    lines = {name: len(Path(file).read_text().splitlines()) for name, file in imported.items()}
    assert sum(lines.values()) <= MOST_LINES, sorted(lines.items(), key=lambda item: -item[1])


def test_no_two_files_import_each_other():
    """Imports for types and inside functions count too; those by name (`module_of`) do not."""
    names = {
        ".".join(path.relative_to(FOLDER.parent.parent).with_suffix("").parts): path for path in FOLDER.rglob("*.py")
    }
    imports = {name: _imports(path) & names.keys() for name, path in names.items()}
    reached = {name: _reached(name, imports) for name in names}
    assert not {name for name in names if name in reached[name]}


def _imports(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _reached(start, imports):
    reached, waiting = set(), [start]
    while waiting:
        further = imports[waiting.pop()] - reached
        reached |= further
        waiting += further
    return reached
