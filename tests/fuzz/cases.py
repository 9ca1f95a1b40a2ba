"""Cases by number, made from whole files; and those that have a name."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import pickle
import shutil
from collections.abc import Callable
from typing import Any

from hostile_inputs import NAMED
from mutations import Files, Mutator
from targets import KINDS

Seeds = dict[str, list[Files]]  # kind -> whole directories of it


@dataclasses.dataclass(frozen=True)
class Case:
    """What is tried.

    Attributes:
        what: in words.
        kind: one of `targets.KINDS`.
        files: of its directory.
        run: uses them.
        prepare: makes what is no file with a content, such as a pipe.
    """

    what: str
    kind: str
    files: Files
    run: Callable[[pathlib.Path], None]
    prepare: Callable[[pathlib.Path], Any] | None = None


_TURNS = [name for name, kind in KINDS.items() for _ in range(kind.share)]


def kind_of(name: int | str) -> str:
    """The kind of files that a case is about."""
    if isinstance(name, str):
        return NAMED[name].kind
    return _TURNS[name * 37 % len(_TURNS)]  # neighbours are of different kinds


def make(name: int | str, seeds: Seeds) -> Case:
    """The case of a number, or of a name of `NAMED`."""
    kind = kind_of(name)
    target = KINDS[kind]
    if isinstance(name, str):
        named = NAMED[name]
        files = named.files(seeds)
        return Case(name, kind, files, functools.partial(_run, named.run or target.run, named.number), named.prepare)
    mutator = Mutator(name, _all(seeds))
    whole = mutator.choice(seeds[kind])
    fixed = {file: content for file, content in whole.items() if target.fixed and file.startswith(target.fixed)}
    changed = mutator.files({file: content for file, content in whole.items() if file not in fixed})
    number = mutator.choice(range(120))  # how it is used does not go with the number's own remainders
    return Case("; ".join(mutator.done), kind, fixed | changed, functools.partial(_run, target.run, number))


def _run(run: Callable[[pathlib.Path, int], None], number: int, folder: pathlib.Path) -> None:
    run(folder, number)


_contents: list[bytes] = []


def _all(seeds: Seeds) -> list[bytes]:
    if not _contents:
        _contents.extend(content for kind in sorted(seeds) for files in seeds[kind] for content in files.values())
    return _contents


def written(folder: pathlib.Path, files: Files) -> pathlib.Path:
    """A fresh folder with these files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        with contextlib.suppress(OSError, ValueError):  # a file in the place of a folder; a name that is none
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def kept(path: pathlib.Path) -> Seeds:
    """Whole files of every kind, from the file that keeps them; it is made when it is missing."""
    if not path.exists():
        import seeds

        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_bytes(pickle.dumps(seeds.whole()))
        beside.replace(path)
    return pickle.loads(path.read_bytes())


def warm_up(seeds: Seeds, folder: pathlib.Path, group: str) -> None:
    """Uses whole files of each kind of a group, which must all be as they should: what is imported and compiled once
    counts for no case."""
    for name, kind in KINDS.items():
        for number in (0, 1) if kind.group == group else ():
            written(folder, seeds[name][0])
            kind.run(folder, number)
