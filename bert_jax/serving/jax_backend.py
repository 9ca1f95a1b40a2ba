"""The JAX backend: a model on one device, compiled for a few static shapes."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from bert_jax.inference.model import PretrainedModel
from bert_jax.serving.batching import BRIEF, Row, Shape, blank_row, padding_to, static_shapes
from bert_jax.serving.tasks import ServedTask

# Tokens in a full batch, by platform. On a CPU, larger batches process no more tokens per second and delay other
# requests; batches of an eighth of this size are nearly as efficient.
_BATCH_TOKENS = {"cpu": 512}
_BATCH_TOKENS_ELSEWHERE = 16_384


class JaxBackend:
    """A model with its parameters on one device.

    Args:
        model: the model, with the head of the task.
        task: the task, which determines the output to fetch.
        device: the device; None = the one that holds the parameters.
        batch_tokens: tokens in a full batch; None = chosen for the platform.
        batch_invariant: whether outputs must be bitwise independent of the other rows of a batch.

    Attributes:
        shapes: the static shapes.
        brief_tokens: tokens in a brief batch, for which short requests may wait; None = a full batch is quick enough.
        ahead: number of batches dispatched ahead of the one whose outputs are fetched, so that the device need not wait
            for the host.
    """

    def __init__(
        self,
        model: PretrainedModel,
        task: ServedTask,
        device: jax.Device | None = None,
        batch_tokens: int | None = None,
        batch_invariant: bool = False,
    ):
        if device is not None:
            compute = dataclasses.replace(model.compute, platform=device.platform)
            model = dataclasses.replace(model, params=jax.device_put(model.params, device), compute=compute)
        platform = model.compute.target
        self._model, self._task, self._output = model, task, task.output(model.config)
        self._masks_prompts = task is ServedTask.EMBED and bool(model.settings.prompts)
        self._masks_prompts &= not model.settings.include_prompt
        tokens = batch_tokens or _BATCH_TOKENS.get(platform, _BATCH_TOKENS_ELSEWHERE)
        self.batch_invariant = batch_invariant
        self.brief_tokens = tokens // BRIEF if platform == "cpu" else None
        self.shapes = static_shapes(model.max_length, tokens, batch_invariant, self.brief_tokens)
        self.ahead = 1

    def warm(self, shape: Shape) -> None:
        """Compile the forward pass of one of `shapes`, or read it from the disk cache."""
        self._model.compile(
            self._inputs([blank_row(shape.length)], shape), (self._output,), rows=shape.rows, length=shape.length
        )

    def padding(self, rows: Sequence[Row], shape: Shape) -> int:
        """Return the number of padding tokens in a forward pass, including padding rows."""
        return padding_to(shape, rows)

    def begin(self, rows: Sequence[Row], shape: Shape) -> Callable[[], list[np.ndarray]]:
        """Dispatch a forward pass of up to `shape.rows` rows.

        Args:
            rows: rows of at most `shape.length` tokens.
            shape: one of `shapes`.

        Returns:
            A function that waits and returns float32 arrays, one per row: an embedding `[D]`, the logits `[C]` of a
            classifier, the logits `[V]` at the masked position, or the logits `[S, C]` of the row's S tokens. For
            sparse embeddings, arrays of `WEIGHT_DTYPE`, or with lexical pooling the weights `[S]` of the tokens.
        """
        inputs = self._inputs(rows, shape)
        fetch = self._model.begin(inputs, (self._output,), rows=shape.rows, length=shape.length)
        sizes = [row.size for row in rows]
        return lambda: self._task.per_row(getattr(fetch(), self._output), sizes, self._output)

    def _inputs(self, rows: Sequence[Row], shape: Shape) -> dict[str, np.ndarray]:
        inputs = padded(rows, shape.length, self._model.config.pad_token_id)
        if self._task is ServedTask.FILL_MASK:
            inputs["masked_positions"] = np.array([[row.masked_position] for row in rows], np.int32)
        if self._masks_prompts:
            inputs["pooling_mask"] = pooling_mask(rows, inputs["attention_mask"])
        return inputs


def pooling_mask(rows: Sequence[Row], attention_mask: np.ndarray) -> np.ndarray:
    """Return 1 for the tokens of rows that are pooled, int32 `[B, S]`, from their attention mask."""
    skips = np.array([[row.pooling_skip] for row in rows])
    return np.where(np.arange(attention_mask.shape[1]) < skips, 0, attention_mask)


def padded(rows: Sequence[Row], length: int, pad_id: int) -> dict[str, np.ndarray]:
    """Return `input_ids`, `token_type_ids` and `attention_mask` of rows, int32 `[B, length]`."""
    shape = (len(rows), length)
    inputs = {
        "input_ids": np.full(shape, pad_id, np.int32),
        "token_type_ids": np.zeros(shape, np.int32),
        "attention_mask": np.zeros(shape, np.int32),
    }
    for number, row in enumerate(rows):
        inputs["input_ids"][number, : row.size] = row.input_ids
        inputs["token_type_ids"][number, : row.size] = row.token_type_ids
        inputs["attention_mask"][number, : row.size] = 1
    return inputs
