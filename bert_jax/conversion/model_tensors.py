"""The parameters of a model, and the tensors that files of its family hold for them."""

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import program_cache
from bert_jax.conversion.slots import Slot, slots
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES
from bert_jax.families.names import Names
from bert_jax.head_names import DECODER_HEAD
from bert_jax.modeling import Bert, Params
from bert_jax.modeling.positions import sinusoids

PREDICTS_TOKENS = ("masked_lm", "pretraining", DECODER_HEAD)  # heads that predict tokens


def slots_of(model: Bert) -> Iterator[Slot]:
    """Yield the slot in the parameter tree of each tensor, or part of a tensor, in a model's files."""
    config = model.config
    shapes, heads = shapes_of(model), config.num_attention_heads
    return slots(names_of(model), model.head, shapes, config.setting("inner_group_num", 1), config.has_experts, heads)


def by_tensor(found: Iterable[Slot]) -> dict[str, list[Slot]]:
    """Group slots by the name of their tensor; a tensor with several parts has several slots."""
    grouped: dict[str, list[Slot]] = {}
    for slot in found:
        grouped.setdefault(slot.name, []).append(slot)
    return grouped


def names_of(model: Bert) -> Names:
    """Return the table of names of a model's family. Raises InputError when the family lacks the model's head."""
    names = FAMILIES[model.config.family].names
    if names.architecture_of(model.head) is None:
        heads = ", ".join(names.architectures)
        raise InputError(f"family {model.config.family} has no head {model.head!r}; it has {heads}")
    if not model.config.feed_forward.gated and names.not_gated is not None:
        names = names.not_gated
    elif not model.config.setting("legacy", True):
        names = names.not_legacy or names
    if model.head == "sequence_classification" and model.config.classifies_embedding:
        from bert_jax.conversion.embedding_classifiers import with_classifier

        return with_classifier(names)
    return names


def buffers_of(model: Bert) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the names and values of the tensors that files have besides the parameters."""
    config, names = model.config, names_of(model)
    if config.positions.kind == "sinusoidal":
        # Hugging Face's models look positions up in a table; with sinusoids in the table they compute the same.
        table = sinusoids(config.max_position_embeddings, config.embedding_width)
        yield f"{names.prefix}embeddings.position_embeddings.weight", table
    for name, values in names.buffers.items():
        yield name, values(config)


def slot_view(leaf: np.ndarray, slot: Slot) -> np.ndarray:
    """Return a view of a leaf (or a layer of it) with the axes of the tensor in the files; writes go to the leaf."""
    part = leaf if slot.layer is None else leaf[slot.layer]
    return part.T if slot.transpose else part


def untied_biases(model: Bert) -> list[tuple[str, str]]:
    """Return (name, other name) of the biases that files hold twice for an untied output matrix; the first is used.

    If `tie_word_embeddings` is false, transformers adds the bias of the layer `decoder`, and ignores the other.
    """
    if model.config.tie_word_embeddings or model.head not in PREDICTS_TOKENS:
        return []
    return [(name, original) for name, original in names_of(model).tied if name.endswith(".bias")]


def shapes_of(model: Bert) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter by canonical path."""
    return {path: leaf.shape for path, leaf in _abstract(model).items()}


def dtypes_of(model: Bert) -> dict[str, np.dtype]:
    """Return the dtype of each parameter by canonical path: float32, or that of a quantized array."""
    return {path: np.dtype(leaf.dtype) for path, leaf in _abstract(model).items()}


@functools.lru_cache(maxsize=32)
def _abstract(model: Bert) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the leaves of `Bert.abstract_params` by canonical path, cached on disk because tracing is slow."""
    name = program_cache.fingerprint("parameters", model.config, model.head)
    with contextlib.suppress(ValueError, TypeError):  # a damaged cache entry
        if cached := json.loads(program_cache.read_entry(name) or b""):
            return {path: jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for path, (shape, dtype) in cached.items()}
    leaves = flatten_params(model.abstract_params())
    described = {path: (leaf.shape, leaf.dtype.name) for path, leaf in leaves.items()}
    program_cache.write_entry(name, json.dumps(described).encode())
    return leaves


def flatten_params(tree: Params, prefix: str = "") -> dict[str, Any]:
    """Flatten nested dicts to one dict of `a/b/c` paths."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        flat |= flatten_params(value, f"{path}/") if isinstance(value, dict) else {path: value}
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
