"""`Key`, the definition of a recipe key."""

import dataclasses
import math
from collections.abc import Collection
from typing import Any


@dataclasses.dataclass(frozen=True)
class Key:
    """The definition of a recipe key.

    Attributes:
        default: the value where no recipe sets the key; its type is the key's type. A type means "not set".
        meaning: a description of one line.
        choices: the allowed values; () = any value of the type.
        least: the smallest allowed value (inclusive), None = no limit.
        above: the exclusive lower limit, None = no limit.
        below: the exclusive upper limit, None = no limit.
    """

    default: Any
    meaning: str
    choices: Collection[str] = ()
    least: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def type(self) -> type:
        """Return the type of the key's values."""
        return self.default if isinstance(self.default, type) else type(self.default)

    @property
    def value(self) -> Any:
        """Return the default value; None where the key is not set."""
        return None if isinstance(self.default, type) else self.default

    def limits(self) -> str:
        """Return the range in words, such as `at least 0 and below 1`; "" = no limits."""
        if self.above == -math.inf:
            return "a finite number"
        limits = (("at least", self.least), ("more than", self.above), ("below", self.below))
        return " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)

    def allowed(self) -> str:
        """Return the allowed values in words, such as `float, at least 0` or `one of token, word, span`."""
        if self.choices:
            return "one of " + ", ".join(choice or '""' for choice in self.choices)
        return ", ".join(filter(None, (self.type.__name__, self.limits())))

    def in_range(self, value: float) -> bool:
        """Return whether a number is in the range; NaN never is, and infinity only where the key has no limits."""
        if not self.limits():
            return True
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and value < (math.inf if self.below is None else self.below)
        )
