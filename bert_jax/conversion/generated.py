"""What `bert_jax.json` records of a model of masked diffusion: how long the answers of its training were."""

import dataclasses
from typing import Any

from bert_jax import storage
from bert_jax.conversion.file_names import RECORD
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Generated:
    """The answers of the training of masked diffusion.

    Attributes:
        length: the most tokens of an answer, with the end-of-text tokens behind it.
        fill: one of `bert_jax.data.finetuning.answers.ANSWER_FILLS`.
        lengths: at index n, the number of answers with n tokens, one end-of-text token included.
    """

    length: int
    fill: str
    lengths: tuple[int, ...]


def read_generated(directory: storage.PathLike) -> Generated | None:
    """Read the record of a model directory; None if there is none.

    Raises:
        InputError: the file is invalid.
    """
    path = storage.Path(directory) / RECORD
    return generated_of(storage.read_json(path).get("generated"), path) if path.exists() else None


def generated_of(value: Any, path: storage.Path) -> Generated | None:
    """Return the record as an object; None if there is none. Raises InputError when it is invalid."""
    match value:
        case None:
            return None
        case {"length": int(length), "fill": str(fill), "lengths": list(lengths)} if length > 1:
            if all(isinstance(count, int) and count >= 0 for count in lengths):
                return Generated(length, fill, tuple(lengths))
    raise InputError(
        f"{path}: generated: expected length (at least 2), fill (a string) and lengths (a list of counts), found "
        f"{repr(value)[:80]}"
    )
