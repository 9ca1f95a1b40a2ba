"""`ServedTask`: the task of a served model, with its head and its output."""

import enum
from collections.abc import Sequence

import numpy as np


class ServedTask(enum.Enum):
    """The tasks of served models; the values are their names on the command line."""

    EMBED = "embed"
    CLASSIFY = "classify"
    FILL_MASK = "fill-mask"
    TAG = "tag"

    @property
    def head(self) -> str:
        """Return the head of the model, one of `modeling.HEADS`."""
        return _HEADS[self]

    @property
    def output(self) -> str:
        """Return the field of `BertOutput` to fetch."""
        return "sentence_embedding" if self is ServedTask.EMBED else "logits"

    def per_row(self, output: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
        """Split an output `[B, ...]` into one array per row, without padding.

        Args:
            output: the output; for `FILL_MASK` `[B, 1, V]`, for `TAG` `[B, S, C]`.
            sizes: number of tokens of each row.
        """
        match self:
            case ServedTask.FILL_MASK:
                return [np.array(row[0]) for row in output[: len(sizes)]]
            case ServedTask.TAG:
                return [np.array(row[:size]) for row, size in zip(output, sizes, strict=False)]
            case _:
                return [np.array(row) for row in output[: len(sizes)]]


_HEADS = {
    ServedTask.EMBED: "sentence_embedding",
    ServedTask.CLASSIFY: "sequence_classification",
    ServedTask.FILL_MASK: "masked_lm",
    ServedTask.TAG: "token_classification",
}
# The task for each saved head of a model.
TASK_OF_HEAD = {
    "encoder": ServedTask.EMBED,
    "sentence_embedding": ServedTask.EMBED,
    "sequence_classification": ServedTask.CLASSIFY,
    "masked_lm": ServedTask.FILL_MASK,
    "pretraining": ServedTask.FILL_MASK,
    "token_classification": ServedTask.TAG,
}
