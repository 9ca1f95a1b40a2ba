"""The names of Hugging Face's BERT and where each lies in the canonical tree: one table, read in both directions."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class Entry:
    """One parameter under both of its names.

    Attributes:
        theirs: name in a Hugging Face state dict; `{layer}` counts encoder layers.
        ours: path in the canonical tree; where `theirs` counts layers, each is a slice of the leading axis.
        transpose: whether the last two axes change places (PyTorch keeps a kernel as `[out, in]`).
    """

    theirs: str
    ours: str
    transpose: bool = False


def _dense(theirs: str, ours: str) -> tuple[Entry, ...]:
    return Entry(f"{theirs}.weight", f"{ours}/kernel", transpose=True), Entry(f"{theirs}.bias", f"{ours}/bias")


def _norm(theirs: str, ours: str) -> tuple[Entry, ...]:
    return Entry(f"{theirs}.weight", f"{ours}/scale"), Entry(f"{theirs}.bias", f"{ours}/bias")


_LAYER, _LAYERS = "bert.encoder.layer.{layer}", "encoder/layers"

ENCODER = (
    Entry("bert.embeddings.word_embeddings.weight", "embeddings/word_embeddings/embedding"),
    Entry("bert.embeddings.position_embeddings.weight", "embeddings/position_embeddings/embedding"),
    Entry("bert.embeddings.token_type_embeddings.weight", "embeddings/token_type_embeddings/embedding"),
    *_norm("bert.embeddings.LayerNorm", "embeddings/layer_norm"),
    *_dense(f"{_LAYER}.attention.self.query", f"{_LAYERS}/attention/query"),
    *_dense(f"{_LAYER}.attention.self.key", f"{_LAYERS}/attention/key"),
    *_dense(f"{_LAYER}.attention.self.value", f"{_LAYERS}/attention/value"),
    *_dense(f"{_LAYER}.attention.output.dense", f"{_LAYERS}/attention/output"),
    *_norm(f"{_LAYER}.attention.output.LayerNorm", f"{_LAYERS}/attention/layer_norm"),
    *_dense(f"{_LAYER}.intermediate.dense", f"{_LAYERS}/mlp/up"),
    *_dense(f"{_LAYER}.output.dense", f"{_LAYERS}/mlp/down"),
    *_norm(f"{_LAYER}.output.LayerNorm", f"{_LAYERS}/mlp/layer_norm"),
)
# What stands on the encoder. A head has those of these that its parameter tree has.
HEADS = (
    *_dense("bert.pooler.dense", "pooler/dense"),
    *_dense("cls.predictions.transform.dense", "mlm/dense"),
    *_norm("cls.predictions.transform.LayerNorm", "mlm/layer_norm"),
    Entry("cls.predictions.bias", "mlm/bias"),
    *_dense("cls.seq_relationship", "nsp"),
    *_dense("classifier", "classifier"),
    *_dense("qa_outputs", "qa_outputs"),
)
# Second names that a file may give to a tensor: name, and the one that it must equal.
TIED = (
    ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    ("cls.predictions.decoder.bias", "cls.predictions.bias"),
)
# Our heads and the Hugging Face classes with the same parameters.
ARCHITECTURES = {
    "encoder": "BertModel",
    "pretraining": "BertForPreTraining",
    "masked_lm": "BertForMaskedLM",
    "sequence_classification": "BertForSequenceClassification",
    "token_classification": "BertForTokenClassification",
    "question_answering": "BertForQuestionAnswering",
    "multiple_choice": "BertForMultipleChoice",
    "sentence_embedding": "BertModel",
}


class Slot(NamedTuple):
    """Where one of their tensors lies in one of our leaves."""

    name: str  # theirs
    path: str  # ours
    layer: int | None  # index on our leading axis
    transpose: bool
    shape: tuple[int, ...]  # theirs


def slots(shapes: dict[str, tuple[int, ...]]) -> Iterator[Slot]:
    """The tensors that a tree with leaves of these shapes has under Hugging Face names.

    Args:
        shapes: canonical path -> shape.
    """
    for entry in (*ENCODER, *HEADS):
        if entry.ours not in shapes:
            continue
        shape = shapes[entry.ours]
        stacked = "{layer}" in entry.theirs
        theirs = shape[1:] if stacked else shape
        theirs = theirs[::-1] if entry.transpose else theirs
        for layer in range(shape[0]) if stacked else (None,):
            yield Slot(entry.theirs.format(layer=layer), entry.ours, layer, entry.transpose, theirs)
