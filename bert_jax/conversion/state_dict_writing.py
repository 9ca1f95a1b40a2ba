"""Convert the canonical parameter tree to a Hugging Face state dict, one tensor at a time."""

import functools
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.formats.lazy_tensors import LazyTensor, Tensors
from bert_jax.conversion.model_tensors import (
    buffers_of,
    by_tensor,
    dtypes_of,
    flatten_params,
    names_of,
    shapes_of,
    slot_view,
    slots_of,
    untied_biases,
)  # fmt: skip
from bert_jax.conversion.slots import Slot
from bert_jax.conversion.state_dict import Matched, checked_tensor, fresh_params
from bert_jax.errors import InputError
from bert_jax.head_names import GLINER_HEAD
from bert_jax.modeling import Bert, Params


def to_huggingface(config: BertConfig, head: str, params: Params) -> dict[str, np.ndarray]:
    """Convert parameters to the state dict of the Hugging Face class for `head`: float32, tied tensors once.

    Raises:
        InputError: the parameters do not fit config and head.
    """
    tensors = stored_params(config, head, params, np.dtype(np.float32))
    return {name: tensor.read() for name, tensor in tensors.items()}


def stored_params(config: BertConfig, head: str, params: Params, dtype: np.dtype) -> Tensors:
    """Convert parameters to a state dict of lazy tensors of `dtype`, each computed when it is read.

    Raises:
        InputError: the parameters do not fit config and head.
    """
    model = Bert(config, head)
    slots_by_name, shapes = by_tensor(slots_of(model)), shapes_of(model)
    kinds, leaves = dtypes_of(model), flatten_params(params)
    for path in sorted(shapes.keys() | leaves.keys()):
        if path not in leaves or path not in shapes or leaves[path].shape != shapes[path]:
            expected = f"shape {list(shapes[path])}" if path in shapes else "no such parameter"
            found = f"shape {list(leaves[path].shape)}" if path in leaves else "none"
            raise InputError(f"parameter {path!r} of head {head!r}: expected {expected}, found {found}")
    tensors = {}
    for name, parts in slots_by_name.items():
        kind = kinds[parts[0].path]
        tensors[name] = _from_leaves(leaves, parts, dtype if kind == np.float32 else kind)
    return _as_written(tensors, model, dtype)


def stored_tensors(model: Bert, matched: Matched, seed: int, dtype: np.dtype, where: storage.Path) -> Tensors:
    """Convert the tensors of a model's files to a state dict of lazy tensors of `dtype`, without a parameter tree.

    The result equals `stored_params` of what `read_params` returns. The model is not quantized.
    """
    tensors = {}
    for name, parts in matched.parts.items():
        tensors[name] = checked_tensor(matched.tensors[name], parts[0], np.dtype(np.float32), dtype, where)
    if matched.missing:
        fresh = fresh_params(model, matched, seed)
        for name, parts in by_tensor(slots_of(model)).items():
            if name in matched.missing:
                tensors[name] = _from_leaves(fresh, parts, dtype)
    return _as_written(tensors, model, dtype)


def _from_leaves(leaves: dict[str, Any], parts: list[Slot], dtype: np.dtype) -> LazyTensor:
    def read() -> np.ndarray:
        views = [slot_view(np.asarray(leaves[slot.path]), slot) for slot in parts]
        return _joined(views, parts[0].blocks).astype(dtype, copy=False)

    return LazyTensor(parts[0].shape, dtype, read)


def _as_written(tensors: Tensors, model: Bert, dtype: np.dtype) -> Tensors:
    """Return tensors as in the family's files: with buffers such as sinusoids, and without a bare encoder's prefix."""
    names = names_of(model)
    tensors |= {name: tensors[original] for name, original in untied_biases(model) if original in tensors}
    for name, values in buffers_of(model):
        tensors[name] = LazyTensor(values.shape, dtype, functools.partial(values.astype, dtype))
    if names.architecture_of(model.head) == names.architectures["encoder"]:
        tensors = {name.removeprefix(names.prefix): tensor for name, tensor in tensors.items()}
    if model.head == GLINER_HEAD:
        from bert_jax.conversion.gliner_files import GLINER_ENCODER, GLINER_NAMES

        own = {name: tensor for name, tensor in tensors.items() if name.startswith(GLINER_NAMES)}
        encoder = {f"{GLINER_ENCODER}{name}": tensor for name, tensor in tensors.items() if name not in own}
        tensors = encoder | own
    return tensors


def _joined(views: list[np.ndarray], blocks: int) -> np.ndarray:
    """Join the parts of a Hugging Face tensor along its first axis, block by block."""
    if len(views) == 1:
        return views[0]
    rest = views[0].shape[1:]
    return np.concatenate([view.reshape(blocks, -1, *rest) for view in views], axis=1).reshape(-1, *rest)
