"""Convert a whole model to an ONNX model, and write its files."""

import functools
from typing import Any

import jax
import numpy as np

import bert_jax
from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.export.onnx.graph import OnnxGraph
from bert_jax.export.onnx.operators import OPERATORS
from bert_jax.export.onnx.program import add_function
from bert_jax.export.onnx.values import Value, known
from bert_jax.export.signature import signature_of
from bert_jax.export.stablehlo import flat_forward, flat_weights, symbolic_inputs
from bert_jax.extras import import_extra
from bert_jax.modeling import Bert, Compute, Params

# A protocol buffer holds 2 GiB at most: the parameters of a larger model are in a file beside the graph.
MOST_BYTES_INSIDE = 2_000_000_000
WORDS = "embeddings.word_embeddings"  # name of the initializer of the word embedding


def onnx_model(config: BertConfig, head: str, params: Params, dtype: str = "float32") -> Any:
    """Build the ONNX model of any family and head, for any batch size and length up to the model's positions.

    Args:
        config: the architecture, without quantization.
        head: one of `modeling.HEADS`.
        params: the canonical parameter tree of float32 arrays.
        dtype: dtype of parameters and activations: float32 or float16. LayerNorm statistics, angles of rotary
            positions, pooling and outputs are float32 in both.

    Returns:
        An `onnx.ModelProto` with the inputs (int64) and outputs (float32) of `signature_of`.

    Raises:
        InputError: the package onnx is not installed, or the model's attention may be block-sparse.
    """
    signature, graph = signature_of(config, head), OnnxGraph(dtype)
    # A float16 model is traced as bfloat16 on an accelerator: the steps that need float32 are the same for both.
    compute = Compute("float32" if dtype == "float32" else "bfloat16", "unroll", attention="xla", platform="tpu")
    weights = dict(sorted(flat_weights(params).items()))  # JAX flattens dicts in sorted order
    shapes = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in weights.items()}
    run = functools.partial(flat_forward, Bert(config, head, compute))
    # For two or more tokens, the last layer may compute only the first token. The nodes are right for one token too.
    inputs = symbolic_inputs(config, head, shortest=2)
    values = [known(leaf, name.removesuffix("/embedding").replace("/", ".")) for name, leaf in weights.items()]
    for name, axes in signature.inputs.items():
        graph.add_symbols(name, axes)
        values.append(Value(axes, name, dtype=np.dtype(np.int64)))
    for name, result in add_function(graph, OPERATORS, run, (shapes, *inputs), values).items():
        graph.output(result, name)
    return graph.model(signature.inputs, signature.outputs, bert_jax.__version__)


def write_onnx(model: Any, path: storage.Path) -> None:
    """Write an ONNX model to a local path, and check the file with onnx.

    If the parameters exceed `MOST_BYTES_INSIDE`, they are written to `PATH_data` beside it.
    """
    onnx = import_extra("onnx", "onnx")
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    options: dict[str, Any] = {}
    if size > MOST_BYTES_INSIDE:
        options = {"save_as_external_data": True, "all_tensors_to_one_file": True, "location": f"{path.name}_data"}
    onnx.save_model(model, str(path), **options)
    onnx.checker.check_model(str(path))
