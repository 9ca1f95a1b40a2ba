"""Run by tests: works with copies of the package, each without the file or folder of one family.

Usage: without_a_family.py FOLDER ORACLE FAMILY_FILE... ORACLE is a file of tests, or "". In a process of its own for
each copy, forked after the imports of other libraries: imports every module, opens a directory of each family that is
gone, and runs ORACLE.
"""

import importlib
import os
import pkgutil
import shutil
import sys
import traceback
from pathlib import Path

import pytest

import bert_jax

ROOT = Path(__file__).parents[2]


def import_all() -> list[str]:
    """Imports every module of the package, and returns their names."""
    names = [info.name for info in pkgutil.walk_packages(bert_jax.__path__, "bert_jax.")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    return names


def forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "bert_jax"]:
        del sys.modules[name]


def check(copy: Path, oracle: str, file: str, gone: list[str]) -> None:
    """In a forked process: the copy works without the family's file, and says what it lacks."""
    forget()
    sys.path.insert(0, str(copy))
    global bert_jax
    bert_jax = importlib.import_module("bert_jax")
    assert Path(bert_jax.__file__).is_relative_to(copy), bert_jax.__file__
    assert f"bert_jax.families.{file}" not in import_all()
    families = importlib.import_module("bert_jax.families").FAMILIES
    assert "bert" in families and not {*gone} & {*families}, {*families}
    for family in gone:
        directory = copy / "models" / family
        directory.mkdir(parents=True)
        (directory / "config.json").write_text(f'{{"model_type": "{family}"}}')
        try:
            bert_jax.BertConfig.from_pretrained(directory)
        except bert_jax.InputError as error:
            assert "is not supported" in str(error) and "\n" not in str(error), error
        else:
            raise AssertionError(f"{family} was opened")
    assert not oracle or pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-x", oracle]) == 0


def main(folder: Path, oracle: str, files: list[str]) -> int:
    import_all()
    families = bert_jax.families.FAMILIES
    of_file = {file: list(families._read(file)) for file in files}
    for file in files:
        copy = folder / file
        shutil.copytree(ROOT / "bert_jax", copy / "bert_jax", symlinks=True)
        (copy / "configs").symlink_to(ROOT / "configs")
        path = copy / "bert_jax" / "families" / file
        shutil.rmtree(path) if path.is_dir() else path.with_suffix(".py").unlink()
        shutil.rmtree(copy / "bert_jax" / "families" / "__pycache__", ignore_errors=True)
        child = os.fork()
        if not child:
            try:
                check(copy, oracle, file, of_file[file])
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            print(f"without {file}: see above", file=sys.stderr)
            return 1
        shutil.rmtree(copy)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
