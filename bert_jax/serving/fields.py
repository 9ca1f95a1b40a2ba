"""Read the fields of a request: their types are checked, and errors say what was expected and found."""

from collections.abc import Sequence
from typing import Any

from bert_jax.serving.refusals import Reason, Refusal


def flag(body: dict[str, Any], name: str, default: bool) -> bool:
    """Return a boolean field; null and absence mean the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong(name, "true or false", value)
    return value


def integer(body: dict[str, Any], name: str, least: int, most: int) -> int | None:
    """Return an integer field from `least` to `most`; None if it is null or absent."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise wrong(name, f"an integer from {least} to {most}", value)
    return value


def string(body: dict[str, Any], name: str) -> str | None:
    """Return a string field; None if it is null or absent."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong(name, "a string", value)
    return value


def choice(body: dict[str, Any], name: str, choices: Sequence[str], default: str) -> str:
    """Return a field that is one of `choices`; null and absence mean the default."""
    value = body.get(name)
    if value is None:
        return default
    if value not in choices:
        raise wrong(name, f"one of {', '.join(choices)}", value)
    return str(value)


def texts(value: Any, name: str) -> list[str]:
    """Return a list of strings. Raises `Refusal` when it is none."""
    if not isinstance(value, list):
        raise wrong(name, "a list of strings", value)
    for number, text in enumerate(value):
        if not isinstance(text, str):
            raise wrong(f"{name}[{number}]", "a string", text)
    return value


def texts_or_ids(value: Any, name: str) -> tuple[list[str], list[list[int]], bool]:
    """Return texts, or texts as token ids, and whether the field is a single one.

    The field is a string, a list of strings, a list of integers (one text), or a list of lists of integers.

    Returns:
        The texts, the lists of token ids (one of the two is empty), and whether the field is a single text.
    """
    if isinstance(value, str):
        return [value], [], True
    if isinstance(value, list) and value:
        types = set(map(type, value))  # lists of a million values are checked without a call for each
        if types == {int}:
            return [], [value], True
        if types == {str}:
            return value, [], False
        if types == {list} and all(set(map(type, item)) <= {int} for item in value):
            return [], value, False
    raise wrong(name, "a string, a list of strings, or lists of token ids", value)


def wrong(name: str, expected: str, found: Any) -> Refusal:
    """Return the error of a field that is not as expected."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null or nothing"}
    if isinstance(found, int | float) and not isinstance(found, bool):
        shown = str(found)[:40]
    elif isinstance(found, str) and len(found) <= 40:
        shown = repr(found)
    elif isinstance(found, list) and not found:
        shown = "an empty list"
    elif isinstance(found, list):
        shown = f"a list of {len(found)} items"
    else:
        shown = kinds.get(type(found), type(found).__name__)
    return Refusal(Reason.INVALID, f"{name}: expected {expected}, found {shown}")
