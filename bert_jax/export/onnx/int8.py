"""int8 copies of a float32 ONNX model, by onnxruntime's own quantizer."""

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.export.onnx.model import MOST_BYTES_INSIDE, WORDS, write_onnx
from bert_jax.export.signature import Arrays, as_int64
from bert_jax.extras import import_extra

# Weights have 7 bits: with 8, CPUs without VNNI overflow in sums of products. One scale per output of a dense layer.
_WEIGHTS = {"per_channel": True, "reduce_range": True}


def quantize_dynamically(source: storage.Path, target: storage.Path) -> None:
    """Write an ONNX model with int8 weights, whose dense layers quantize their inputs at run time.

    Dense layers and the word embedding are quantized, and everything else stays float32.

    Args:
        source: the float32 model, on a local disk.
        target: the new file.
    """
    quantization = import_extra("onnxruntime.quantization", "onnx")
    with _quietly(), _with_int8_words(source, target) as started:
        quantization.quantize_dynamic(
            str(started),
            str(target),
            op_types_to_quantize=["MatMul", "Gather"],
            nodes_to_quantize=_weighted_nodes(started),
            weight_type=quantization.QuantType.QInt8,
            use_external_data_format=_is_large(source),
            **_WEIGHTS,
        )


def quantize_statically(source: storage.Path, target: storage.Path, batches: Iterable[Arrays]) -> None:
    """Write an ONNX model with int8 weights and calibrated uint8 inputs of its dense layers.

    The scale of an input comes from its smallest and largest value over `batches`.

    Args:
        source: the float32 model, on a local disk.
        target: the new file.
        batches: inputs of the model, without padding.
    """
    quantization = import_extra("onnxruntime.quantization", "onnx")
    with _quietly(), _with_int8_words(source, target) as started:
        quantization.quantize_static(
            str(started),
            str(target),
            _Reader(batches),
            op_types_to_quantize=["MatMul", "Gather"],
            nodes_to_quantize=_weighted_nodes(started),
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            use_external_data_format=_is_large(source),
            extra_options={"MatMulConstBOnly": True, "OpTypesToExcludeOutputQuantization": ["MatMul", "Gather"]},
            **_WEIGHTS,
        )


@contextlib.contextmanager
def _with_int8_words(source: storage.Path, target: storage.Path) -> Iterator[storage.Path]:
    """Yield a copy of the model whose word embedding is int8 with a scale for each row; it is removed afterwards.

    onnxruntime's quantizer has one scale for the whole table, although the rows differ in norm. If a masked-LM head
    reads the table too, it is left to that quantizer, and the model itself is yielded.
    """
    onnx = import_extra("onnx", "onnx")
    model = onnx.load(str(source))
    graph = model.graph
    readers = [node for node in graph.node if WORDS in node.input]
    if len(readers) != 1 or readers[0].op_type != "Gather":
        yield source
        return
    (words,) = (tensor for tensor in graph.initializer if tensor.name == WORDS)
    table, reader, place = onnx.numpy_helper.to_array(words), readers[0], list(graph.node).index(readers[0])
    scales = np.maximum(np.abs(table).max(axis=1, keepdims=True), 1e-12).astype(np.float32) / 127
    graph.initializer.remove(words)
    arrays = {"quantized": np.rint(table / scales).astype(np.int8), "scale": scales}
    graph.initializer.extend(onnx.numpy_helper.from_array(array, f"{WORDS}.{name}") for name, array in arrays.items())
    make, ids, results = onnx.helper.make_node, reader.input[1], {}
    for name in arrays:
        results[name] = f"{reader.name}/{name}"
        graph.node.insert(place, make("Gather", [f"{WORDS}.{name}", ids], [results[name]], results[name], axis=0))
    float32 = make(
        "Cast", [results["quantized"]], [f"{reader.name}/Cast"], f"{reader.name}/Cast", to=onnx.TensorProto.FLOAT
    )
    product = make("Mul", [f"{reader.name}/Cast", results["scale"]], list(reader.output), f"{reader.name}/Mul")
    graph.node.insert(place + 2, float32)
    graph.node.insert(place + 3, product)
    graph.node.remove(reader)
    copy = target.parent / f"{target.name}.words"
    try:
        write_onnx(model, copy)
        yield copy
    finally:
        for path in (copy, target.parent / f"{copy.name}_data"):
            if path.exists():
                path.unlink()


class _Reader:
    """Batches with the interface of onnxruntime's `CalibrationDataReader`."""

    def __init__(self, batches: Iterable[Arrays]):
        self._batches = iter(batches)

    def get_next(self) -> Arrays | None:
        batch = next(self._batches, None)
        return None if batch is None else as_int64(batch)


def _weighted_nodes(path: storage.Path) -> list[str]:
    """Return the names of the nodes to quantize: dense layers, and a word embedding that is not yet quantized."""
    graph = import_extra("onnx", "onnx").load(str(path), load_external_data=False).graph
    kernels = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    readers = {"MatMul": kernels, "Gather": {WORDS}}
    return [node.name for node in graph.node if readers.get(node.op_type, set()) & set(node.input)]


def _is_large(path: storage.Path) -> bool:
    """Return whether the int8 copy may need a separate file for its parameters."""
    beside = path.parent / f"{path.name}_data"
    return beside.exists() and beside.size() > 3 * MOST_BYTES_INSIDE


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Suppress what the quantizer logs on the root logger: advice about its own arguments."""
    root = logging.getLogger()

    def drop(record: Any) -> bool:
        return False

    root.addFilter(drop)
    try:
        yield
    finally:
        root.removeFilter(drop)
