"""The tasks: each is a folder here or comes from another package, and `TASKS` finds it by name.

A folder's `__init__.py` describes the task in a `TaskEntry`; its other modules are imported when they are used.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bert_jax.lazy import lazy_attributes
from bert_jax.tasks.entry import TaskEntry, load_reference

if TYPE_CHECKING:
    from bert_jax.tasks.record import Record

__all__ = ["TASKS", "Record", "TaskEntry", "TaskObjects", "register_task"]

__getattr__, __dir__ = lazy_attributes(
    __name__, {"bert_jax.tasks.record": ("Record",), "bert_jax.tasks.registering": ("register_task",)}
)


class _Tasks(Mapping[str, TaskEntry]):
    """The tasks by name: the folders here, those of entry points, and those of `register_task`."""

    def __init__(self) -> None:
        folders = (info.name for info in pkgutil.iter_modules(__path__) if info.ispkg)
        self._folders = sorted(folders, key=lambda name: (name != "pretraining", name))
        self.registered: dict[str, TaskEntry] = {}  # tasks added by `register_task`

    def __getitem__(self, name: str) -> TaskEntry:
        for entry in self.entries():
            if entry.name == name:
                return entry
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (entry.name for entry in self.entries())

    def __len__(self) -> int:
        return sum(1 for _ in self.entries())

    def package_tasks(self, first: str = "") -> Iterator[TaskEntry]:
        """Import and yield the tasks of this package; folders whose name is part of `first` come first."""
        folders = sorted(self._folders, key=lambda name: name not in first.replace("-", "_"))
        return (importlib.import_module(f"{__name__}.{name}").TASK for name in folders)

    def entries(self, first: str = "") -> Iterator[TaskEntry]:
        """Yield all tasks; `first` as for `package_tasks`."""
        yield from self.package_tasks(first)
        from bert_jax.tasks.entry_points import of_entry_points

        others = {entry.name: entry for entry in of_entry_points(self.package_tasks)}
        yield from (others | self.registered).values()  # the module of an entry point may register its task too

    def find(self, field: str, name: object) -> Any:
        """Look `name` up in a mapping field of `TaskEntry`, over all tasks; None if no task has it."""
        entries = self.entries(first=str(name))
        return next((names[name] for entry in entries if name in (names := getattr(entry, field))), None)


TASKS = _Tasks()


class TaskObjects(Mapping[str, Any]):
    """Mapping over one field of all tasks: name -> object, which is imported on lookup."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __getitem__(self, name: str) -> Any:
        if (reference := TASKS.find(self._field, name)) is None:
            raise KeyError(name)
        return load_reference(reference)

    def __contains__(self, name: object) -> bool:
        return TASKS.find(self._field, name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for entry in TASKS.entries() for name in getattr(entry, self._field)))

    def __len__(self) -> int:
        return sum(1 for _ in self)
