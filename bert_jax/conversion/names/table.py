"""Types of the tables of tensor names: one entry per parameter, used for reading and writing."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_jax.conversion.formats.lazy_tensors import LazyTensor
from bert_jax.modeling.head_names import CLASSIFIERS, DECODER_HEAD, EMBEDDING_HEADS, GLINER_HEAD

Tensors = dict[str, LazyTensor]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A parameter's name in a Hugging Face state dict and its path in the canonical tree.

    Attributes:
        theirs: name in a Hugging Face state dict; `{layer}` is replaced by the number of the encoder layer, or
            `{group}` and `{inner}` by those of a group of tied layers and of a layer in it; `{block}` by the number of
            a feed-forward block before the layer's last.
        ours: path in the canonical tree; a tensor of layer i is slice i of the leading axis. `{block}` is replaced.
        transpose: whether to reverse the axes (PyTorch stores a kernel as `[out, in]`, or `[out, in, width]`).
        part: (i, n): the parameter is the i-th of n equal parts of the foreign tensor, along its first axis.
        by_head: whether the parts alternate head by head: those of the first head, those of the second, and so on.
        first_layer: the first layer that has the parameter; lower layers keep their initial values, which are unused.
    """

    theirs: str
    ours: str
    transpose: bool = False
    part: tuple[int, int] = (0, 1)
    by_head: bool = False
    first_layer: int = 0


@dataclasses.dataclass(frozen=True)
class Names:
    """The tensor names of a family.

    Attributes:
        prefix: prefix of the encoder's names; files of a bare encoder leave it out.
        encoder: entries of the encoder and the pooler; those whose parameter a model lacks are ignored.
        heads: entries of each head.
        architectures: head -> Hugging Face class.
        other_architectures: further Hugging Face classes -> head with the same tensors.
        tied: (second name, original name) of tensors that files may store twice, with equal values.
        buffers: name -> function from a `BertConfig` to its values, for tensors that files have besides parameters.
        decoder: Hugging Face class of a decoder with cross-attention; "" = there is none.
        older: function that renames the tensors of older files to the names above.
        not_legacy: the table of models whose config has `legacy` False, if it differs.
        not_gated: the table of models whose config has `gated` False, if it differs.
    """

    prefix: str
    encoder: tuple[Entry, ...]
    heads: Mapping[str, tuple[Entry, ...]]
    architectures: Mapping[str, str]
    other_architectures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tied: tuple[tuple[str, str], ...] = ()
    buffers: Mapping[str, Callable[[Any], np.ndarray]] = dataclasses.field(default_factory=dict)
    decoder: str = ""
    older: Callable[[Tensors], Tensors] = dict
    not_legacy: "Names | None" = None
    not_gated: "Names | None" = None

    def head_of(self, architecture: str) -> str | None:
        """Return the head of a Hugging Face class; None for an unknown class."""
        known = {name: head for head, name in self.architectures.items() if head not in EMBEDDING_HEADS}
        return (known | dict(self.other_architectures)).get(architecture)

    def architecture_of(self, head: str) -> str | None:
        """Return the Hugging Face class of a head, for a GLiNER that of its encoder; None if the family lacks it."""
        if head == DECODER_HEAD:
            return self.decoder or None
        return self.architectures.get("encoder" if head == GLINER_HEAD else head)


class Slot(NamedTuple):
    """The place of a foreign tensor, or of a part of it, in the canonical tree."""

    name: str  # name of the foreign tensor
    path: str  # path of the leaf in the canonical tree
    layer: int | None  # index on the leading axis of the leaf
    transpose: bool
    part: tuple[int, int]
    blocks: int  # number of blocks of the foreign tensor; a block has all parts
    shape: tuple[int, ...]  # shape of the whole foreign tensor


def dense(theirs: str, ours: str) -> tuple[Entry, ...]:
    """Return the entries of a dense layer."""
    return Entry(f"{theirs}.weight", f"{ours}/kernel", transpose=True), Entry(f"{theirs}.bias", f"{ours}/bias")


def projections(theirs: str, ours: str) -> tuple[Entry, ...]:
    """Return the entries of an attention block `theirs` whose dense layers are named as in Llama."""
    parts = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
    return tuple(entry for name, part in parts.items() for entry in dense(f"{theirs}.{name}", f"{ours}/{part}"))


def dense_parts(theirs: str, *ours: str, by_head: bool = False) -> tuple[Entry, ...]:
    """Return the entries of a dense layer that concatenates several layers of the canonical tree, or their heads."""
    entries = (
        dataclasses.replace(e, part=(i, len(ours)), by_head=by_head)
        for i, part in enumerate(ours)
        for e in dense(theirs, part)
    )
    return tuple(entries)


def norm(theirs: str, ours: str, first_layer: int = 0) -> tuple[Entry, ...]:
    """Return the entries of a LayerNorm."""
    pairs = (("weight", "scale"), ("bias", "bias"))
    return tuple(Entry(f"{theirs}.{a}", f"{ours}/{b}", first_layer=first_layer) for a, b in pairs)


def embedding(theirs: str, ours: str) -> Entry:
    """Return the entry of an embedding table."""
    return Entry(f"{theirs}.weight", f"{ours}/embedding")


def embeddings(prefix: str, layer_norm: str = "LayerNorm") -> tuple[Entry, ...]:
    """Return the entries of word, position, token type and task type embeddings with BERT's names."""
    tables = ("word_embeddings", "position_embeddings", "token_type_embeddings", "task_type_embeddings")
    return (
        *(embedding(f"{prefix}embeddings.{table}", f"embeddings/{table}") for table in tables),
        *norm(f"{prefix}embeddings.{layer_norm}", "embeddings/layer_norm"),
    )


def classifiers(**heads: tuple[Entry, ...]) -> dict[str, tuple[Entry, ...]]:
    """Return the entries of all heads: one dense layer for each classifier head, except for those in `heads`."""
    plain = {head: dense("classifier", "classifier") for head in CLASSIFIERS}
    return plain | {"question_answering": dense("qa_outputs", "qa_outputs")} | heads


def architectures(family: str, without: tuple[str, ...] = (), **others: str) -> dict[str, str]:
    """Return head -> Hugging Face class for a family: the usual heads and `others`, except `without`."""
    encoder, masked_lm = others.get("encoder", "Model"), others.get("masked_lm", "ForMaskedLM")
    usual = {
        "encoder": encoder,
        "sentence_embedding": encoder,
        "multi_vector": encoder,
        "masked_lm": masked_lm,
        "sparse_embedding": masked_lm,
        "sequence_classification": "ForSequenceClassification",
        "token_classification": "ForTokenClassification",
        "question_answering": "ForQuestionAnswering",
        "multiple_choice": "ForMultipleChoice",
    }
    return {head: f"{family}{name}" for head, name in (usual | others).items() if head not in without}


def rename_tensors(tensors: Tensors, rules: tuple[tuple[str, str], ...]) -> Tensors:
    """Rename tensors by (pattern, replacement) rules, applied in order."""
    found = {}
    for name, tensor in tensors.items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        found[name] = tensor
    return found


def split_tensors(tensors: Tensors, whole: str, parts: tuple[str, ...]) -> Tensors:
    """Split tensors of a dense layer `whole` along their first axis into those of the layers `parts`."""
    found = {}
    for name, tensor in tensors.items():
        if f".{whole}." not in name:
            found[name] = tensor
            continue
        for i, part in enumerate(parts):
            found[name.replace(f".{whole}.", f".{part}.")] = tensor.part(i, len(parts))
    return found


EXPERT_LAYERS = "encoder/moe_layers/"  # the stack of layers with experts
# Head -> the head with the same parameters.
_HEADS_ALIKE = {"sparse_embedding": "masked_lm"}
# Placeholders in the names of layers' tensors: the field of BertConfig with their number, and what they count.
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
    numbered = next(entry.theirs for entry in entries if "{" in entry.theirs)
    words = re.split(r"\{(\w+)\}", numbered[: numbered.rindex("}") + 1])  # texts and placeholders in turn
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
    """Yield a slot for each foreign tensor (or part of one) that the leaves of a canonical tree correspond to.

    Args:
        names: the tensor names of the family.
        head: one of `modeling.HEADS`.
        shapes: canonical path -> shape.
        inner_group_num: number of layers in a group of tied layers.
        has_experts: for each layer, whether it is in the stack of layers with experts; () = none.
        heads: number of attention heads.
    """
    numbers = {kind: [i for i, found in enumerate(has_experts) if found == kind] for kind in (False, True)}
    head = head if "token_weights/kernel" not in shapes else ""  # which has no tensors of the masked-LM head
    weights = dense(TOKEN_WEIGHTS, "token_weights")
    encoder = (entry for part in names.encoder for entry in _numbered(part, shapes))
    entries = (*encoder, *weights, *names.heads.get(_HEADS_ALIKE.get(head, head), ()), *_embedding_layers(shapes),
               *_gliner(shapes))  # fmt: skip
    for entry in itertools.chain.from_iterable(_quantized(entry) for entry in entries):
        if entry.ours not in shapes:
            continue
        shape = shapes[entry.ours]
        stacked = "{" in entry.theirs
        theirs = shape[1:] if stacked else shape
        theirs = theirs[::-1] if entry.transpose else theirs
        # A scale for a whole parameter has no rows of heads.
        blocks = heads if entry.by_head and theirs[0] % heads == 0 else 1
        theirs = (theirs[0] * entry.part[1], *theirs[1:])
        for layer in range(entry.first_layer, shape[0]) if stacked else (None,):
            group, inner = divmod(layer or 0, inner_group_num)
            number = layer
            if any(has_experts) and layer is not None:
                number = numbers[entry.ours.startswith(EXPERT_LAYERS)][layer]
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
    """Yield an entry, and those of the arrays that a quantized parameter has in its place."""
    yield entry
    if entry.theirs.endswith(".weight"):
        for name, ending in _QUANTIZED.items():
            theirs = entry.theirs.removesuffix("weight") + ending
            yield dataclasses.replace(entry, theirs=theirs, ours=f"{entry.ours}/{name}")


def _numbered(entry: Entry, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Entry]:
    """Yield an entry; one with `{block}` once for each feed-forward block that the model has."""
    if "{block}" not in entry.ours:
        yield entry
        return
    for number in itertools.count():
        theirs, ours = (name.replace("{block}", str(number)) for name in (entry.theirs, entry.ours))
        if not any(path.startswith(ours) for path in shapes):  # a quantized parameter is a dict
            return
        yield dataclasses.replace(entry, theirs=theirs, ours=ours)


def _embedding_layers(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Entry]:
    """Yield the entries of sentence-transformers' modules, each of which has a directory of its own."""
    numbers = {path.split("/")[1] for path in shapes if path.startswith("embedding_layers/")}
    for layer in sorted(numbers):
        theirs, ours = EMBEDDING_LAYER.format(number=layer.removeprefix("layer_")), f"embedding_layers/{layer}"
        yield from dense(f"{theirs}linear", f"{ours}/dense")
        yield from dense(f"{theirs}residual", f"{ours}/residual")
        yield from norm(f"{theirs}norm", f"{ours}/layer_norm")


GLINER_ENCODER = "token_rep_layer.bert_layer.model."  # prefix of the names of a bare encoder in a GLiNER
# Part of the head of a GLiNER -> its name in the files.
_GLINER_PARTS = {
    "start": "span_rep_layer.span_rep_layer.project_start",
    "end": "span_rep_layer.span_rep_layer.project_end",
    "span": "span_rep_layer.span_rep_layer.out_project",
    "type": "prompt_rep_layer",
}
GLINER_NAMES = ("token_rep_layer.projection.", "rnn.lstm.", "span_rep_layer.", "prompt_rep_layer.")  # of the head


def _gliner(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Entry]:
    """Yield the entries of the head of a GLiNER, if there is one."""
    yield from dense("token_rep_layer.projection", "gliner/projection")
    for ours, theirs in _GLINER_PARTS.items():
        yield from dense(f"{theirs}.0", f"gliner/{ours}/up")
        yield from dense(f"{theirs}.3", f"gliner/{ours}/down")
    layers = {path.split("/")[1] for path in shapes if path.startswith("gliner/lstm_")}
    sides = itertools.product(sorted(layers), (("forward", ""), ("backward", "_reverse")))
    for (layer, (side, ending)), (part, short) in itertools.product(sides, (("input", "ih"), ("recurrent", "hh"))):
        theirs, ours = f"{short}_l{layer.removeprefix('lstm_')}{ending}", f"gliner/{layer}/{side}/{part}"
        yield Entry(f"rnn.lstm.weight_{theirs}", f"{ours}/kernel", transpose=True)
        yield Entry(f"rnn.lstm.bias_{theirs}", f"{ours}/bias")


TOKEN_WEIGHTS = "sparse_linear"  # name of BGE-M3's layer of weights of tokens
# Prefix of the tensor names of such a module; its own file leaves it out.
EMBEDDING_LAYER = "embedding_layers.{number}."
