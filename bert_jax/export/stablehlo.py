"""A model as a serialized StableHLO program of `jax.export`, with its parameters in a safetensors file."""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.formats import safetensors_files, safetensors_writing
from bert_jax.conversion.model_tensors import nest
from bert_jax.export.signature import Arrays, Runner, SourceModel, forward, signature_of
from bert_jax.extras import import_extra
from bert_jax.modeling import Bert, Compute, Params
from bert_jax.parameter_sharding import parameter_name

PLATFORMS = ("cpu", "tpu", "cuda")
WEIGHTS = "weights.safetensors"
PROGRAMS = {"float32": "model.stablehlo", "bfloat16": "model_bf16.stablehlo"}


def write_stablehlo(directory: storage.Path, source: SourceModel, dtypes: tuple[str, ...]) -> None:
    """Write the `PROGRAMS` of some dtypes, and the float32 parameters, into a local directory.

    The parameters are arguments of a program, not constants in it: a program with constants of hundreds of megabytes
    compiles slowly, and cannot hold more than 2 GiB.
    """
    import_extra("flatbuffers", "stablehlo")
    weights = flat_weights(source.params)
    safetensors_writing.write(directory / WEIGHTS, weights)
    for dtype in dtypes:
        program = stablehlo_program(source.config, source.head, weights, dtype)
        storage.write_atomically(directory / PROGRAMS[dtype], bytes(program.serialize()))


def open_stablehlo(directory: storage.Path, dtype: str) -> Runner:
    """Open a program and its parameters from their files, as a function of int32 inputs."""
    program = jax.export.deserialize(bytearray((directory / PROGRAMS[dtype]).read_bytes()))
    with safetensors_files.open_tensors(directory / WEIGHTS) as tensors:
        weights = {name: np.asarray(tensor.read()) for name, tensor in tensors.items()}
    run = jax.jit(program.call)
    return lambda inputs: {name: np.asarray(value) for name, value in run(weights, *inputs.values()).items()}


def stablehlo_program(
    config: BertConfig, head: str, weights: Mapping[str, Any], dtype: str = "float32"
) -> jax.export.Exported:
    """Export the forward pass for any batch size and any length up to the model's positions, on all of `PLATFORMS`.

    Args:
        config: the architecture, without quantization.
        head: one of `modeling.HEADS`.
        weights: the parameters, named as by `flat_weights`; only shapes and dtypes matter.
        dtype: dtype of matrix products: float32 or bfloat16.

    Returns:
        The program: a function of the weights and the int32 inputs of `signature_of` in their order, which returns a
        dict of its float32 outputs.
    """
    # One program serves all platforms: traced as for CPUs in float32, and as for accelerators in bfloat16.
    platform = "cpu" if dtype == "float32" else "tpu"
    bert = Bert(config, head, Compute(dtype=dtype, attention="xla", platform=platform))
    shapes = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in weights.items()}
    run = jax.jit(functools.partial(flat_forward, bert))
    with without_locations():
        return jax.export.export(run, platforms=PLATFORMS)(shapes, *symbolic_inputs(config, head))


@contextlib.contextmanager
def without_locations() -> Iterator[None]:
    """Lower programs within the block without the file names and line numbers of their Python code."""
    option = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, option)
    jax.config.update(option, 0)
    try:
        yield
    finally:
        jax.config.update(option, before)


def flat_forward(bert: Bert, weights: dict[str, jax.Array], *inputs: jax.Array) -> dict[str, jax.Array]:
    """Run the forward pass on weights named as by `flat_weights` and on inputs in the order of `signature_of`."""
    names = signature_of(bert.config, bert.head).inputs
    outputs = forward(bert, nest(weights), dict(zip(names, inputs, strict=True)))
    return {name: value.astype(jnp.float32) for name, value in outputs.items()}


def flat_weights(params: Params) -> Arrays:
    """Return a dict of the parameters by path, such as `encoder/layers/mlp/up/kernel`."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {parameter_name(path): np.asarray(leaf) for path, leaf in leaves}


def symbolic_inputs(config: BertConfig, head: str, shortest: int = 1) -> list[jax.ShapeDtypeStruct]:
    """Return int32 inputs with symbolic sizes; the length is at least `shortest`, and at most the model's positions."""
    signature = signature_of(config, head)
    longest = config.max_position_embeddings
    scope = jax.export.SymbolicScope([f"sequence_length >= {shortest}", f"sequence_length <= {longest}"])
    return [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(", ".join(axes), scope=scope), np.int32)
        for axes in signature.inputs.values()
    ]
