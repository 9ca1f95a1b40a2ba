"""Copies of the package without some of its files, each tried in a forked process."""

import importlib
import os
import pkgutil
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import bert_jax

ROOT = Path(__file__).parents[1]


def import_all() -> list[str]:
    """Imports every module of the package, and returns their names."""
    names = [info.name for info in pkgutil.walk_packages(bert_jax.__path__, "bert_jax.")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    return names


def _import_copy(copy: Path) -> list[str]:
    """Imports every module of a copy in place of the package's, and returns their names."""
    for name in [name for name in sys.modules if name.split(".")[0] == "bert_jax"]:
        del sys.modules[name]
    sys.path.insert(0, str(copy))
    global bert_jax
    bert_jax = importlib.import_module("bert_jax")
    assert Path(bert_jax.__file__).is_relative_to(copy), bert_jax.__file__
    return import_all()


def try_without(path: str, folder: Path, check: Callable[[Path, list[str]], None]) -> bool:
    """Tries a copy of the package without `path`, a file or a folder; returns whether `check` raised nothing.

    `check` is called in a forked process with the copy's folder and the names of its modules, which are all imported.
    No backend of JAX may have been initialised before.
    """
    copy = folder / path.replace("/", "_")
    shutil.copytree(ROOT / "bert_jax", copy / "bert_jax", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "configs").symlink_to(ROOT / "configs")
    gone = copy / "bert_jax" / path
    shutil.rmtree(gone) if gone.is_dir() else gone.with_suffix(".py").unlink()
    child = os.fork()
    if not child:
        try:
            check(copy, _import_copy(copy))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    failed = os.waitpid(child, 0)[1]
    if failed:
        print(f"without {path}: see above", file=sys.stderr)
    shutil.rmtree(copy)
    return not failed
