"""The one error for input that does not fit, and how it finds the name that was probably meant."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """What the user gave does not fit: the message says in one line what was expected, found, and where."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Returns `"; did you mean 'x'?"` for the choice nearest to `name`, or the choices themselves when none is near."""
    choices = sorted(choices)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(choices)}"
