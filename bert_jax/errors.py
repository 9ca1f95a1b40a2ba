"""The one error for input that does not fit, what makes its text fit for a terminal, and the name that was meant."""

import difflib
import re
from collections.abc import Iterable

MAX_MESSAGE = 500  # characters of an error or of a line of a log
_MAX_CHOICES = 200  # characters of a list of choices
# Control characters other than tab and newline, the separators and controls that change the order or the line that
# text is shown in, byte order marks, and lone surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


class InputError(ValueError):
    """What the user gave does not fit: the message says in one line what was expected, found, and where.

    The message is made `printable`, since it quotes what the user gave.
    """

    def __init__(self, message: object = ""):
        super().__init__(printable(str(message)))


def printable(text: str, limit: int = MAX_MESSAGE) -> str:
    """Return `text` fit for a terminal or a log.

    Control characters (tab and newline aside), bidirectional controls and lone surrogates are written as escapes, such
    as `\\x1b`; of a text longer than `limit` characters the middle is replaced by its length.
    """
    if len(text) > limit:
        cut = f" ... ({len(text):,} characters) ... "
        tail = (limit - len(cut)) // 3
        text = text[: limit - len(cut) - tail] + cut + text[len(text) - tail :]
    escaped = _UNPRINTABLE.sub(_escape, text)
    return escaped if len(escaped) <= limit or escaped == text else printable(escaped, limit)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Returns `"; did you mean 'x'?"` for the choice nearest to `name`, or the choices themselves when none is near."""
    choices = sorted(choices)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5) if len(name) <= _MAX_CHOICES else []
    if near:
        return f"; did you mean {near[0]!r}?"
    shown = ""
    for count, choice in enumerate(choices):
        if len(shown) + len(choice) > _MAX_CHOICES and count:
            return f"; known: {shown} and {len(choices) - count} more"
        shown += f"{', ' if shown else ''}{choice}"
    return f"; known: {shown}"
