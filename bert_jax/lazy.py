"""Import modules, attributes of packages and entries of registries on first use."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

_T = TypeVar("_T")


def import_object(place: str) -> Any:
    """Return the object `package.module.name`, importing its module."""
    module, _, name = place.rpartition(".")
    return getattr(importlib.import_module(module), name)


class LazyModule:
    """A module that is imported when one of its attributes is first read."""

    def __init__(self, name: str) -> None:
        """Create the module from its full name."""
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # special attributes, which tools look up on any object
            raise AttributeError(f"a lazy module has no attribute {name!r}")
        return getattr(importlib.import_module(self._name), name)


def lazy_attributes(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that imports a module when one of its names is first used.

    Args:
        package: `__name__` of the package, or of a module.
        modules: full name of another module -> the names that it defines.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name]), name)

    return attribute, lambda: sorted({*vars(sys.modules[package]), *module_of})


class LazyRegistry(Mapping[str, _T]):
    """A read-only mapping from names to objects, which are imported on lookup."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """Create the mapping.

        Args:
            places: name -> where the object is defined, as `package.module.name`.
        """
        self._places = dict(places)

    def __getitem__(self, name: str) -> _T:
        definition: _T = import_object(self._places[name])
        return definition

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
