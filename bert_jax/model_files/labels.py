"""The classes of a config.json: id2label, label2id and num_labels, checked against each other."""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import InputError, logger, printable

MOST_CLASSES = 1_000_000
_MAX_VALUE = 80  # maximum number of characters of a value in a message
_log = logger(__name__)


def read_classes(content: Mapping[str, Any], where: object) -> tuple[int | None, tuple[str, ...] | None]:
    """Return the number of classes and their names, each None if config.json does not have it.

    For generic names (LABEL_0, LABEL_1, ...) the names are None.

    Raises:
        InputError: id2label is no map from 0, 1, ... to names, or label2id or num_labels contradicts it.
    """
    names = _by_number(content.get("id2label"))
    numbers = _by_name(content.get("label2id"))
    count = content.get("num_labels")
    if count is not None and (type(count) is not int or not 1 <= count <= MOST_CLASSES):
        raise InputError(f"num_labels: expected 1 to {MOST_CLASSES}, found {_shown(count)}")
    if names is None and numbers and not _is_generic(numbers):
        names = _by_number({number: name for name, number in numbers.items()}) if _is_whole(numbers) else None
        if names:
            _log.warning("%s: found no id2label; the class names are taken from label2id", where)
    if names is None:
        return count, None
    if count is not None and count != len(names):
        raise InputError(f"num_labels is {count}, but id2label names {len(names)} classes")
    _check_agree(names, numbers, where)
    generic = names == tuple(f"LABEL_{i}" for i in range(len(names)))
    return len(names), None if generic else names


def _by_number(labels: Any) -> tuple[str, ...] | None:
    """Return the names in id2label in the order of their numbers."""
    if labels is None or labels == {}:
        return None
    if not isinstance(labels, Mapping):
        raise InputError(f"id2label: expected an object that maps class numbers to names, found {_shown(labels)}")
    if len(labels) > MOST_CLASSES:
        raise InputError(f"id2label: expected at most {MOST_CLASSES} classes, found {len(labels)}")
    names: dict[int, str] = {}
    for key, name in labels.items():
        text = str(key)
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InputError(f"id2label: expected the numbers 0, 1, ... as keys, found {_shown(key)}")
        if int(text) in names:
            raise InputError(f"id2label: expected each number once, found {int(text)} twice")
        if not isinstance(name, str):
            raise InputError(f"id2label: expected a name for class {text}, found {_shown(name)}")
        names[int(text)] = name
    gap = next((i for i in range(len(names)) if i not in names), None)
    if gap is not None:
        raise InputError(f"id2label: expected the numbers 0 to {len(names) - 1}, found {max(names)} but no {gap}")
    return tuple(names[i] for i in range(len(names)))


def _by_name(labels: Any) -> dict[str, int] | None:
    """Return label2id with integer values, which some old files have as strings."""
    if labels is None or labels == {}:
        return None
    if not isinstance(labels, Mapping):
        raise InputError(f"label2id: expected an object of names and numbers, found {_shown(labels)}")
    numbers = {}
    for name, number in labels.items():
        if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) < 10:
            number = int(number)
        if type(number) is not int or number < 0:
            raise InputError(f"label2id: expected a number for {_shown(name)}, found {_shown(number)}")
        numbers[name] = number
    return numbers


def _check_agree(names: tuple[str, ...], numbers: dict[str, int] | None, where: object) -> None:
    """Raise InputError when a name has different numbers in label2id and id2label."""
    strangers, ours = [], {name: i for i, name in enumerate(names)}
    for name, number in (numbers or {}).items():
        if name not in ours:
            strangers.append(name)
        elif number >= len(names) or names[number] != name:
            raise InputError(f"label2id: expected {ours[name]} for {_shown(name)} as in id2label, found {number}")
    if strangers and numbers and not _is_generic(numbers):
        _log.warning("%s: label2id has class %s, which id2label lacks; id2label is used", where, _shown(strangers[0]))


def _is_generic(numbers: Mapping[str, int]) -> bool:
    return all(name == f"LABEL_{number}" for name, number in numbers.items())


def _is_whole(numbers: Mapping[str, int]) -> bool:
    return sorted(numbers.values()) == list(range(len(numbers)))


def _shown(value: Any) -> str:
    return printable(repr(value), _MAX_VALUE)
