"""Read the parameter tree of a model from the tensors of its files, one tensor at a time."""

from typing import NamedTuple

import jax
import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.formats.lazy_tensors import LazyTensor, Tensors
from bert_jax.conversion.model_tensors import (
    PREDICTS_TOKENS,
    buffers_of,
    by_tensor,
    dtypes_of,
    flatten_params,
    names_of,
    nest,
    shapes_of,
    slot_view,
    slots_of,
    untied_biases,
)  # fmt: skip
from bert_jax.conversion.slots import PLACEHOLDERS, Slot, numbers_of
from bert_jax.errors import InputError
from bert_jax.families.names import Names
from bert_jax.modeling import Bert, Params

# Parameters of a trained BERT are far smaller than this; a flipped exponent bit makes them far larger.
_LARGEST_PLAUSIBLE = 1e6
# Parameters that a new model computes from its config, and that files may therefore lack.
_COMPUTED = ("encoder/inverse_frequencies",)


def _part(values: np.ndarray, slot: Slot) -> np.ndarray:
    """Return the part of a Hugging Face tensor that a parameter holds; `_joined` is the inverse."""
    index, count = slot.part
    if count == 1:
        return values
    rest = values.shape[1:]
    return values.reshape(slot.blocks, count, -1, *rest)[:, index].reshape(-1, *rest)


class Matched(NamedTuple):
    """The mapping from the tensors of a model's files to its parameters.

    Attributes:
        tensors: the tensors of the files.
        parts: name of a tensor -> the parameters that it holds.
        missing: name of a tensor that the files lack -> path of the parameter to initialise.
        used: names of the tensors that the model uses.
    """

    tensors: Tensors
    parts: dict[str, list[Slot]]
    missing: dict[str, str]
    used: set[str]


def match(model: Bert, tensors: Tensors, fresh_head: bool, where: storage.Path) -> Matched:
    """Map the tensors of a model's files to its parameters, and check tied tensors.

    Args:
        model: the model.
        tensors: the tensors of its files.
        fresh_head: whether parameters outside embeddings and encoder may be missing.
        where: the file to name in messages.

    Raises:
        InputError: a tensor is missing, belongs to a layer that the model lacks, or differs from its tied tensor.
    """
    names = names_of(model)
    tensors = tensors | {original: tensors[name] for name, original in untied_biases(model) if name in tensors}
    missing: dict[str, str] = {}
    present = []
    for slot in slots_of(model):
        if slot.name in tensors:
            present.append(slot)
        elif slot.path in _COMPUTED or (fresh_head and not slot.path.startswith(("embeddings/", "encoder/"))):
            missing[slot.name] = slot.path
        else:
            some = next(iter(tensors), "nothing")
            raise InputError(f"{where}: expected a tensor {slot.name!r}, found none (found, for example, {some!r})")
    parts = by_tensor(present)
    used = set(parts)
    for name, values in buffers_of(model):
        if name in tensors:
            _check_sinusoids(name, tensors, values, where)
            used.add(name)
    if model.head in PREDICTS_TOKENS:
        used |= _check_tied(names, tensors, used, where)
    _check_layers(names, tensors, model.config, where)
    return Matched(tensors, parts, missing, used)


def read_params(model: Bert, matched: Matched, seed: int, where: storage.Path) -> Params:
    """Read the model's parameters, float32 if not quantized, and initialise missing ones with `seed`.

    Raises:
        InputError: a tensor's shape differs from the parameter's, or it is not floating point, or it is damaged.
    """
    # Parameters that no file has keep these values; zeros take memory only when they are written to.
    kinds = dtypes_of(model)
    leaves = {
        path: (np.ones if path.endswith("/scale") else np.zeros)(shape, kinds[path])
        for path, shape in shapes_of(model).items()
    }
    for name, parts in matched.parts.items():
        values = checked_tensor(matched.tensors[name], parts[0], kinds[parts[0].path], None, where).read()
        for slot in parts:
            slot_view(leaves[slot.path], slot)[...] = _part(values, slot)
    if matched.missing:
        leaves |= fresh_params(model, matched, seed)
    return nest(leaves)


def fresh_params(model: Bert, matched: Matched, seed: int) -> dict[str, np.ndarray]:
    paths = set(matched.missing.values())
    fresh = jax.jit(lambda key: {path: leaf for path, leaf in flatten_params(model.init(key)).items() if path in paths})
    return {path: np.asarray(leaf) for path, leaf in fresh(jax.random.key(seed)).items()}


def checked_tensor(
    tensor: LazyTensor, slot: Slot, kind: np.dtype, dtype: np.dtype | None, where: storage.Path
) -> LazyTensor:
    """Check a tensor's shape and dtype; return it with its values checked and cast to `dtype` when it is read.

    If the parameter's dtype `kind` is float32, the tensor may have any floating-point dtype; otherwise, only `kind`.
    """
    if 0 in tensor.shape and 0 not in slot.shape:
        raise InputError(
            f"{where}: tensor {slot.name!r}: expected {list(slot.shape)}, found {list(tensor.shape)}, as when "
            "DeepSpeed (ZeRO stage 3) stores the parameters in other files; run zero_to_fp32.py in the checkpoint's "
            "folder, and open its output"
        )
    if tensor.shape != slot.shape:
        raise InputError(
            f"{where}: tensor {slot.name!r} does not have the shape that config.json implies: "
            f"expected {list(slot.shape)}, found {list(tensor.shape)}"
        )
    is_float = kind == np.float32
    if tensor.dtype.name not in (("float32", "float16", "bfloat16", "float64") if is_float else (kind.name,)):
        expected = "floating point" if is_float else f"{kind.name}, as quantization_config says"
        raise InputError(f"{where}: tensor {slot.name!r}: expected {expected}, found {tensor.dtype.name}")

    def read() -> np.ndarray:
        values = tensor.read()
        # NumPy has no maximum of float8.
        numbers = values if is_float or values.dtype.kind in "iu" else values.astype(np.float32)
        largest = max(float(numbers.max(initial=0)), -float(numbers.min(initial=0)))
        if not largest < _LARGEST_PLAUSIBLE:  # also true for NaN
            raise InputError(
                f"{where}: tensor {slot.name!r}: expected finite parameters, found {largest}; the file is damaged"
            )
        return values if dtype is None else values.astype(dtype, copy=False)

    return LazyTensor(tensor.shape, tensor.dtype if dtype is None else dtype, read)


def _check_tied(names: Names, tensors: Tensors, used: set[str], where: storage.Path) -> set[str]:
    """Check that tied tensors equal their originals; return the tied names that the files have."""
    present = set()
    for name, original in names.tied:
        if name not in tensors or name in used or original not in used:
            continue
        if tensors[name] is not tensors[original] and not _equal(tensors[name], tensors[original]):
            raise InputError(
                f"{where}: tensor {name!r}: expected the same values as tensor {original!r}, to which it is tied, "
                "found others"
            )
        present.add(name)
    return present


def _equal(a: LazyTensor, b: LazyTensor) -> bool:
    return a.shape == b.shape and np.array_equal(a.read(), b.read())


def _check_sinusoids(name: str, tensors: Tensors, table: np.ndarray, where: storage.Path) -> None:
    tensor = tensors[name].read()
    if tensor.shape != table.shape or not np.allclose(tensor, table, atol=1e-2):  # the file may be bfloat16
        raise InputError(f"{where}: tensor {name!r}: expected sinusoids as config.json says, found other values")


def _check_layers(names: Names, tensors: Tensors, config: BertConfig, where: storage.Path) -> None:
    for name in tensors:
        for placeholder, number in numbers_of(names, name).items():
            field, what = PLACEHOLDERS[placeholder]
            if number >= (limit := config.settings()[field]):
                raise InputError(f"{where}: expected {limit} {what} as config.json says, found tensor {name!r}")
