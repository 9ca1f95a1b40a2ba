"""The names of tensors in files: prefixes of wrappers are removed, and older names become those of the family."""

import dataclasses
import re
from collections.abc import Iterable

from bert_jax import storage
from bert_jax.conversion.checkpoint import Checkpoint
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES, Json
from bert_jax.families.names import Names

# Prefixes that wrappers add to tensor names: DataParallel, torch.compile, Lightning, DeepSpeed, sentence-transformers.
_WRAPPERS = ("module.", "_orig_mod.", "model.", "_forward_module.", "0.", "auto_model.")


def without_wrappers(tensors: Tensors, hf: Json, where: object) -> Tensors:
    """Remove the prefixes that wrappers such as DataParallel add to tensor names.

    Raises:
        InputError: two tensors have the same name after that.
    """
    family = FAMILIES.named(hf.get("model_type"))
    if family is not None and _begins_with(tensors, _roots(family.names)):
        return tensors
    roots = {root for family in FAMILIES.values() for root in _roots(family.names)}
    for _ in range(len(_WRAPPERS)):
        if _begins_with(tensors, roots):
            break
        found: Tensors = {}
        for name, tensor in tensors.items():
            wrapper = next((wrapper for wrapper in _WRAPPERS if name.startswith(wrapper)), "")
            new = name.removeprefix(wrapper)
            if new in found:
                raise InputError(f"{where}: expected tensor {new!r} once, found it under two names")
            found[new] = tensor
        tensors = found
    return tensors


def _begins_with(tensors: Tensors, roots: set[str]) -> bool:
    return any(name.split(".")[0] in roots for name in tensors)


def _roots(names: Names) -> set[str]:
    """Return the first parts of the tensor names of a model, and of a bare encoder."""
    bare = {entry.theirs.removeprefix(names.prefix).split(".")[0] for entry in names.encoder}
    return (bare | {names.prefix.split(".")[0]}) - {"model"}  # wrappers add `model` too


def name_tensors(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose tensors have the names of its family. Raises InputError as `canonical_names`."""
    weights = checkpoint.weights
    tensors = canonical_names(weights.tensors, checkpoint.names, weights.where)
    return checkpoint._replace(weights=dataclasses.replace(weights, tensors=tensors))


def canonical_names(tensors: Tensors, names: Names, where: storage.Path) -> Tensors:
    """Rename tensors of old and encoder-only files to the family's names, and drop buffers."""
    roots = {entry.theirs.removeprefix(names.prefix).split(".")[0] for entry in names.encoder}
    known = {entry.theirs for entry in names.encoder}
    renamed: Tensors = {}
    for name, tensor in names.older(tensors).items():
        new = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        if new.split(".")[0] in roots:
            new = names.prefix + new
        if name.endswith(("position_ids", "inv_freq")) and new not in known:  # buffers, not parameters
            continue
        if new in renamed:
            raise InputError(f"{where}: expected tensor {new!r} once, found it under two names")
        renamed[new] = tensor
    for name, original in names.tied:  # some files have a tied tensor only under its second name
        if name in renamed and original not in renamed:
            renamed[original] = renamed[name]
    return renamed


def unknown_layer_tensor(names: Names, tensors: Iterable[str]) -> str | None:
    """Return a tensor of a layer, such as relative positions, that a table of names lacks; None = there is none."""
    known = {re.sub(r"\{\w+\}", "0", entry.theirs).removeprefix(names.prefix) for entry in names.encoder}
    for name in tensors:
        plain = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)).removeprefix(names.prefix)
        of_first_layer, numbers = re.subn(r"(?<=\.)\d+(?=\.)", "0", plain)
        if numbers and of_first_layer not in known:
            return name
    return None


def tensor_name(names: Names, path: str) -> str:
    """Return the name of the tensor of a parameter (in layer 0, for parameters of layers), or ""."""
    return next((entry.theirs.format(layer=0, group=0, inner=0) for entry in names.encoder if entry.ours == path), "")
