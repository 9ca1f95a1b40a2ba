"""TPU slices by name: the specifications of their chips, and their devices from the TPU compiler."""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import math
import re
from collections.abc import Iterator, Sequence

import jax
from jax.experimental import topologies
from jax.sharding import Mesh

from bert_jax import compilers, sharding
from bert_jax.errors import InputError, did_you_mean
from bert_jax.planning.accelerators import topology_of
from bert_jax.process import default_environment
from bert_jax.recipes import Recipe


@dataclasses.dataclass(frozen=True)
class Chip:
    """The specification of a TPU generation, per JAX device (a chip of v2, v3 and tpu7x is two devices).

    Attributes:
        dimensions: number of dimensions of its slices.
        hbm_gib: HBM in GiB.
        hbm_bandwidth: HBM bandwidth in bytes/s.
        link_bandwidth: bandwidth of one link to a neighbouring chip in one direction, in bytes/s.
        network_bandwidth: bandwidth between slices in bytes/s; 0 if slices cannot be combined.
        options: libtpu's options for a description of the chip as on real machines.
    """

    dimensions: int
    hbm_gib: float
    hbm_bandwidth: float
    link_bandwidth: float
    network_bandwidth: float
    options: tuple[tuple[str, str], ...] = ()


# Memory and network from docs.cloud.google.com/tpu/docs/{v2,v3,v4,v5e,v5p,v6e,tpu7x}; bandwidths of memory and links
# from "How to scale your model" (jax-ml.github.io/scaling-book/tpus), links of v2 and v3 from Jouppi et al. 2020
# (doi:10.1145/3360307). The values of v2, v3 and tpu7x are half of those of a chip.
CHIPS = {
    "v2": Chip(2, 8, 3.5e11, 3.1e10, 0),
    "v3": Chip(2, 16, 4.5e11, 4.1e10, 0),
    "v4": Chip(3, 32, 1.2e12, 4.5e10, 6.25e9, (("chip_config_name", "megacore"),)),
    "v5e": Chip(2, 16, 8.1e11, 4.5e10, 3.125e9),
    "v5p": Chip(3, 95, 2.8e12, 9e10, 6.25e9),
    "v6e": Chip(2, 32, 1.6e12, 9e10, 1.25e10),
    "tpu7x": Chip(3, 96, 3.69e12, 5e10, 6.25e9),
}
_HOST = (2, 2, 1)  # shape of a host's chips, libtpu's default


@dataclasses.dataclass(frozen=True)
class Slice:
    """A TPU slice, or several slices that train together.

    Attributes:
        name: the topology, such as `v5e:4x4`.
        chip: the specification of its chips.
        chips: number of chips, over all slices.
        devices: JAX devices for which programs can be compiled, but not run.
        num_slices: number of slices.
    """

    name: str
    chip: Chip
    chips: int
    devices: Sequence[jax.Device]
    num_slices: int

    def mesh(self, recipe: Recipe) -> Mesh:
        """Return the mesh of `recipe` on this slice."""
        return sharding.make_mesh(**recipe.mesh, devices=self.devices)


def find_slice(name: str, num_slices: int = 1) -> Slice:
    """Return the slice of a name such as `v5e:4x4`, `v5p:2x2x1` or `v5litepod-16`, from the TPU compiler.

    Args:
        name: generation and shape in chips, or an accelerator type of gcloud.
        num_slices: number of slices.

    Raises:
        InputError: there is no such slice, or the TPU compiler is not installed.
    """
    name = topology_of(name)
    generation, _, layout = name.partition(":")
    if generation not in CHIPS:
        raise InputError(f"--topology {name!r}: no TPU {generation!r}{did_you_mean(generation, CHIPS)}")
    chip = CHIPS[generation]
    example = "x".join("4" * chip.dimensions)
    if not re.fullmatch(r"[1-9]\d*" + r"x[1-9]\d*" * (chip.dimensions - 1), layout):
        raise InputError(f"--topology {name!r}: expected {generation} with {chip.dimensions} dimensions, such as "
                         f"{generation}:{example}, or an accelerator type such as v5litepod-16")  # fmt: skip
    if num_slices < 1:
        raise InputError(f"--slices: expected at least 1, found {num_slices}")
    if num_slices > 1 and not chip.network_bandwidth:
        raise InputError(f"--slices: expected 1, as slices of {generation} cannot be combined, found {num_slices}")
    shape = [int(size) for size in layout.split("x")]
    chips = math.prod(shape) * num_slices
    bounds = tuple(min(size, most) for size, most in zip([*shape, 1][:3], _HOST, strict=True))
    try:
        with _compiler():
            devices = topologies.get_topology_desc(
                platform="tpu",
                topology_name=name,
                num_slices=num_slices,
                chips_per_host_bounds=bounds,
                **dict(chip.options),
            ).devices
    except jax.errors.JaxRuntimeError as error:
        larger = f"{generation}:{'x'.join(str(_next_size(size, chip.dimensions)) for size in shape)}"
        raise InputError(
            f"--topology {name!r}: {str(error).splitlines()[0]}; the next larger slice is {larger}"
        ) from error
    return Slice(name, chip, chips, devices, num_slices)


def _next_size(size: int, dimensions: int) -> int:
    """Round a slice's side up to a valid size: a power of 2 in two dimensions, a multiple of 4 in three."""
    return 2 ** math.ceil(math.log2(size)) if dimensions == 2 else 4 * math.ceil(size / 4)


@contextlib.contextmanager
def _compiler() -> Iterator[None]:
    """Let libtpu, if it is loaded in the block, compile without looking for a TPU on this machine."""
    lines = [line for line in importlib.metadata.requires("jax") or () if re.match(r"libtpu\b.*extra == .tpu", line)]
    version = re.search(r"==\s*([\d.]+\d)", lines[0]) if lines else None
    installed = importlib.metadata.version("libtpu") if importlib.util.find_spec("libtpu") else None
    if installed is None or (version and not (installed + ".").startswith(version.group(1) + ".")):
        expected = f"libtpu {version.group(1)}" if version else "libtpu"
        raise InputError(f"planning needs the TPU compiler, {expected}; found {installed or 'none'}: "
                         f"pip install 'jax[tpu]=={jax.__version__}'")  # fmt: skip
    without_tpu = {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost"}
    beside_a_run = {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}  # a run on this machine may have loaded libtpu already
    with compilers.larger_stacks(), default_environment(without_tpu | beside_a_run):
        yield
