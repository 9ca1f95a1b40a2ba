"""The function `pipeline`: a task and a model as a callable from texts to answers."""

import os
from typing import Any

import jax

from bert_jax.conversion.model_kinds import has_modules
from bert_jax.errors import InputError, did_you_mean
from bert_jax.head_names import ENCODER_DECODER_HEAD
from bert_jax.inference.base import Pipeline
from bert_jax.inference.registry import PIPELINES, pipeline_class
from bert_jax.storage import Path, hub
from bert_jax.tasks import TASKS


def pipeline(
    task: str,
    model: Any,
    dtype: str = "auto",
    batch_size: int | None = None,
    device: str | int | jax.Device | None = None,
    batch_invariant: bool = False,
    **options: Any,
) -> Any:
    """Return a pipeline: a callable from texts to answers.

    Args:
        task: one of `PIPELINES`, or an alias of one, such as `classify` or `ner`. If the model returns sparse
            embeddings or a vector for each token, `embed`, `similarity` and `search` use these.
        model: a model directory (as for `from_pretrained`, or of an encoder-decoder), or a loaded model.
        dtype: dtype of matrix products for a model directory (as for `from_pretrained`).
        batch_size: maximum number of texts per forward pass; None = chosen for the device.
        device: one of `jax.devices()`, its number, or a name such as `cpu`, `gpu`, `cuda:1` or `tpu:0`; -1 is the CPU;
            `all` splits each batch among the devices of this process. None means JAX's default device.
        batch_invariant: whether an answer is bitwise independent of the other texts of the call; see `Pipeline`.
        options: defaults for the options of calls, such as `aggregation_strategy` or `top_k`.

    Raises:
        InputError: the task is not known, or the model was not trained for it.
    """
    kind, chosen, place = _kind(task, model), model, None
    if device is not None:
        from bert_jax.inference import devices

        place = devices.find_devices(device)
    if isinstance(model, (str, os.PathLike)):
        if place is not None and dtype == "auto":
            dtype = "float32" if place[0].platform == "cpu" else "bfloat16"
        chosen = kind.load_model(model, dtype, task)
    elif model.head != kind.head:
        from bert_jax.inference import other_heads

        chosen = other_heads.with_head(model, kind.head, task)
    if place is not None:
        chosen = devices.on_devices(chosen, place)
    return kind(chosen, batch_size, batch_invariant=batch_invariant, **options)


def _kind(task: str, model: Any) -> type[Pipeline]:
    """Return the class for a task and a model. Raises InputError when the task is not known."""
    name = task if task in PIPELINES else TASKS.find("aliases", task)
    if name is None:
        known = [*PIPELINES, *(alias for entry in TASKS.entries() for alias in entry.aliases)]
        raise InputError(f"task {task!r} is not known{did_you_mean(task, known)}")
    kind: type[Pipeline] = PIPELINES[name]
    head = getattr(model, "head", None)  # a path has no head
    if head == ENCODER_DECODER_HEAD != kind.head:
        raise InputError(f"{task} needs a model with a {kind.head} head, found an encoder-decoder")
    if kind.head == "sentence_embedding":
        return pipeline_class(name, _embedding_head(hub.locate(model)) if head is None else head)
    return kind


def _embedding_head(root: Path) -> str | None:
    """Return the head of a sentence-transformers directory, one of `EMBEDDING_HEADS`; None for other models."""
    if not has_modules(root):
        return None
    from bert_jax.conversion import sentence_transformers

    return sentence_transformers.embedding_head(root)
