"""Several tasks on one encoder, each with a head of its own."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry("multi_task", recipes={"multi_task": f"{__name__}.recipe.RECIPE"})
