"""A model as a serialized StableHLO program of `jax.export`, with its parameters in a safetensors file."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.export
import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.formats import safetensors_files
from bert_jax.export.signature import Arrays, forward, signature_of
from bert_jax.modeling import Bert, Compute, Params
from bert_jax.sharding import parameter_name

PLATFORMS = ("cpu", "tpu", "cuda")
PROGRAM, WEIGHTS = "model.stablehlo", "weights.safetensors"


def write_stablehlo(
    directory: storage.Path, config: BertConfig, head: str, params: Params, dtype: str = "float32"
) -> None:
    """Write the program and its parameters into a local directory.

    The parameters are arguments of the program, not constants in it: a program with constants of hundreds of megabytes
    compiles slowly, and cannot hold more than 2 GiB.

    Args:
        directory: the directory.
        config: the architecture, without quantization.
        head: one of `modeling.HEADS`.
        params: the canonical parameter tree of float32 arrays.
        dtype: dtype of matrix products: float32 or bfloat16.
    """
    weights = flat_weights(params)
    program = stablehlo_program(config, head, weights, dtype)
    storage.write_atomically(directory / PROGRAM, bytes(program.serialize()))
    safetensors_files.write(directory / WEIGHTS, weights)


def stablehlo_program(
    config: BertConfig, head: str, weights: Mapping[str, Any], dtype: str = "float32"
) -> jax.export.Exported:
    """Export the forward pass for any batch size and any length up to the model's positions, on all of `PLATFORMS`.

    Args:
        config: the architecture, without quantization.
        head: one of `modeling.HEADS`.
        weights: the parameters, as `flat_weights` names them; only shapes and dtypes matter.
        dtype: dtype of matrix products: float32 or bfloat16.

    Returns:
        The program: a function of the weights and the int32 inputs of `signature_of` in their order, which returns a
        dict of its float32 outputs.
    """
    # The forms of operations for CPUs and the backend xla run on every platform.
    bert = Bert(config, head, Compute(dtype=dtype, attention="xla", platform="cpu"))
    shapes = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in weights.items()}
    run = jax.jit(functools.partial(flat_forward, bert))
    return jax.export.export(run, platforms=PLATFORMS)(shapes, *_symbolic_inputs(config, head))


def flat_forward(bert: Bert, weights: dict[str, jax.Array], *inputs: jax.Array) -> dict[str, jax.Array]:
    """Run the forward pass on weights named as by `flat_weights` and on inputs in the order of `signature_of`."""
    names = signature_of(bert.config, bert.head).inputs
    return forward(bert, _tree(weights), dict(zip(names, inputs, strict=True)))


def flat_weights(params: Params) -> Arrays:
    """Return the parameters by their paths, such as `encoder/layers/mlp/up/kernel`."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {parameter_name(path): np.asarray(leaf) for path, leaf in leaves}


def _tree(weights: Mapping[str, Any]) -> Params:
    tree: Params = {}
    for path, leaf in weights.items():
        *folders, name = path.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[name] = leaf
    return tree


def _symbolic_inputs(config: BertConfig, head: str) -> list[jax.ShapeDtypeStruct]:
    """Return int32 inputs with symbolic sizes, of which the length is at most the model's positions."""
    signature = signature_of(config, head)
    scope = jax.export.SymbolicScope([f"sequence_length <= {config.max_position_embeddings}"])
    return [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(", ".join(axes), scope=scope), np.int32)
        for axes in signature.inputs.values()
    ]
