"""Open a model directory: `from_pretrained`."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from bert_jax import storage
from bert_jax.conversion.load_pretrained import load_pretrained
from bert_jax.conversion.model_kinds import ConfigLike, is_file
from bert_jax.conversion.model_tokenizer import open_tokenizer
from bert_jax.errors import InputError, logger, printable
from bert_jax.forks import check_fork
from bert_jax.inference.model import PretrainedModel
from bert_jax.modeling import Compute, resolved_dtype
from bert_jax.tokenization import has_tokenizer

_log = logger(__name__)


def from_pretrained(
    path: storage.PathLike,
    head: str | None = None,
    dtype: str = "auto",
    *,
    num_labels: int | None = None,
    id2label: Mapping[Any, str] | Sequence[str] | None = None,
    task: str | None = None,
    config: ConfigLike | None = None,
    tokenizer: storage.PathLike | None = None,
) -> PretrainedModel:
    """Load a model directory in the Hugging Face layout, or a file of weights, as a callable model.

    Args:
        path: as for `huggingface.load_pretrained`.
        head: one of `modeling.HEADS`; None means the saved head. For another head, the parameters that the files lack
            are freshly initialised, with a warning.
        dtype: dtype of matrix products: `float32`, `bfloat16`, or `auto` (bfloat16 on accelerators, float32 on CPU).
        num_labels: number of classes of a freshly initialised head.
        id2label: names of the classes, by number or in order; for a trained head, new names of its classes.
        task: for a model with one adapter per task (Jina Embeddings v3), the task whose adapter is used and whose
            prompt becomes the default, such as `retrieval.query`. None = as the model's files say, "" = none.
        config: the config of a file of weights: a `config.json`, its directory, a dict of its values, or a
            `BertConfig`. None = the `config.json` beside the file; without one, the tensors determine the sizes.
        tokenizer: a vocabulary file or a directory with a tokenizer; None = the one beside the config or the weights.

    Raises:
        InputError: a file is missing or damaged, or the number of classes does not fit the head.
    """
    model = load_model(path, head, dtype, classes(num_labels, id2label), task, config, tokenizer)
    if model.missing:
        fresh = f"{path} has no trained {head} head; freshly initialised: {', '.join(model.missing)}"
        warnings.warn(printable(fresh), stacklevel=2)
    return model


def classes(num_labels: int | None, id2label: Mapping[Any, str] | Sequence[str] | None) -> int | tuple[str, ...] | None:
    """Return the names of the classes, or their number if they have no names; None if neither is given.

    Raises:
        InputError: the keys are not 0, 1, ..., a name is not a string, or the number of names is not `num_labels`.
    """
    if id2label is None:
        return num_labels
    if isinstance(id2label, Mapping):
        by_number = {str(number): name for number, name in id2label.items()}
        names = [by_number.get(str(i)) for i in range(len(id2label))]
    else:
        names = list(id2label)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"id2label: expected a name for each of the numbers 0, 1, ..., found {id2label!r}")
    if num_labels not in (None, len(names)):
        raise InputError(f"id2label: expected {num_labels} names (num_labels), found {len(names)}")
    return tuple(map(str, names))


def load_model(
    path: storage.PathLike,
    head: str | None,
    dtype: str,
    classes: int | tuple[str, ...] | None = None,
    task: str | None = None,
    config: ConfigLike | None = None,
    tokenizer: storage.PathLike | None = None,
) -> PretrainedModel:
    """Load a model as `from_pretrained` does, without its warning."""
    check_fork()
    compute = Compute(dtype=resolved_dtype(dtype))
    loaded = load_pretrained(path, head, classes=classes, task=task, config=config, tokenizer=tokenizer)
    if loaded.unused and (config is not None or is_file(path)):
        _log.warning("%s: unused parameters are left out: %s", path, ", ".join(sorted(loaded.unused)))
    opened = open_tokenizer(loaded) if has_tokenizer(loaded.directory) else None
    return PretrainedModel(
        loaded.config,
        loaded.head,
        jax.device_put(loaded.params),
        opened,
        compute,
        max_length=loaded.settings.longest(loaded.config.max_position_embeddings, opened),
        settings=loaded.settings,
        missing=tuple(loaded.missing),
    )
