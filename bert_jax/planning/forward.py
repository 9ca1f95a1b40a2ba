"""Plan forward passes on a slice, in bfloat16 and quantized modes, by the roofline of `bert_jax.planning.plan`."""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax import parameter_sharding, sharding
from bert_jax.config import BertConfig
from bert_jax.config.quantization import Quantization
from bert_jax.errors import InputError
from bert_jax.modeling import Bert, Compute, Params
from bert_jax.planning.accelerators import INT8_TOPS
from bert_jax.planning.compiling import compile_step
from bert_jax.planning.slices import Slice
from bert_jax.training.flops import forward_flops
from bert_jax.training.peaks import peak_flops

FORWARD_MODES = ("bfloat16", "int8", "int8_dynamic", "int4")


@dataclasses.dataclass(frozen=True)
class ForwardPlan:
    """The plan of a forward pass over a batch of texts; bytes are per device.

    Attributes:
        mode: bfloat16, or a mode of `bert_jax.config.quantization.MODES`.
        texts: texts in the batch, over all devices.
        length: tokens per text.
        parameter_bytes: bytes of the parameters.
        peak_bytes: peak memory.
        fits: whether the pass fits in the device's memory.
        flops: FLOPs of all matrix products, over all devices.
        int8_flops: FLOPs of those matrix products that multiply int8 by int8.
        hbm_bytes: bytes read from and written to HBM.
        compute: seconds of the matrix products at peak FLOP/s.
        memory: seconds to move `hbm_bytes` at HBM bandwidth.
    """

    mode: str
    texts: int
    length: int
    parameter_bytes: int
    peak_bytes: int
    fits: bool
    flops: float
    int8_flops: float
    hbm_bytes: int
    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        """Return the lower bound of the time of the pass."""
        return max(self.compute, self.memory)

    @property
    def bound_by(self) -> str:
        """Return the bottleneck: compute or memory."""
        return "compute" if self.compute >= self.memory else "memory"

    @property
    def texts_per_second(self) -> float:
        """Return the number of texts per second at the roofline; 0 if the pass does not fit."""
        return self.texts / self.seconds if self.fits else 0.0


def plan_forward(
    config: BertConfig,
    head: str,
    topology: Slice,
    texts: int,
    length: int,
    modes: Sequence[str] = FORWARD_MODES,
    say: Callable[[str], None] = lambda _: None,
) -> list[ForwardPlan]:
    """Compile the forward pass of a model for a slice, in bfloat16 and quantized; each device has all parameters.

    Args:
        config: the architecture; its own quantization has no effect.
        head: one of `bert_jax.modeling.HEADS`.
        topology: a slice of `find_slice`.
        texts: texts in a batch, over all devices.
        length: tokens per text.
        modes: modes to plan.
        say: function that is called with progress messages.

    Raises:
        InputError: the batch cannot be divided over the devices, or the texts are longer than the model's positions.
    """
    mesh = sharding.make_mesh(devices=topology.devices)
    if texts < 1 or texts % mesh.size:
        raise InputError(
            f"--batch-size: expected a multiple of the {mesh.size} devices of {topology.name}, found {texts}"
        )
    if not 1 <= length <= config.max_position_embeddings:
        raise InputError(
            f"--length: expected 1 to {config.max_position_embeddings} tokens, the model's positions, found {length}"
        )
    plans = []
    for mode in modes:
        say(f"compiling {texts} x {length} in {mode} for {topology.name}")
        quantization = None if mode == "bfloat16" else Quantization(mode)
        model = Bert(config.replace(quantization=quantization), head, Compute("bfloat16", platform="tpu"))
        shapes = model.abstract_params()  # computed outside of the mesh, whose devices cannot hold arrays
        with jax.set_mesh(mesh):
            plans.append(_plan(model, shapes, mode, topology, texts, length, mesh))
    return plans


def _plan(model: Bert, shapes: Params, mode: str, topology: Slice, texts: int, length: int, mesh: Mesh) -> ForwardPlan:
    replicated, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, sharding.batch_spec())
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=replicated), shapes)
    ids = jax.ShapeDtypeStruct((texts, length), jnp.int32, sharding=split)
    forward = functools.partial(model.apply, output_last_hidden_state=model.head == "encoder")
    compiled = compile_step(jax.jit(forward).lower(params, ids, ids), dict(mesh.shape), topology)
    flops, int8_flops = (
        forward_flops(model.config, model.head, texts, length),
        _int8_flops(model, shapes, texts * length),
    )
    best = (peak_flops(mesh.devices.flat[0]) or 0.0) * mesh.size
    int8_best = INT8_TOPS.get(topology.name.partition(":")[0], 0.0) * 1e12 * mesh.size or best
    return ForwardPlan(
        mode=mode,
        texts=texts,
        length=length,
        parameter_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params)),
        peak_bytes=compiled.peak_bytes,
        fits=compiled.fits,
        flops=flops,
        int8_flops=int8_flops,
        hbm_bytes=compiled.hbm_bytes,
        compute=(flops - int8_flops) / best + int8_flops / int8_best,
        memory=compiled.hbm_bytes / topology.chip.hbm_bandwidth,
    )


def _int8_flops(model: Bert, shapes: Params, tokens: int) -> float:
    """Return the FLOPs of int8 x int8 products: those of the quantized kernels that are applied to every token."""
    quantization = model.config.quantization
    if quantization is None or quantization.inputs == "float" or quantization.kernels != "int8":
        return 0.0
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    named = {parameter_sharding.parameter_name(path): leaf for path, leaf in leaves}
    pattern = r"(encoder|embeddings)/.*kernel/quantized"
    return 2.0 * tokens * sum(leaf.size for name, leaf in named.items() if re.fullmatch(pattern, name))
