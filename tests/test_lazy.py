"""Imports on first use: of modules, of attributes of packages, and of entries of registries."""

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import bert_jax
from bert_jax.lazy import LazyModule, LazyRegistry, lazy_attributes

PACKAGE = Path(bert_jax.__file__).parent
LAZY_PACKAGES = ("evaluation", "inference", "modeling", "storage", "tasks", "tokenization")


def test_a_module_is_imported_when_an_attribute_is_read():
    code = """
import sys
from bert_jax.lazy import LazyModule, LazyRegistry
module = LazyModule("wave")
registry = LazyRegistry({"a": "wave.Wave_write", "b": "wave.Error"})
assert list(registry) == ["a", "b"] and len(registry) == 2 and "a" in registry and "c" not in registry
assert "wave" not in sys.modules
assert registry["b"] is module.Error
assert "wave" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_missing_is_an_error():
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        LazyModule("json").missing  # noqa: B018
    assert not hasattr(LazyModule("missing"), "__wrapped__")  # which is not imported for it
    with pytest.raises(AttributeError, match="module 'package' has no attribute 'missing'"):
        lazy_attributes("package", {"json": ("loads",)})[0]("missing")
    with pytest.raises(KeyError):
        LazyRegistry({})["missing"]


@pytest.mark.parametrize("name", LAZY_PACKAGES)
def test_the_names_of_a_package_are_all_there(name):
    package = importlib.import_module(f"bert_jax.{name}")
    for public in package.__all__:
        assert getattr(package, public) is not None
    assert set(package.__all__) <= set(dir(package))
    modules = {path.stem for path in (PACKAGE / name).glob("*.py")}
    assert not modules & set(package.__all__), "an imported module would take the place of the name"


def test_every_entry_of_the_pipelines_is_there():
    from bert_jax.inference.registry import PIPELINES, pipeline_class
    from bert_jax.tasks import TASKS

    for name, kind in PIPELINES.items():
        assert kind.head, name
    for entry in TASKS.values():
        assert entry.aliases.keys().isdisjoint(PIPELINES) and {*entry.aliases.values()} <= entry.pipelines.keys()
        for head in entry.pipelines_of_head:
            names = ("sentence-embedding", "similarity", "search")
            assert all(pipeline_class(name, head).head == head for name in names)


def test_every_entry_of_the_tasks_is_there():
    from bert_jax.recipes.keys import TASK_RECIPES
    from bert_jax.tasks import TASKS
    from bert_jax.tasks.entry import load_reference

    for recipe in TASK_RECIPES.values():
        assert callable(load_reference(recipe.build))
    for name, entry in TASKS.items():
        assert entry.name == name
        assert all(load_reference(place).head == head for head, place in entry.evaluators.items())
        assert entry.record is None or callable(load_reference(entry.record.read))
        assert all(hasattr(importlib.import_module(module), "add_verbs") for module in entry.verbs)


def test_lazy_modules_are_those_that_the_type_checker_reads():
    """`x = LazyModule("a.x")` is beside `from a import x`, under which the type checker knows it."""
    lazy = [text for path in sorted(PACKAGE.rglob("*.py")) if "LazyModule(" in (text := path.read_text())]
    assert len(lazy) > 10
    for text in lazy:
        check_lazy_modules(ast.parse(text))


def check_lazy_modules(tree):
    assigned = {
        node.targets[0].id: ast.literal_eval(node.value.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "LazyModule"
        and isinstance(node.targets[0], ast.Name)
    }
    typed = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert all(typed.get(name) == module for name, module in assigned.items())
    for module in assigned.values():
        assert importlib.util.find_spec(module) is not None
