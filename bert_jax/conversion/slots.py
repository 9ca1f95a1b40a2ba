"""The places of Hugging Face tensors in the canonical parameter tree, by a family's table of tensor names."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from bert_jax.families.names import EXPERT_LAYERS, Entry, Names, dense, norm
from bert_jax.lazy import LazyModule

if TYPE_CHECKING:
    from bert_jax.conversion import gliner_files
else:
    gliner_files = LazyModule("bert_jax.conversion.gliner_files")


class Slot(NamedTuple):
    """The place of a Hugging Face tensor, or of a part of it, in the canonical tree."""

    name: str  # name of the Hugging Face tensor
    path: str  # path of the leaf in the canonical tree
    layer: int | None  # index on the leading axis of the leaf
    transpose: bool
    part: tuple[int, int]
    blocks: int  # number of blocks in the Hugging Face tensor, each with all parts
    shape: tuple[int, ...]  # shape of the whole Hugging Face tensor


# Head -> the head with the same parameters.
_HEADS_ALIKE = {"sparse_embedding": "masked_lm"}
# Placeholder in the tensor names of layers -> (the field of BertConfig with its count, the noun in messages).
PLACEHOLDERS = {
    "layer": ("num_hidden_layers", "layers"),
    "group": ("num_hidden_groups", "groups of layers"),
    "inner": ("inner_group_num", "layers in a group"),
}


def numbers_of(names: Names, tensor: str) -> dict[str, int]:
    """Return placeholder -> number in the name of a layer's tensor; empty for other tensors."""
    match = _layer_pattern(names.encoder).match(tensor)
    return {} if match is None else {name: int(number) for name, number in match.groupdict().items()}


@functools.lru_cache(maxsize=64)
def _layer_pattern(entries: tuple[Entry, ...]) -> re.Pattern[str]:
    numbered = next((entry.theirs for entry in entries if "{" in entry.theirs), "{none}")
    words = re.split(r"\{(\w+)\}", numbered[: numbered.rindex("}") + 1])  # alternately texts and placeholders
    parts = (rf"(?P<{word}>\d{{1,6}})" if i % 2 else re.escape(word) for i, word in enumerate(words))
    return re.compile("".join(parts) + r"\.")


def slots(
    names: Names,
    head: str,
    shapes: Mapping[str, tuple[int, ...]],
    inner_group_num: int = 1,
    has_experts: tuple[bool, ...] = (),
    heads: int = 1,
) -> Iterator[Slot]:
    """Yield a slot for each Hugging Face tensor (or part of one) that holds parameters of a canonical tree.

    Args:
        names: the tensor names of the family.
        head: one of `modeling.HEADS`.
        shapes: canonical path -> shape.
        inner_group_num: number of layers in a group of tied layers.
        has_experts: for each layer, whether it is in the stack of layers with experts; () = none.
        heads: number of attention heads.
    """
    numbers = {kind: [i for i, layer_kind in enumerate(has_experts) if layer_kind == kind] for kind in (False, True)}
    head = head if "token_weights/kernel" not in shapes else ""  # token weights replace the masked-LM head
    weights = dense(TOKEN_WEIGHTS, "token_weights")
    gliner = gliner_files.gliner_entries(shapes) if any(path.startswith("gliner/") for path in shapes) else ()
    encoder = (entry for part in names.encoder for entry in _numbered(part, shapes))
    weights = (*weights, Entry("query_weights.weight", "query_weights/weight"))
    entries = (*encoder, *weights, *names.heads.get(_HEADS_ALIKE.get(head, head), ()), *_embedding_layers(shapes),
               *gliner)  # fmt: skip
    for entry in itertools.chain.from_iterable(_quantized(entry) for entry in entries):
        if entry.ours not in shapes:
            continue
        shape = shapes[entry.ours]
        stacked = "{" in entry.theirs
        theirs = shape[1:] if stacked else shape
        theirs = theirs[::-1] if entry.transpose else theirs
        # A quantized parameter's single scale has no rows for the heads.
        blocks = heads if entry.by_head and theirs[0] % heads == 0 else 1
        theirs = (theirs[0] * entry.part[1], *theirs[1:])
        for layer in range(entry.first_layer, shape[0]) if stacked else (None,):
            group, inner = divmod(layer or 0, inner_group_num)
            number = layer
            if any(has_experts) and layer is not None:
                number = numbers[entry.ours.startswith(f"{EXPERT_LAYERS}/")][layer]
            name = entry.theirs.format(layer=number, group=group, inner=inner)
            yield Slot(name, entry.ours, layer, entry.transpose, entry.part, blocks, theirs)


# Arrays of a quantized parameter -> the end of their names, instead of `weight`; as in compressed-tensors.
_QUANTIZED = {
    "quantized": "weight",
    "packed": "weight_packed",
    "scale": "weight_scale",
    "input_scale": "input_scale",
}


def _quantized(entry: Entry) -> Iterator[Entry]:
    """Yield an entry, and the entries of the arrays that replace its parameter in a quantized model."""
    yield entry
    if entry.theirs.endswith(".weight"):
        for name, ending in _QUANTIZED.items():
            theirs = entry.theirs.removesuffix("weight") + ending
            yield dataclasses.replace(entry, theirs=theirs, ours=f"{entry.ours}/{name}")


def _numbered(entry: Entry, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Entry]:
    """Yield an entry; if its name has `{block}`, once for each feed-forward block of the model."""
    if "{block}" not in entry.ours:
        yield entry
        return
    for number in itertools.count():
        theirs, ours = (name.replace("{block}", str(number)) for name in (entry.theirs, entry.ours))
        if not any(path.startswith(ours) for path in shapes):  # a quantized parameter is a dict
            return
        yield dataclasses.replace(entry, theirs=theirs, ours=ours)


def _embedding_layers(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Entry]:
    """Yield the entries of sentence-transformers' modules, each in a directory of its own."""
    numbers = {path.split("/")[1] for path in shapes if path.startswith("embedding_layers/")}
    for layer in sorted(numbers):
        theirs, ours = EMBEDDING_LAYER.format(number=layer.removeprefix("layer_")), f"embedding_layers/{layer}"
        yield from dense(f"{theirs}linear", f"{ours}/dense")
        yield from dense(f"{theirs}residual", f"{ours}/residual")
        yield from norm(f"{theirs}norm", f"{ours}/layer_norm")


TOKEN_WEIGHTS = "sparse_linear"  # name of BGE-M3's layer for token weights
# Prefix of the tensor names of a sentence-transformers module; the module's own file leaves it out.
EMBEDDING_LAYER = "embedding_layers.{number}."
