"""Find the TensorFlow checkpoint in a directory."""

import re

from bert_jax import storage
from bert_jax.conversion.formats import sstables
from bert_jax.errors import InputError

_LONGEST_STATE = 2**16  # maximum size of the file `checkpoint`, in bytes


def tf1_indices(directory: storage.Path) -> list[storage.Path]:
    """Return the index files of checkpoints in a directory, including damaged ones with data files beside them."""
    beside = sorted(directory.iterdir())
    return [
        path
        for path in beside
        if path.name.endswith(".index")
        and (any(other.name.startswith(f"{path.name[:-6]}.data-") for other in beside) or _is_table(path))
    ]


def index_of(directory: storage.Path) -> storage.Path | None:
    """Return the index of the checkpoint in a directory, or None if there is none.

    Raises:
        InputError: there are several checkpoints, and the file `checkpoint` names none of them.
    """
    indices = tf1_indices(directory)
    latest = _latest(directory / "checkpoint")
    named = [path for path in indices if path.name == f"{latest}.index"]
    if len(indices) > 1 and not named:
        names = ", ".join(path.name for path in indices[:5])
        raise InputError(
            f"{directory}: expected one TensorFlow checkpoint, or a file `checkpoint` that names one, found {names}"
        )
    return next(iter(named or indices), None)


def old_checkpoint(directory: storage.Path) -> storage.Path | None:
    """Return a checkpoint of the older format V1, which is not supported, or None if there is none."""
    return next((path for path in sorted(directory.iterdir()) if ".ckpt" in path.name and _is_table(path)), None)


def _is_table(path: storage.Path) -> bool:
    """Return whether a file is an SSTable, as TensorFlow writes them."""
    if not path.is_file() or path.size() < 48:
        return False
    with path.open("rb") as file:
        file.seek(-8, 2)
        return sstables.is_table(file.read(8))


def _latest(state: storage.Path) -> str | None:
    """Return the name of the checkpoint in the file `checkpoint`, without the directory of the original machine."""
    if not state.is_file() or state.size() > _LONGEST_STATE:
        return None
    match = re.search(rb'^model_checkpoint_path: "([^"\n]*)"', state.read_bytes(), re.MULTILINE)
    return re.split(r"[/\\]", match[1].decode(errors="replace"))[-1] if match else None
