"""`setting`, which declares a field of `BertConfig` or of a part: default, meaning, range, and what may set it.

Checks, docstrings, recipe keys and the page docs/api/config.md are derived from the declarations.
"""

import dataclasses
import inspect
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from bert_jax.errors import InputError, did_you_mean, printable

LARGEST_SIZE = 2**31 - 1
_MOST_SHOWN = 80  # characters of a value in a message
_TYPES: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, str, tuple)}


@dataclasses.dataclass(frozen=True)
class Setting:
    """The declaration of a config field.

    Attributes:
        meaning: a description of one line.
        least: the smallest allowed number (inclusive), None = no limit.
        above: the exclusive lower limit, None = no limit.
        below: the exclusive upper limit, None = no limit.
        most: the largest allowed number (inclusive).
        choices: the allowed values; () = any value of the type.
        shapes: whether it sets the shapes or the meaning of parameters, so that models from `init_from` keep it.
        recipe: whether a recipe may set it as `model.NAME`; None = as `shapes`; or a mapping of arguments of its `Key`.
        in_json: whether its value must survive a round trip through `config.json`.
        synonyms: its names in other libraries, separated by spaces, for hints.
        annotation: its type as a string, such as `int | None`.
    """

    meaning: str = ""
    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float = LARGEST_SIZE
    choices: Collection[str] = ()
    shapes: bool = False
    recipe: Mapping[str, Any] | bool | None = None
    in_json: bool = True
    synonyms: str = ""
    annotation: str = ""

    @property
    def type(self) -> type | None:
        """Return the type of values that are not None, if it is a built-in type."""
        return _TYPES.get(self.annotation.split(" ")[0].split("[")[0])

    @property
    def in_recipes(self) -> bool:
        """Return whether a recipe may set it."""
        return self.shapes if self.recipe is None else bool(self.recipe)

    def check(self, value: Any, label: str) -> None:
        """Raise InputError when a value is not allowed; the message begins with `label`."""
        if value is None and self.annotation.endswith("| None"):
            return
        value_text = printable(repr(value), _MOST_SHOWN)
        if self.choices:
            if value not in self.choices:
                raise InputError(f"{label} {value_text} is not known{did_you_mean(str(value), self.choices)}")
        elif self.type in (bool, int, float) and not self._allows(value):
            raise InputError(f"{label} must be {self._expected()}, found {value_text}")
        elif self.type is int and value > self.most:
            raise InputError(f"{label} must be at most {self.most}, found {value_text}")

    def _allows(self, value: Any) -> bool:
        """Return whether a value has the type and is within the limits; an integer may be above `most`."""
        return (
            (type(value) is self.type or (self.type, type(value)) == (float, int))
            and (self.type is int or abs(value) <= self.most)  # false for NaN
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def _expected(self) -> str:
        if self.type is bool:
            return "true or false"
        if (self.least, self.below) == (0, 1):
            return "a rate in [0, 1)"
        integer = self.type is int
        if self.below is None and (self.above == 0 or self.least == 0 or (integer and self.least == 1)):
            sign = "non-negative" if self.least == 0 else "positive"
            return f"a {sign} {'integer' if integer else 'number'}"
        limits = {"at least": self.least, "above": self.above, "below": self.below}
        words = [f"{word} {limit}" for word, limit in limits.items() if limit is not None]
        return ", ".join(["an integer" if integer else "a number", *words])


def setting(default: Any, meaning: str, *, compare: bool = True, **declared: Any) -> Any:
    """Declare a field of a `Declared` dataclass; `declared` are further attributes of `Setting`.

    A field with `compare=False` is ignored in comparisons.
    """
    metadata = {"setting": Setting(meaning, **declared)}
    return dataclasses.field(default=default, compare=compare, repr=compare, metadata=metadata)


class Declared:
    """A dataclass whose declarations check its fields and describe them in its docstring."""

    declared: ClassVar[Mapping[str, Setting]] = {}  # field name -> its setting

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        declared = {name: s for base in reversed(cls.__mro__[1:]) for name, s in getattr(base, "declared", {}).items()}
        for name, kind in inspect.get_annotations(cls).items():
            annotation = kind if isinstance(kind, str) else inspect.formatannotation(kind)
            if "ClassVar" not in annotation:
                metadata = getattr(vars(cls).get(name), "metadata", {})
                declared[name] = dataclasses.replace(metadata.get("setting", Setting()), annotation=annotation)
        cls.declared = declared
        lines = [f"    {name}: {setting.meaning}." for name, setting in declared.items()]
        text = inspect.cleandoc(cls.__doc__ or cls.__name__)
        cls.__doc__ = "\n".join([text, "", "Attributes:", *lines]) if lines else text

    def __post_init__(self) -> None:
        for name, setting in self.declared.items():
            setting.check(getattr(self, name), f"model config: {name}")
