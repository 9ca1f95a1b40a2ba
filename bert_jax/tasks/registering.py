"""Add a task of another package."""

from bert_jax.tasks import TASKS
from bert_jax.tasks.entry import TaskEntry
from bert_jax.tasks.entry_points import check_new


def register_task(entry: TaskEntry) -> None:
    """Add a task of your own, which then trains, evaluates and predicts like those of this package.

    Args:
        entry: the task. Its names must be new; a task that was registered before is replaced.

    Raises:
        InputError: a name is that of a task of this package.
    """
    check_new(entry, TASKS.package_tasks(), "register_task")
    TASKS.registered[entry.name] = entry
