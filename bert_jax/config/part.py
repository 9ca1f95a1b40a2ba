"""`ModelPart`, what fills a place of the encoder: a value with the settings of its own."""

import dataclasses
from typing import Any, ClassVar, Self, TypeVar

from bert_jax.config.fields import Declared

_Kind = TypeVar("_Kind", bound="ModelPart")


@dataclasses.dataclass(frozen=True)
class ModelPart(Declared):
    """What fills a place of the encoder. `check` compares its settings with each other and with the config's fields."""

    kind: ClassVar[str] = ""  # how `config.json` and recipes name it, where one key chooses it

    def builds(self) -> str:
        """Return the class that computes the part, by module and name, which is imported when a model is built."""
        return ""

    def check(self, config: Any) -> None:
        """Raise InputError when the settings do not fit together, or do not fit the config."""

    def canonical(self, config: Any) -> Self:
        """Return the part with the one value that its settings have in a config of this architecture."""
        return self


def expect(part: ModelPart, kind: type[_Kind]) -> _Kind:
    """Return a part in code that only parts of a kind reach."""
    assert isinstance(part, kind), part
    return part
