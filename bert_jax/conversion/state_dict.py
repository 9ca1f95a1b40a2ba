"""Convert between the canonical parameter tree and a Hugging Face state dict, one tensor at a time."""

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import program_cache, storage
from bert_jax.config import BertConfig
from bert_jax.conversion.formats.lazy_tensors import LazyTensor, Tensors
from bert_jax.conversion.slots import GLINER_ENCODER, GLINER_NAMES, PLACEHOLDERS, Slot, numbers_of, slots
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES
from bert_jax.families.names import Names
from bert_jax.head_names import DECODER_HEAD, GLINER_HEAD
from bert_jax.modeling import Bert, Params
from bert_jax.modeling.positions import sinusoids

# Parameters of a trained BERT are far smaller than this; a flipped exponent bit makes them far larger.
_LARGEST_PLAUSIBLE = 1e6
# Parameters that a new model computes from its config, and that files may therefore lack.
_COMPUTED = ("encoder/inverse_frequencies",)
_WITH_PREDICTIONS = ("masked_lm", "pretraining", DECODER_HEAD)  # heads that predict tokens


def to_huggingface(config: BertConfig, head: str, params: Params) -> dict[str, np.ndarray]:
    """Convert parameters to the state dict of the Hugging Face class for `head`: float32, tied tensors once.

    Raises:
        InputError: the parameters do not fit config and head.
    """
    tensors = stored_params(config, head, params, np.dtype(np.float32))
    return {name: tensor.read() for name, tensor in tensors.items()}


def stored_params(config: BertConfig, head: str, params: Params, dtype: np.dtype) -> Tensors:
    """Convert parameters to a state dict of lazy tensors of `dtype`, each made when it is read.

    Raises:
        InputError: the parameters do not fit config and head.
    """
    model = Bert(config, head)
    slots_of, shapes = _by_name(_slots(model)), _shapes(model)
    kinds, leaves = _dtypes(model), _flatten(params)
    for path in sorted(shapes.keys() | leaves.keys()):
        if path not in leaves or path not in shapes or leaves[path].shape != shapes[path]:
            expected = f"shape {list(shapes[path])}" if path in shapes else "no such parameter"
            found = f"shape {list(leaves[path].shape)}" if path in leaves else "none"
            raise InputError(f"parameter {path!r} of head {head!r}: expected {expected}, found {found}")
    tensors = {}
    for name, parts in slots_of.items():
        kind = kinds[parts[0].path]
        tensors[name] = _from_leaves(leaves, parts, dtype if kind == np.float32 else kind)
    return _as_written(tensors, model, dtype)


def stored_tensors(model: Bert, matched: "Matched", seed: int, dtype: np.dtype, where: storage.Path) -> Tensors:
    """Convert the tensors of a model's files to a state dict of lazy tensors of `dtype`, without a parameter tree.

    The result equals `stored_params` of what `read_params` returns. The model is not quantized.
    """
    tensors = {}
    for name, parts in matched.parts.items():
        tensors[name] = _checked(matched.tensors[name], parts[0], np.dtype(np.float32), dtype, where)
    if matched.missing:
        fresh = _fresh(model, matched, seed)
        for name, parts in _by_name(_slots(model)).items():
            if name in matched.missing:
                tensors[name] = _from_leaves(fresh, parts, dtype)
    return _as_written(tensors, model, dtype)


def _slots(model: Bert) -> Iterator[Slot]:
    config = model.config
    shapes, heads = _shapes(model), config.num_attention_heads
    return slots(names_of(model), model.head, shapes, config.stack.layers_in_group, config.has_experts, heads)


def _by_name(found: Iterable[Slot]) -> dict[str, list[Slot]]:
    grouped: dict[str, list[Slot]] = {}
    for slot in found:
        grouped.setdefault(slot.name, []).append(slot)
    return grouped


def _from_leaves(leaves: dict[str, Any], parts: list[Slot], dtype: np.dtype) -> LazyTensor:
    def read() -> np.ndarray:
        views = [_view(np.asarray(leaves[slot.path]), slot) for slot in parts]
        return _joined(views, parts[0].blocks).astype(dtype, copy=False)

    return LazyTensor(parts[0].shape, dtype, read)


def _as_written(tensors: Tensors, model: Bert, dtype: np.dtype) -> Tensors:
    """Return tensors as the family's files hold them: with buffers, such as sinusoidal positions, besides the
    parameters, and in a bare encoder without the prefix of their names."""
    names = names_of(model)
    tensors |= {name: tensors[original] for name, original in _untied_biases(model) if original in tensors}
    for name, values in _buffers(model):
        tensors[name] = LazyTensor(values.shape, dtype, functools.partial(values.astype, dtype))
    if names.architecture_of(model.head) == names.architectures["encoder"]:
        tensors = {name.removeprefix(names.prefix): tensor for name, tensor in tensors.items()}
    if model.head == GLINER_HEAD:
        own = {name: tensor for name, tensor in tensors.items() if name.startswith(GLINER_NAMES)}
        encoder = {f"{GLINER_ENCODER}{name}": tensor for name, tensor in tensors.items() if name not in own}
        tensors = encoder | own
    return tensors


def names_of(model: Bert) -> Names:
    """Return the table of names of a model's family. Raises InputError when the family lacks the model's head."""
    names = FAMILIES[model.config.family].names
    if names.architecture_of(model.head) is None:
        heads = ", ".join(names.architectures)
        raise InputError(f"family {model.config.family} has no head {model.head!r}; it has {heads}")
    if not model.config.feed_forward.gated and names.not_gated is not None:
        return names.not_gated
    return names if model.config.heads.legacy else names.not_legacy or names


def _buffers(model: Bert) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the names and values of the tensors that files have besides the parameters."""
    config, names = model.config, names_of(model)
    if config.positions.kind == "sinusoidal":
        # Hugging Face's models look positions up in a table; with sinusoids in the table they compute the same.
        table = sinusoids(config.max_position_embeddings, config.embedding_width)
        yield f"{names.prefix}embeddings.position_embeddings.weight", table
    for name, values in names.buffers.items():
        yield name, values(config)


def _view(leaf: np.ndarray, slot: Slot) -> np.ndarray:
    """Return a view of a leaf as a foreign tensor (or its part), with the foreign axes; writes go to the leaf."""
    part = leaf if slot.layer is None else leaf[slot.layer]
    return part.T if slot.transpose else part


def _joined(views: list[np.ndarray], blocks: int) -> np.ndarray:
    """Join the parts of a foreign tensor along its first axis, block by block."""
    if len(views) == 1:
        return views[0]
    rest = views[0].shape[1:]
    return np.concatenate([view.reshape(blocks, -1, *rest) for view in views], axis=1).reshape(-1, *rest)


def _part(values: np.ndarray, slot: Slot) -> np.ndarray:
    """Return the part of a foreign tensor that a parameter holds; `_joined` is the inverse."""
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
        missing: name of a tensor that the files lack -> path of the parameter, which must be initialised.
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
    tensors = tensors | {original: tensors[name] for name, original in _untied_biases(model) if name in tensors}
    missing: dict[str, str] = {}
    found = []
    for slot in _slots(model):
        if slot.name in tensors:
            found.append(slot)
        elif slot.path in _COMPUTED or (fresh_head and not slot.path.startswith(("embeddings/", "encoder/"))):
            missing[slot.name] = slot.path
        else:
            some = next(iter(tensors), "nothing")
            raise InputError(f"{where}: expected a tensor {slot.name!r}, found none (found, for example, {some!r})")
    parts = _by_name(found)
    used = set(parts)
    for name, values in _buffers(model):
        if name in tensors:
            _check_sinusoids(name, tensors, values, where)
            used.add(name)
    if model.head in _WITH_PREDICTIONS:
        used |= _check_tied(names, tensors, used, where)
    _check_layers(names, tensors, model.config, where)
    return Matched(tensors, parts, missing, used)


def read_params(model: Bert, matched: Matched, seed: int, where: storage.Path) -> Params:
    """Read the model's parameters, float32 if not quantized, and initialise missing ones with `seed`.

    Raises:
        InputError: a tensor has another shape than the parameter, is not floating point, or is damaged.
    """
    # Parameters that no file has keep these values; zeros take memory only when they are written to.
    kinds = _dtypes(model)
    leaves = {
        path: (np.ones if path.endswith("/scale") else np.zeros)(shape, kinds[path])
        for path, shape in _shapes(model).items()
    }
    for name, parts in matched.parts.items():
        values = _checked(matched.tensors[name], parts[0], kinds[parts[0].path], None, where).read()
        for slot in parts:
            _view(leaves[slot.path], slot)[...] = _part(values, slot)
    if matched.missing:
        leaves |= _fresh(model, matched, seed)
    return nest(leaves)


def _fresh(model: Bert, matched: Matched, seed: int) -> dict[str, np.ndarray]:
    paths = set(matched.missing.values())
    fresh = jax.jit(lambda key: {path: leaf for path, leaf in _flatten(model.init(key)).items() if path in paths})
    return {path: np.asarray(leaf) for path, leaf in fresh(jax.random.key(seed)).items()}


def _checked(tensor: LazyTensor, slot: Slot, kind: np.dtype, dtype: np.dtype | None, where: storage.Path) -> LazyTensor:
    """Check a tensor's shape and dtype; return it with its values checked and cast to `dtype` when it is read.

    The tensor of a parameter of dtype `kind` float32 may be any floating point; a quantized one has its own dtype.
    """
    if 0 in tensor.shape and 0 not in slot.shape:
        raise InputError(
            f"{where}: tensor {slot.name!r}: expected {list(slot.shape)}, found {list(tensor.shape)}, as where "
            "DeepSpeed (ZeRO stage 3) keeps parameters in files of its own; run zero_to_fp32.py in the checkpoint's "
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
        if not largest < _LARGEST_PLAUSIBLE:  # also when it is NaN
            raise InputError(
                f"{where}: tensor {slot.name!r}: expected finite parameters, found {largest}; the file is damaged"
            )
        return values if dtype is None else values.astype(dtype, copy=False)

    return LazyTensor(tensor.shape, tensor.dtype if dtype is None else dtype, read)


def _untied_biases(model: Bert) -> list[tuple[str, str]]:
    """Return the biases of an untied output matrix that files hold twice: (the one that is added, the other).

    Where `tie_word_embeddings` is false, transformers adds the bias of the layer `decoder`, and not the one beside it.
    """
    if model.config.tie_word_embeddings or model.head not in _WITH_PREDICTIONS:
        return []
    return [(name, original) for name, original in names_of(model).tied if name.endswith(".bias")]


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


def _shapes(model: Bert) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter by canonical path."""
    return {path: leaf.shape for path, leaf in _abstract(model).items()}


def _dtypes(model: Bert) -> dict[str, np.dtype]:
    """Return the dtype of each parameter by canonical path: float32, or that of a quantized array."""
    return {path: np.dtype(leaf.dtype) for path, leaf in _abstract(model).items()}


@functools.lru_cache(maxsize=32)
def _abstract(model: Bert) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the leaves of `Bert.abstract_params` by canonical path, cached on disk because tracing is slow."""
    name = program_cache.fingerprint("parameters", model.config, model.head)
    with contextlib.suppress(ValueError, TypeError):  # damaged
        if cached := json.loads(program_cache.read_entry(name) or b""):
            return {path: jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for path, (shape, dtype) in cached.items()}
    leaves = _flatten(model.abstract_params())
    described = {path: (leaf.shape, leaf.dtype.name) for path, leaf in leaves.items()}
    program_cache.write_entry(name, json.dumps(described).encode())
    return leaves


def _flatten(tree: Params, prefix: str = "") -> dict[str, Any]:
    """Flatten nested dicts to one dict of `a/b/c` paths."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        flat |= _flatten(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return flat


def nest(flat: dict[str, Any]) -> Params:
    """Nest a dict of leaves by `a/b/c` paths into a parameter tree."""
    tree: Params = {}
    for path, leaf in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return tree
