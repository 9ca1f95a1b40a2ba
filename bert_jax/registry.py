"""`Registry`: functions by name; those of this package are imported on lookup, other packages register theirs.

Other packages do so in modules that the entry points of the group `bert_jax.plugins` name. These modules are imported
when a registry is listed, or when a name is looked up that bert_jax does not define.
"""

import inspect
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any, TypeVar

from bert_jax.errors import InputError
from bert_jax.lazy import import_object

_T = TypeVar("_T")
PLUGINS = "bert_jax.plugins"  # group of entry points: any name -> a module
_imported: set[str] = set()


def import_plugins() -> None:
    """Import the modules of the entry points of `PLUGINS`, once. Raises InputError for one that cannot be imported."""
    if PLUGINS in _imported:
        return
    _imported.add(PLUGINS)
    for point in metadata.entry_points(group=PLUGINS):
        try:
            point.load()
        except Exception as error:
            _imported.discard(PLUGINS)  # so that the next lookup raises this error too
            raise InputError(f"{PLUGINS}: entry point {point.name!r}: {type(error).__name__}: {error}") from error


class Registry(Mapping[str, _T]):
    """The functions of one kind, such as schedules, by name; a registry equals only itself.

    Attributes:
        register: full name of the function that adds to the registry, for messages.
    """

    def __init__(self, register: str, definitions: Mapping[str, str]) -> None:
        """Create the registry.

        Args:
            register: full name of the function that adds to the registry, for messages.
            definitions: name -> where a function of this package is defined, as `package.module.name`.
        """
        self.register = register
        self._definitions = dict(definitions)
        self._registered: dict[str, _T] = {}

    def add(self, name: str, function: _T) -> None:
        """Register a function, or replace a registered one. Raises InputError for a name that bert_jax defines."""
        if not isinstance(name, str) or not name:
            raise InputError(f"{self.register}: expected a name, found {name!r}")
        if name in self._definitions:
            raise InputError(f"{self.register}: expected a new name, found {name!r}, which bert_jax has")
        self._registered[name] = function

    def registered_names(self, plugins: bool = True) -> tuple[str, ...]:
        """Return the names of registered functions; `plugins`: whether to import plugins first."""
        if plugins:
            import_plugins()
        return tuple(self._registered)

    def is_registered(self, name: str) -> bool:
        """Return whether a function was registered, rather than defined by this package."""
        return name in self.registered_names(plugins=name not in self._definitions)

    def meaning(self, name: str) -> str:
        """Return the first line of a function's docstring, without the full stop."""
        return (inspect.getdoc(self[name]) or "").partition("\n")[0].removesuffix(".")

    def __getitem__(self, name: str) -> _T:
        if name in self._definitions:
            definition: _T = import_object(self._definitions[name])
            return definition
        import_plugins()
        return self._registered[name]

    def __contains__(self, name: Any) -> bool:
        return name in self._definitions or self.is_registered(name)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._definitions, *self.registered_names()))

    def __len__(self) -> int:
        return len(self._definitions) + len(self.registered_names())

    def __bool__(self) -> bool:
        return True

    __eq__ = object.__eq__
    __hash__ = object.__hash__
