"""Hide the regular expressions of a tokenizer.json from the library, unless they are known to take linear time."""

import re
from collections.abc import Iterator
from typing import Any

from bert_jax.errors import InputError

PARTS = ("normalizer", "pre_tokenizer", "decoder")  # parts of a tokenizer.json that may have patterns
_SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")
_MAX_PARTS = 1000  # limit of parts in a normalizer, pre_tokenizer or decoder
# Patterns of common tokenizers, known to take linear time.
_KNOWN = frozenset(
    {
        r"\s",
        r"\s+",
        " {2,}",
        r"\p{N}",
        r"\p{N}+",
        r"\p{N}{1,3}",
        r"[0-9]",
        r"\p{Mn}",
        "''",
        r"[\x00\x{fffd}\p{Cc}\p{Cf}&&[^\t\n\r]]",  # the pattern of `backends.bert_normalizer`
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        *(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+"
            for digits in (r"\p{N}", r"\p{N}{1,3}")
        ),
    }
)
_LITERALS = re.compile(r"(?:[^\\*+?{}()\[\].^$]|\\[^\w\s])*")  # alternatives without repetition, such as residues
# A String pattern with this prefix replaces a Regex: the library compiles and runs a string in linear time.
_HIDDEN = "\U0010fffd regular expression: "


def parts_of(part: Any, name: str) -> Iterator[dict[str, Any]]:
    """Yield the parts of a normalizer, pre_tokenizer or decoder, including those of nested sequences."""
    stack, count = [part], 0
    while stack:
        part = stack.pop()
        count += 1
        if count > _MAX_PARTS:
            raise InputError(f"{name}: expected at most {_MAX_PARTS} parts, found more")
        inner = next((part[key] for key in _SEQUENCES if key in part), None) if isinstance(part, dict) else None
        if isinstance(inner, list):
            stack += reversed(inner)
        elif isinstance(part, dict):
            yield part


def hide_patterns(content: dict[str, Any]) -> None:
    """In a tokenizer.json, replace regular expressions that may take more than linear time by strings, in place."""
    for pattern in _patterns(content):
        text = pattern.get("Regex")
        if isinstance(text, str) and text not in _KNOWN and not _LITERALS.fullmatch(text):
            pattern.clear()
            pattern["String"] = _HIDDEN + text


def restore_patterns(content: dict[str, Any]) -> bool:
    """Undo `hide_patterns` in place; return whether there was a hidden pattern."""
    restored = False
    for pattern in _patterns(content):
        text = pattern.get("String")
        if isinstance(text, str) and text.startswith(_HIDDEN):
            pattern.clear()
            pattern["Regex"] = text.removeprefix(_HIDDEN)
            restored = True
    return restored


def _patterns(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in PARTS:
        for part in parts_of(content.get(name), name):
            if isinstance(part.get("pattern"), dict):
                yield part["pattern"]
