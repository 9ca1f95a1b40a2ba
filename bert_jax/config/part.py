"""`ModelPart`, a replaceable part of the encoder, such as its positions, with settings of its own."""

import dataclasses
from typing import Any, ClassVar, Self, TypeVar

from bert_jax.config.fields import Declared

_Kind = TypeVar("_Kind", bound="ModelPart")


@dataclasses.dataclass(frozen=True)
class ModelPart(Declared):
    """A replaceable part of the encoder. `check` compares its settings with each other and with the config's fields."""

    kind: ClassVar[str] = ""  # value that selects this part in `config.json` and recipes

    def builds(self) -> str:
        """Return the import path of the class that computes the part, imported when a model is built."""
        return ""

    def check(self, config: Any) -> None:
        """Raise InputError when the settings do not fit together, or do not fit the config."""

    def canonical(self, config: Any) -> Self:
        """Return the part with its settings normalised, so that equal architectures have equal configs."""
        return self


def expect(part: ModelPart, kind: type[_Kind]) -> _Kind:
    """Narrow the type of `part` to `kind`, in code that runs only for parts of that kind."""
    assert isinstance(part, kind), part
    return part
