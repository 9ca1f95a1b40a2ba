"""Run by tests: works with copies of the package, each without the file or folder of one family.

Usage: without_a_family.py FOLDER ORACLE FAMILY_FILE... ORACLE is a file of tests, or "". In a process of its own for
each copy, forked after the imports of other libraries: imports every module, opens a directory of each family that is
gone, and runs ORACLE. The folder of `package_copies` is on PYTHONPATH.
"""

import functools
import sys
from pathlib import Path

import pytest
from package_copies import import_all, try_without


def check(oracle: str, file: str, gone: list[str], copy: Path, modules: list[str]) -> None:
    """The copy works without the family's file, and says what it lacks."""
    import bert_jax
    from bert_jax.families import FAMILIES

    assert f"bert_jax.families.{file}" not in modules
    assert "bert" in FAMILIES and not {*gone} & {*FAMILIES}, {*FAMILIES}
    for family in gone:
        directory = copy / "models" / family
        directory.mkdir(parents=True)
        (directory / "config.json").write_text(f'{{"model_type": "{family}"}}')
        with pytest.raises(bert_jax.InputError, match="is not supported") as error:
            bert_jax.BertConfig.from_pretrained(directory)
        assert "\n" not in str(error.value)
    assert not oracle or pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-x", oracle]) == 0


def main(folder: Path, oracle: str, files: list[str]) -> int:
    import_all()
    from bert_jax.families import FAMILIES

    of_file = {file: list(FAMILIES._read(file)) for file in files}
    checks = ((file, functools.partial(check, oracle, file, of_file[file])) for file in files)
    return int(not all(try_without(f"families/{file}", folder, each) for file, each in checks))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
