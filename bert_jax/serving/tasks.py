"""`ServedTask`: the task of a served model, with its head and its output."""

import enum
from collections.abc import Sequence

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.inference.sparse_vectors import active

# A row of a sparse embedding: a dimension of the vocabulary and its weight.
WEIGHT_DTYPE = np.dtype([("index", np.int32), ("value", np.float32)])


class ServedTask(enum.Enum):
    """The tasks of served models; the values are their names on the command line."""

    EMBED = "embed"
    EMBED_SPARSE = "sparse-embedding"
    CLASSIFY = "classify"
    FILL_MASK = "fill-mask"
    TAG = "tag"

    @property
    def head(self) -> str:
        """Return the head of the model, one of `modeling.HEADS`."""
        return _HEADS[self]

    def output(self, config: BertConfig) -> str:
        """Return the field of `BertOutput` to fetch from a model of this architecture."""
        if self is ServedTask.EMBED_SPARSE and config.pooling == "lexical":
            return "token_weights"
        return "sentence_embedding" if self in (ServedTask.EMBED, ServedTask.EMBED_SPARSE) else "logits"

    def per_row(self, output: np.ndarray, sizes: Sequence[int], field: str = "") -> list[np.ndarray]:
        """Split an output `[B, ...]` into one array per row, without padding.

        Args:
            output: the output; for `FILL_MASK` `[B, 1, V]`, for `TAG` `[B, S, C]`, for `EMBED_SPARSE` `[B, V]`, whose
                rows are returned as arrays of `WEIGHT_DTYPE`, or `token_weights` `[B, S]`.
            sizes: number of tokens of each row.
            field: name of the output.
        """
        match self:
            case ServedTask.EMBED_SPARSE if field != "token_weights":
                return [_weights(row) for row in output[: len(sizes)]]
            case ServedTask.FILL_MASK:
                return [np.array(row[0]) for row in output[: len(sizes)]]
            case ServedTask.TAG | ServedTask.EMBED_SPARSE:
                return [np.array(row[:size]) for row, size in zip(output, sizes, strict=False)]
            case _:
                return [np.array(row) for row in output[: len(sizes)]]


def _weights(vector: np.ndarray) -> np.ndarray:
    """Return the weights of a vector `[V]` that are not 0, of `WEIGHT_DTYPE`."""
    indices, values = active(vector)
    weights = np.empty(len(indices), WEIGHT_DTYPE)
    weights["index"], weights["value"] = indices, values
    return weights


_HEADS = {
    ServedTask.EMBED: "sentence_embedding",
    ServedTask.EMBED_SPARSE: "sparse_embedding",
    ServedTask.CLASSIFY: "sequence_classification",
    ServedTask.FILL_MASK: "masked_lm",
    ServedTask.TAG: "token_classification",
}
# The task for each saved head of a model.
TASK_OF_HEAD = {
    "encoder": ServedTask.EMBED,
    "sentence_embedding": ServedTask.EMBED,
    "sparse_embedding": ServedTask.EMBED_SPARSE,
    "sequence_classification": ServedTask.CLASSIFY,
    "masked_lm": ServedTask.FILL_MASK,
    "pretraining": ServedTask.FILL_MASK,
    "token_classification": ServedTask.TAG,
}
