"""Parse untrusted JSON in bounded time and memory."""

import collections
import functools
import json
from typing import Any

from bert_jax.errors import InputError, printable
from bert_jax.storage.paths import PathLike
from bert_jax.storage.reading import read_text

MAX_JSON_BYTES = 256 << 20  # a tokenizer.json of 250,000 tokens has 17 MB


def parse_json(text: str, where: object = "JSON", surrogates: bool = False, unique_keys: bool = False) -> Any:
    """Parse a JSON text.

    Args:
        text: the JSON.
        where: name of the text in messages.
        surrogates: whether half a surrogate pair is allowed, for callers that check each string themselves.
        unique_keys: whether a repeated key is an error; otherwise its last value is used.

    Raises:
        InputError: the text is not JSON, is nested too deeply, or has an integer of thousands of digits or half a
            surrogate pair.
    """
    try:
        value = json.loads(text, object_pairs_hook=functools.partial(_object, where) if unique_keys else None)
    except InputError:
        raise
    except json.JSONDecodeError as error:
        found = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise InputError(f"{where}: expected JSON, found {found}") from None
    except RecursionError:
        raise InputError(f"{where}: expected JSON, found a value that is nested too deeply") from None
    except ValueError:  # Python's own limit on the digits of an integer
        raise InputError(f"{where}: expected JSON, found an integer of thousands of digits") from None
    if "\\u" in text and not surrogates:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InputError(f"{where}: expected Unicode text, found half a surrogate pair") from None
    return value


def _object(where: object, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        twice = collections.Counter(names).most_common(1)[0][0]
        raise InputError(f"{where}: expected each key once, found {printable(repr(twice), 80)} twice")
    return content


def read_json(path: PathLike, unique_keys: bool = False) -> dict[str, Any]:
    """Read the JSON object in a file; `unique_keys` as for `parse_json`.

    Raises:
        InputError: the file is missing, larger than `MAX_JSON_BYTES`, or no JSON object.
    """
    value = parse_json(read_text(path, MAX_JSON_BYTES), path, unique_keys=unique_keys)
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
