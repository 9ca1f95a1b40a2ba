"""The record of masked diffusion in `bert_jax.json`: the length of the training answers."""

import dataclasses
from typing import Any

from bert_jax import storage
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Generated:
    """The length of the answers on which a model of masked diffusion was trained.

    Attributes:
        length: maximum number of tokens in an answer, including the end-of-text tokens behind it.
        fill: one of `bert_jax.tasks.masked_diffusion.data.ANSWER_FILLS`.
        lengths: at index n, the number of answers with n tokens, including one end-of-text token.
    """

    length: int
    fill: str
    lengths: tuple[int, ...]


def generated_of(value: Any, path: storage.Path) -> Generated:
    """Parse the record `generated` of a file. Raises InputError when it is invalid."""
    match value:
        case {"length": int(length), "fill": str(fill), "lengths": list(lengths)} if length > 1:
            if all(isinstance(count, int) and count >= 0 for count in lengths):
                return Generated(length, fill, tuple(lengths))
    raise InputError(
        f"{path}: generated: expected length (at least 2), fill (a string) and lengths (a list of counts), found "
        f"{repr(value)[:80]}"
    )
