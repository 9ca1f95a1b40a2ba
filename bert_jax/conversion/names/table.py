"""The type of a table of tensor names: one entry a parameter, read in both directions."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from bert_jax.conversion.formats.lazy_tensors import LazyTensor
from bert_jax.modeling.heads import CLASSIFIERS

Tensors = dict[str, LazyTensor]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One parameter under both of its names.

    Attributes:
        theirs: name in a Hugging Face state dict; `{layer}` counts encoder layers.
        ours: path in the canonical tree; where `theirs` counts layers, each is a slice of the leading axis.
        transpose: whether the last two axes change places (PyTorch keeps a kernel as `[out, in]`).
        part: (i, n): it is the i-th of n equal parts of their tensor, along its first axis.
        first_layer: the first that has it; the others keep what they are initialised with, and do not use it.
    """

    theirs: str
    ours: str
    transpose: bool = False
    part: tuple[int, int] = (0, 1)
    first_layer: int = 0


@dataclasses.dataclass(frozen=True)
class Names:
    """How a family names its tensors.

    Attributes:
        prefix: before all of the encoder's; files of a bare encoder leave it out.
        encoder: its entries, the pooler's among them. A model has those whose parameter its tree has.
        heads: the entries of each head that the family has a class for; that class is in `architectures`.
        architectures: head -> class.
        other_architectures: further classes -> the head whose tensors they have.
        tied: second names that a file may give to a tensor: that name, and the one that it must equal.
        older: what files of another age or origin hold, under the names above.
    """

    prefix: str
    encoder: tuple[Entry, ...]
    heads: Mapping[str, tuple[Entry, ...]]
    architectures: Mapping[str, str]
    other_architectures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tied: tuple[tuple[str, str], ...] = ()
    older: Callable[[Tensors], Tensors] = dict

    def head_of(self, architecture: str) -> str | None:
        """The head that a class has; None for a class that is not known."""
        known = {name: head for head, name in self.architectures.items() if head != "sentence_embedding"}
        return (known | dict(self.other_architectures)).get(architecture)


class Slot(NamedTuple):
    """Where one of their tensors, or a part of it, lies in one of our leaves."""

    name: str  # theirs
    path: str  # ours
    layer: int | None  # index on our leading axis
    transpose: bool
    part: tuple[int, int]
    shape: tuple[int, ...]  # of their whole tensor


def dense(theirs: str, ours: str) -> tuple[Entry, ...]:
    """The entries of a dense layer."""
    return Entry(f"{theirs}.weight", f"{ours}/kernel", transpose=True), Entry(f"{theirs}.bias", f"{ours}/bias")


def dense_parts(theirs: str, *ours: str) -> tuple[Entry, ...]:
    """The entries of a dense layer that is several of ours in one."""
    entries = (dataclasses.replace(e, part=(i, len(ours))) for i, part in enumerate(ours) for e in dense(theirs, part))
    return tuple(entries)


def norm(theirs: str, ours: str, first_layer: int = 0) -> tuple[Entry, ...]:
    """The entries of a LayerNorm."""
    pairs = (("weight", "scale"), ("bias", "bias"))
    return tuple(Entry(f"{theirs}.{a}", f"{ours}/{b}", first_layer=first_layer) for a, b in pairs)


def embedding(theirs: str, ours: str) -> Entry:
    """The entry of an embedding."""
    return Entry(f"{theirs}.weight", f"{ours}/embedding")


def embeddings(prefix: str, layer_norm: str = "LayerNorm") -> tuple[Entry, ...]:
    """The entries of embeddings as BERT names them."""
    tables = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    return (
        *(embedding(f"{prefix}embeddings.{table}", f"embeddings/{table}") for table in tables),
        *norm(f"{prefix}embeddings.{layer_norm}", "embeddings/layer_norm"),
    )


def classifiers(**heads: tuple[Entry, ...]) -> dict[str, tuple[Entry, ...]]:
    """Those heads of sequences, tokens, spans and choices that are one dense layer; `heads` are the others."""
    plain = {head: dense("classifier", "classifier") for head in CLASSIFIERS}
    return plain | {"question_answering": dense("qa_outputs", "qa_outputs")} | heads


def architectures(family: str, without: tuple[str, ...] = (), **others: str) -> dict[str, str]:
    """Head -> class: what most families have, under the usual names, and `others`."""
    usual = {
        "encoder": "Model",
        "sentence_embedding": "Model",
        "masked_lm": "ForMaskedLM",
        "sequence_classification": "ForSequenceClassification",
        "token_classification": "ForTokenClassification",
        "question_answering": "ForQuestionAnswering",
        "multiple_choice": "ForMultipleChoice",
    }
    return {head: f"{family}{name}" for head, name in (usual | others).items() if head not in without}


def rename_tensors(tensors: Tensors, rules: tuple[tuple[str, str], ...]) -> Tensors:
    """Tensors whose names have gone through regular expressions and what stands for them, one after the other."""
    found = {}
    for name, tensor in tensors.items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        found[name] = tensor
    return found


def slots(names: Names, head: str, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Slot]:
    """The tensors, or parts of them, that a tree with leaves of these shapes has under their names.

    Args:
        shapes: canonical path -> shape.
    """
    for entry in (*names.encoder, *names.heads.get(head, ()), *_embedding_layers(shapes)):
        if entry.ours not in shapes:
            continue
        shape = shapes[entry.ours]
        stacked = "{layer}" in entry.theirs
        theirs = shape[1:] if stacked else shape
        theirs = theirs[::-1] if entry.transpose else theirs
        theirs = (theirs[0] * entry.part[1], *theirs[1:])
        for layer in range(entry.first_layer, shape[0]) if stacked else (None,):
            yield Slot(entry.theirs.format(layer=layer), entry.ours, layer, entry.transpose, entry.part, theirs)


def _embedding_layers(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Entry]:
    """The entries of the modules that sentence-transformers keeps in folders of their own, one a module."""
    numbers = {path.split("/")[1] for path in shapes if path.startswith("embedding_layers/")}
    for layer in sorted(numbers):
        theirs, ours = EMBEDDING_LAYER.format(number=layer.removeprefix("layer_")), f"embedding_layers/{layer}"
        yield from dense(f"{theirs}linear", f"{ours}/dense")
        yield from dense(f"{theirs}residual", f"{ours}/residual")
        yield from norm(f"{theirs}norm", f"{ours}/layer_norm")


# Before the names of the tensors of such a module, which its own file has without.
EMBEDDING_LAYER = "embedding_layers.{number}."
