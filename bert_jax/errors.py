"""`InputError` for invalid input, printable text for terminals, logs and tables, and `did you mean` hints."""

import difflib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

MAX_MESSAGE = 500  # maximum characters in an error message or a log line
_MAX_CHOICES = 200  # maximum characters in a list of choices
# Control characters except tab and newline, line separators, bidirectional controls, byte order marks, and lone
# surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


class InputError(ValueError):
    """Invalid input from the user; the message says in one line what was expected, what was found, and where.

    The message quotes what the user gave, so it is made `printable`, and newlines are written as escapes.
    """

    def __init__(self, message: object = ""):
        super().__init__(printable(str(message).replace("\n", "\\n")))


class TextError(InputError):
    """An invalid text in a list of texts.

    Attributes:
        number: number of the text, from 0.
        problem: what was expected and what was found.
    """

    def __init__(self, number: int, problem: object):
        super().__init__(f"text {number}: {problem}")
        self.number, self.problem = number, problem


class PrintableLogger(logging.LoggerAdapter):
    """A logger whose records are each one line of `printable` text."""

    def __init__(self, name: str):
        super().__init__(logging.getLogger(name))
        self._warned: set[str] = set()

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        if self.isEnabledFor(level):
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller's line, not this one
            super().log(level, "%s", printable(one_line(str(msg) % args if args else str(msg))), **kwargs)

    def warn_once(self, message: str) -> None:
        """Log a warning, once per message."""
        if message not in self._warned:
            self._warned.add(message)
            self.warning("%s", message, stacklevel=2)


def logger(name: str) -> PrintableLogger:
    """Return the logger of a module, whose messages are made `printable` since they may quote input."""
    return PrintableLogger(name)


def one_line(text: str) -> str:
    """Return `text` with each run of whitespace replaced with one space."""
    return " ".join(text.split())


def printable_lines(text: str) -> str:
    """Make each line of a text, such as a traceback, `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def printable(text: str, limit: int = MAX_MESSAGE) -> str:
    """Return `text` with control characters escaped, for terminals and logs.

    Control characters (except tab and newline), bidirectional controls and lone surrogates become escapes such as
    `\\x1b`. The middle of a text over `limit` characters is replaced by the text's length.
    """
    if len(text) > limit:
        cut = f" ... ({len(text):,} characters) ... "
        tail = (limit - len(cut)) // 3
        text = text[: limit - len(cut) - tail] + cut + text[len(text) - tail :]
    escaped = escape_controls(text)
    return escaped if len(escaped) <= limit or escaped == text else printable(escaped, limit)


def escape_controls(text: str) -> str:
    """Escape the same characters of `text` as `printable`, but keep its full length."""
    return _UNPRINTABLE.sub(_escape, text)


def printable_json(value: Any, **options: Any) -> str:
    """Return `value` as JSON that escapes only the characters that `printable` escapes.

    A JSON parser gets the exact text, and a terminal gets no control sequences.

    Args:
        value: the value.
        options: options of `json.dumps`.
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def did_you_mean(name: str, choices: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """Return `"; did you mean 'x'?"` for the choice that `name` probably means, or the choices if none is similar.

    A choice that other libraries call `name` comes first, then the only choice that begins with `name`, then a choice
    of similar spelling. Names that differ only in digits, such as v4 and v7, are not similar.

    Args:
        name: what the user wrote.
        choices: the valid names.
        synonyms: choice -> its names in other libraries, separated by spaces, in addition to `bert_jax.synonyms`.
    """
    from bert_jax.synonyms import names_here

    choices = sorted(choices)
    near = names_here(name, choices, synonyms) if len(name) <= _MAX_CHOICES else []
    if not near and len(name) <= _MAX_CHOICES:
        alike = [choice for choice in choices if not _differ_in_digits(name, choice)]
        completions = [choice for choice in alike if len(name) > 3 and choice.startswith(name)]
        near = completions if len(completions) == 1 else difflib.get_close_matches(name, alike, n=1, cutoff=0.6)
    if near:
        *most, last = map(repr, near)
        return f"; did you mean {', '.join(most)} or {last}?" if most else f"; did you mean {last}?"
    shown = ""
    for count, choice in enumerate(choices):
        if len(shown) + len(choice) > _MAX_CHOICES and count:
            return f"; known: {shown} and {len(choices) - count} more"
        shown += f"{', ' if shown else ''}{choice}"
    return f"; known: {shown}"


def _differ_in_digits(name: str, choice: str) -> bool:
    """Return whether two names have the same letters but different digits; the order of digits does not count."""
    letters = [re.sub(r"\d", "", text.lower()) for text in (name, choice)]
    digits = [sorted(re.findall(r"\d", text)) for text in (name, choice)]
    return letters[0] == letters[1] and digits[0] != digits[1]
