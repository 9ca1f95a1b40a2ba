"""int8 copies of a float32 ONNX model, by onnxruntime's own quantizer."""

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from bert_jax import storage
from bert_jax.export.extras import import_extra
from bert_jax.export.onnx.model import MOST_BYTES_INSIDE
from bert_jax.export.signature import Arrays, as_int64

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
    with _quietly():
        quantization.quantize_dynamic(
            str(source),
            str(target),
            op_types_to_quantize=["MatMul", "Gather"],
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
    with _quietly():
        quantization.quantize_static(
            str(source),
            str(target),
            _Reader(batches),
            op_types_to_quantize=["MatMul", "Gather"],
            nodes_to_quantize=_weighted_nodes(source),
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            use_external_data_format=_is_large(source),
            extra_options={"MatMulConstBOnly": True, "OpTypesToExcludeOutputQuantization": ["MatMul", "Gather"]},
            **_WEIGHTS,
        )


class _Reader:
    """The batches, as onnxruntime's calibration reads them."""

    def __init__(self, batches: Iterable[Arrays]):
        self._batches = iter(batches)

    def get_next(self) -> Arrays | None:
        batch = next(self._batches, None)
        return None if batch is None else as_int64(batch)


def _weighted_nodes(path: storage.Path) -> list[str]:
    """Return the names of the nodes with a parameter of two axes: dense layers and embedding tables."""
    graph = import_extra("onnx", "onnx").load(str(path), load_external_data=False).graph
    tables = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    return [node.name for node in graph.node if node.op_type in ("MatMul", "Gather") and tables & set(node.input)]


def _is_large(path: storage.Path) -> bool:
    """Return whether the int8 copy may need a file of its own for its parameters."""
    beside = path.parent / f"{path.name}_data"
    return beside.exists() and beside.size() > 3 * MOST_BYTES_INSIDE


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Drop what the quantizer logs on the root logger: advice about its own arguments."""
    root = logging.getLogger()

    def drop(record: Any) -> bool:
        return False

    root.addFilter(drop)
    try:
        yield
    finally:
        root.removeFilter(drop)
