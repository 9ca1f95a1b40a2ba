"""The onnxruntime backend: a folder with `onnx/model.onnx` beside `config.json` and the tokenizer."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion import query_weights, sentence_transformers, sparse_encoders
from bert_jax.conversion.model_tokenizer import check_vocabulary
from bert_jax.conversion.module_files import ModuleLayout
from bert_jax.conversion.text_settings import NO_SETTINGS, TextSettings
from bert_jax.errors import InputError
from bert_jax.inference.onnx_session import open_onnx_session
from bert_jax.serving.batching import BRIEF, Row, Shape, blank_row, padding_to, static_shapes
from bert_jax.serving.jax_backend import padded, pooling_mask
from bert_jax.serving.models import ServedModel
from bert_jax.serving.tasks import ServedTask
from bert_jax.storage import hub
from bert_jax.tokenization import load_tokenizer

DEFAULT_FILE = "onnx/model.onnx"
_BATCH_TOKENS = 512


class OnnxBackend:
    """An ONNX model in onnxruntime, for any number of rows and any length.

    Args:
        session: an `onnxruntime.InferenceSession`.
        task: the task of the model.
        output: name of the output to read.
        pooling: pooling of `last_hidden_state` into an embedding, `mean`, `cls` or `max`; "" = none is needed.
        pad_id: id of the padding token.
        shapes: upper bounds of batch shapes.
        batch_invariant: whether to pad each batch to its shape, so that outputs do not depend on the other rows.
        brief_tokens: tokens in a brief batch, for which short requests may wait; None = a full batch is quick enough.
    """

    ahead = 0

    def __init__(
        self,
        session: Any,
        task: ServedTask,
        output: str,
        pooling: str,
        pad_id: int,
        shapes: tuple[Shape, ...],
        batch_invariant: bool = False,
        brief_tokens: int | None = None,
    ):
        self._session, self._task, self._output, self._pooling, self._pad_id = session, task, output, pooling, pad_id
        self._names = {node.name for node in session.get_inputs()}
        self.shapes, self.batch_invariant, self.brief_tokens = shapes, batch_invariant, brief_tokens

    def warm(self, shape: Shape) -> None:
        """Run the session once, for the first shape only: onnxruntime compiles nothing for a shape."""
        if shape == self.shapes[0]:
            self._run([blank_row(shape.length)], shape.length)

    def padding(self, rows: Sequence[Row], shape: Shape) -> int:
        """Return the number of padding tokens in a forward pass, including padding rows."""
        longest = Shape(len(rows), max(row.size for row in rows))
        return padding_to(shape if self.batch_invariant else longest, rows)

    def begin(self, rows: Sequence[Row], shape: Shape) -> Callable[[], list[np.ndarray]]:
        """Run a forward pass when the returned function is called; see `JaxBackend.begin` for its outputs."""
        if not self.batch_invariant:
            return lambda: self._run(rows, max(row.size for row in rows))
        full = [*rows, *[rows[0]] * (shape.rows - len(rows))]
        return lambda: self._run(full, shape.length)[: len(rows)]

    def _run(self, rows: Sequence[Row], length: int) -> list[np.ndarray]:
        inputs = padded(rows, length, self._pad_id)
        feed = {name: array.astype(np.int64) for name, array in inputs.items() if name in self._names}
        (output,) = self._session.run([self._output], feed)
        output = output.astype(np.float32, copy=False)
        if self._pooling:
            output = pool(output, pooling_mask(rows, inputs["attention_mask"]), self._pooling)
        if self._task is ServedTask.FILL_MASK:
            output = output[np.arange(len(rows)), [row.masked_position for row in rows]][:, None]
        return self._task.per_row(output, [row.size for row in rows])


def pool(states: np.ndarray, mask: np.ndarray, pooling: str) -> np.ndarray:
    """Pool hidden states `[B, S, D]` to vectors `[B, D]`: the `mean`, the `max`, or the first token (`cls`) of those
    whose mask `[B, S]` is 1."""
    weights = mask[:, :, None].astype(states.dtype)
    if pooling == "cls":
        return states[np.arange(len(mask)), mask.argmax(axis=1)]
    if pooling == "max":
        return np.where(weights > 0, states, -np.inf).max(axis=1)
    return (states * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9)


def open_onnx_model(
    path: str, name: str, file: str, task: ServedTask | None, batch_tokens: int | None, batch_invariant: bool = False
) -> ServedModel:
    """Open an exported model directory for onnxruntime.

    Args:
        path: a directory with `config.json`, the files of the tokenizer, and the ONNX file.
        name: name in requests.
        file: the ONNX file, relative to `path`.
        task: the task; None = inferred from the outputs of the file.
        batch_tokens: tokens in a full batch; None = 512.
        batch_invariant: whether answers must be bitwise independent of other requests.

    Raises:
        InputError: a file is missing or damaged, or the inputs and outputs of the ONNX file are not those of a BERT.
    """
    root = hub.locate(path)
    config = BertConfig.from_pretrained(root)
    tokenizer = load_tokenizer(root)
    layout = sentence_transformers.read_layout(root)
    settings = layout.settings if layout is not None else NO_SETTINGS
    session = open_onnx_session(root / file, "--backend onnxruntime")
    outputs = {node.name: list(node.shape) for node in session.get_outputs()}
    task = task or _task_of(outputs, config, layout.head if layout is not None else "", f"{root / file}")
    output, pooling, table = "logits", "", None
    if task is ServedTask.EMBED:
        if layout is not None:
            config, settings, *_ = sentence_transformers.read_embedding(layout, config)
        output = "sentence_embedding" if "sentence_embedding" in outputs else "last_hidden_state"
        pooling = "" if output == "sentence_embedding" else config.pooling
        if pooling not in ("", "mean", "cls", "max") or (pooling and config.embedding_layers):
            raise InputError(f"{root / file}: expected an output sentence_embedding for pooling {pooling}, found none")
        if not pooling and not settings.include_prompt and any(text for _, text in settings.prompts):
            expected = "an output last_hidden_state, as the model does not pool prompts"
            raise InputError(f"{root / file}: expected {expected}, found sentence_embedding")
    elif task is ServedTask.EMBED_SPARSE:
        output = "sentence_embedding"
        config, settings, table = _sparse_settings(root, layout, config)
    if output not in outputs:
        raise InputError(f"{root / file}: expected an output {output} for {task.value}, found {sorted(outputs)}")
    tokenizer = settings.tokenizer(tokenizer)
    check_vocabulary(tokenizer, config, root)
    max_length = settings.longest(config.max_position_embeddings, tokenizer)
    tokens = batch_tokens or _BATCH_TOKENS
    brief = tokens // BRIEF
    shapes = static_shapes(max_length, tokens, batch_invariant, brief)
    backend = OnnxBackend(session, task, output, pooling, tokenizer.pad_id, shapes, batch_invariant, brief)
    return ServedModel(name, path, task, config, tokenizer, settings, max_length, "float32",
                       not pooling and config.normalize_embeddings, [backend], table)  # fmt: skip


def _sparse_settings(
    root: storage.Path, layout: ModuleLayout | None, config: BertConfig
) -> tuple[BertConfig, TextSettings, np.ndarray | None]:
    """Return config, settings and query weights of a SparseEncoder. Raises InputError for any other directory."""
    if layout is None or layout.head != "sparse_embedding":
        found = "none" if layout is None else f"those of a {layout.model_type}"
        raise InputError(f"{root}: expected the files of a SparseEncoder beside the ONNX file, found {found}")
    config, settings, _, queries = sparse_encoders.read_sparse(layout, config)
    if queries is None:
        return config, settings, None
    with contextlib.ExitStack() as stack:
        tensor = query_weights.open_query_weights(queries, root, root, config.vocab_size, stack)
        return config, settings, tensor.read().astype(np.float32)


def _task_of(outputs: dict[str, list[Any]], config: BertConfig, head: str, where: str) -> ServedTask:
    """Infer the task of a model from the names and shapes of its outputs, and the head that its files name, if any."""
    if "sentence_embedding" in outputs and head == "sparse_embedding":
        return ServedTask.EMBED_SPARSE
    if outputs.keys() & {"sentence_embedding", "last_hidden_state"}:
        return ServedTask.EMBED
    if "logits" in outputs:
        shape = outputs["logits"]
        if len(shape) == 2:
            return ServedTask.CLASSIFY
        return ServedTask.FILL_MASK if shape[-1] == config.vocab_size else ServedTask.TAG
    raise InputError(f"{where}: expected an output logits, sentence_embedding or last_hidden_state, found {outputs}")
