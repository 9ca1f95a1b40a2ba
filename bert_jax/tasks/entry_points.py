"""Find the tasks of other packages by their entry points."""

import functools
from collections.abc import Callable, Iterable
from importlib import metadata

from bert_jax.errors import InputError
from bert_jax.tasks.entry import TaskEntry

_GROUP = "bert_jax.tasks"  # group of the entry points: name -> `module:ENTRY`


@functools.cache
def of_entry_points(package_tasks: Callable[[], Iterable[TaskEntry]]) -> tuple[TaskEntry, ...]:
    """Return the tasks of entry points; `package_tasks` returns those of this package.

    Raises:
        InputError: an entry point cannot be imported, names no `TaskEntry` or one of another name, or `check_new`
            refuses the task.
    """
    return tuple(_loaded(point, package_tasks()) for point in metadata.entry_points(group=_GROUP))


def _loaded(point: metadata.EntryPoint, package_tasks: Iterable[TaskEntry]) -> TaskEntry:
    where = f"{_GROUP}: entry point {point.name!r}"
    try:
        entry = point.load()
    except Exception as error:
        raise InputError(f"{where}: {type(error).__name__}: {error}") from error
    if not isinstance(entry, TaskEntry) or entry.name != point.name:
        name = entry.name if isinstance(entry, TaskEntry) else repr(entry)[:80]
        raise InputError(f"{where}: expected the TaskEntry of that name, found {name}")
    check_new(entry, package_tasks, where)
    return entry


def check_new(entry: TaskEntry, package_tasks: Iterable[TaskEntry], where: str) -> None:
    """Raise InputError when a new task reuses a name of this package, or its head while neither has a record."""
    names = {"name": [entry.name], "record": [entry.record.name] if entry.record is not None else []}
    names |= {"recipes": [*entry.recipes], "pipelines": [*entry.pipelines, *entry.aliases]}
    for ours in package_tasks:
        taken = {"name": [ours.name], "record": [ours.record.name] if ours.record is not None else []}
        taken |= {"recipes": [*ours.recipes], "pipelines": [*ours.pipelines, *ours.aliases]}
        for field in names:
            for name in {*names[field]} & {*taken[field]}:
                raise InputError(f"{where}: {field}: expected a new name, found {name!r}, which bert_jax has")
        heads = {*entry.evaluators} & {*ours.evaluators} | {*entry.examples} & {*ours.examples}
        if heads and entry.record is None and ours.record is None:
            raise InputError(f"{where}: expected a record, which decides between tasks of one head, found none; "
                             f"{ours.name} of bert_jax has the head {min(heads)!r} too")  # fmt: skip
