"""The classes of pipelines by name, which are imported on first use."""

from collections.abc import Mapping
from typing import Any

from bert_jax.tasks import TASKS, TaskObjects

# Name -> the class of the pipeline.
PIPELINES: Mapping[str, type[Any]] = TaskObjects("pipelines")


def pipeline_class(name: str, head: str | None) -> type[Any]:
    """Return the class of a pipeline, one of `PIPELINES`, for a model that was saved with `head`."""
    kind = PIPELINES[name]
    if head in (None, kind.head):
        return kind
    prefix = TASKS.find("pipelines_of_head", head)
    return PIPELINES.get(f"{prefix}-{name.removeprefix('sentence-')}", kind) if prefix else kind
