"""Tables of tensor names: Hugging Face name <-> path in the canonical parameter tree, read in both directions."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bert_jax.head_names import CLASSIFIERS, DECODER_HEAD, EMBEDDING_HEADS, GLINER_HEAD

if TYPE_CHECKING:
    import numpy as np

NamedTensors = dict[str, Any]  # name -> `bert_jax.conversion.formats.lazy_tensors.LazyTensor`
LAYERS_PATH = "encoder/layers"
EXPERT_LAYERS = "encoder/moe_layers"  # the stack of layers with experts


@dataclasses.dataclass(frozen=True)
class Entry:
    """A parameter's name in a Hugging Face state dict and its path in the canonical tree.

    Attributes:
        theirs: name in a Hugging Face state dict; `{layer}` is replaced by the number of the encoder layer, or
            `{group}` and `{inner}` by those of a group of tied layers and of a layer in it; `{block}` by the number of
            a feed-forward block before the layer's last.
        ours: path in the canonical tree; a tensor of layer i is slice i of the leading axis. `{block}` as in `theirs`.
        transpose: whether to reverse the axes (PyTorch stores a kernel as `[out, in]`, or `[out, in, width]`).
        part: (i, n): the parameter is the i-th of n equal parts of the Hugging Face tensor, along its first axis.
        by_head: whether the parts are interleaved: all parts of the first head, then all of the second, and so on.
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
    buffers: Mapping[str, Callable[[Any], "np.ndarray"]] = dataclasses.field(default_factory=dict)
    decoder: str = ""
    older: Callable[[NamedTensors], NamedTensors] = dict
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


def dense(theirs: str, ours: str) -> tuple[Entry, ...]:
    """Return the entries of a dense layer."""
    return Entry(f"{theirs}.weight", f"{ours}/kernel", transpose=True), Entry(f"{theirs}.bias", f"{ours}/bias")


def projections(theirs: str, ours: str) -> tuple[Entry, ...]:
    """Return the entries of an attention block `theirs` whose dense layers are named as in Llama."""
    parts = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
    return tuple(entry for name, part in parts.items() for entry in dense(f"{theirs}.{name}", f"{ours}/{part}"))


def dense_parts(theirs: str, *ours: str, by_head: bool = False) -> tuple[Entry, ...]:
    """Return the entries of a dense layer that concatenates layers of the canonical tree, whole or head by head."""
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


def projected_layers(prefix: str, *feed_forward: Entry) -> tuple[Entry, ...]:
    """Return the entries of an encoder whose attention is named as in Llama, with a LayerNorm after each block.

    Args:
        prefix: prefix of the encoder's names.
        feed_forward: the entries of the feed-forward block, without its LayerNorm.
    """
    layer = f"{prefix}layers.{{layer}}"
    return (
        *embeddings(prefix),
        *projections(f"{layer}.self_attn", f"{LAYERS_PATH}/attention"),
        *norm(f"{layer}.post_attention_layernorm", f"{LAYERS_PATH}/attention/layer_norm"),
        *feed_forward,
        *norm(f"{layer}.post_mlp_layernorm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense(f"{prefix}pooler.dense", "pooler/dense"),
    )


def gated_mlp(block: str) -> tuple[Entry, ...]:
    """Return the entries of a gated feed-forward block `block` whose dense layers are named as in Llama."""
    parts = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
    return tuple(e for name, part in parts.items() for e in dense(f"{block}.{name}", f"{LAYERS_PATH}/mlp/{part}"))


def classifiers(**heads: tuple[Entry, ...]) -> dict[str, tuple[Entry, ...]]:
    """Return head -> entries: those of `heads`, and one dense layer for each other classifier head."""
    plain = {head: dense("classifier", "classifier") for head in CLASSIFIERS}
    return plain | {"question_answering": dense("qa_outputs", "qa_outputs")} | heads


def architectures(family: str, without: tuple[str, ...] = (), **others: str) -> dict[str, str]:
    """Return head -> Hugging Face class for a family: the usual heads and `others`, except `without`."""
    encoder, masked_lm = others.get("encoder", "Model"), others.get("masked_lm", "ForMaskedLM")
    class_names = {
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
    return {head: f"{family}{name}" for head, name in (class_names | others).items() if head not in without}


def rename_tensors(tensors: NamedTensors, rules: tuple[tuple[str, str], ...]) -> NamedTensors:
    """Rename tensors by (pattern, replacement) rules, applied in order."""
    renamed = {}
    for name, tensor in tensors.items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        renamed[name] = tensor
    return renamed


def split_tensors(tensors: NamedTensors, joined: str, parts: tuple[str, ...]) -> NamedTensors:
    """Split tensors of a dense layer `joined` along their first axis into those of the layers `parts`."""
    split = {}
    for name, tensor in tensors.items():
        if f".{joined}." not in name:
            split[name] = tensor
            continue
        for i, part in enumerate(parts):
            split[name.replace(f".{joined}.", f".{part}.")] = tensor.part(i, len(parts))
    return split


# Heads with the same names in several families: masked LM, and a sequence classifier with its own dense layer.
LM_HEAD = (
    *dense("lm_head.dense", "mlm/dense"),
    *norm("lm_head.layer_norm", "mlm/layer_norm"),
    Entry("lm_head.bias", "mlm/bias"),
    embedding("lm_head.decoder", "mlm/decoder"),
)
CLASSIFICATION_HEAD = (*dense("classifier.dense", "summary/dense"), *dense("classifier.out_proj", "classifier"))


def tied_lm_head(prefix: str) -> tuple[tuple[str, str], ...]:
    """Return the tied tensors of `LM_HEAD`: (second name, original name)."""
    return (
        ("lm_head.decoder.weight", f"{prefix}embeddings.word_embeddings.weight"),
        ("lm_head.decoder.bias", "lm_head.bias"),
    )
