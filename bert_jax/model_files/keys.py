"""The type of a key in a JSON file of a model directory: honoured, harmless or refused."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from bert_jax.errors import InputError, logger, printable

_EMPTY: tuple[Any, ...] = (None, False, "", [], {}, 0)  # values of an unknown key that say nothing
_MAX_VALUE = 60  # characters of a value in a message
_log = logger(__name__)
_named: set[tuple[str, str]] = set()


@dataclasses.dataclass(frozen=True)
class FileKey:
    """What is done with one key.

    Attributes:
        name: the key, as the file spells it.
        fate: `honoured`: the model's answers follow it. `harmless`: no answer depends on it. `refused`: an answer
            depends on it and we cannot give that answer, so a value that is none of `defaults` is an error.
        says: what the key means, and for one that is not honoured why; a sentence without its full stop.
        defaults: of a refused key, the values that change nothing.
    """

    name: str
    fate: Literal["honoured", "harmless", "refused"]
    says: str
    defaults: tuple[Any, ...] = (None,)


def honoured(name: str, says: str) -> FileKey:
    """A key that the model's answers follow."""
    return FileKey(name, "honoured", says)


def harmless(name: str, says: str) -> FileKey:
    """A key that no answer depends on."""
    return FileKey(name, "harmless", says)


def refused(name: str, says: str, *defaults: Any) -> FileKey:
    """A key whose only accepted values are None and `defaults`."""
    return FileKey(name, "refused", says, (None, *defaults))


def check_keys(content: Mapping[str, Any], table: Iterable[FileKey], where: object) -> None:
    """Compare the keys of a file with its table.

    A key that is not in the table and whose value is not empty is named in a warning, once for each file.

    Args:
        content: the file's JSON object.
        table: its keys.
        where: the file, for messages.

    Raises:
        InputError: a refused key has a value that changes the model's answers.
    """
    known = {key.name: key for key in table}
    unknown = []
    for name, value in content.items():
        key = known.get(name)
        if key is None:
            if not any(value is empty or value == empty for empty in _EMPTY):
                unknown.append(name)
        elif key.fate == "refused" and value not in key.defaults:
            found = printable(repr(value), _MAX_VALUE)
            expected = " or ".join(repr(default) for default in key.defaults if default is not None) or "none"
            raise InputError(f"{where}: {name}: expected {expected}, found {found}: {key.says}")
    fresh = [name for name in unknown if (str(where), name) not in _named]
    _named.update((str(where), name) for name in fresh)
    if fresh:
        shown = ", ".join(f"{name}={content[name]!r}" for name in fresh)
        _log.warning("%s: keys that are not known here, and not applied: %s", where, printable(shown))
