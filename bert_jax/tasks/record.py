"""`Record`, an entry of `bert_jax.json` in the model directories of a task."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Record:
    """An entry of `bert_jax.json` in the model directories of a task.

    Attributes:
        name: the key in the file.
        head: the head of these models.
        meaning: what the entry says, in one line.
        read: a function of the entry's JSON value and the file's path that returns a dataclass, or raises InputError;
            or its `package.module.name`.
    """

    name: str
    head: str
    meaning: str
    read: Any
