"""int8 peaks of chips, and topologies of Google Cloud's accelerator types: `v5litepod-16` is the slice `v5e:4x4`."""

import itertools
import re

from bert_jax.errors import InputError, did_you_mean

# Accelerator type without its number -> (generation, units per chip, dimensions of a slice, most chips of a slice). The
# number counts units: TensorCores (two per chip) or chips; docs.cloud.google.com/tpu/docs/{v2,...}.
_ACCELERATORS = {
    "v2": ("v2", 2, 2, 256),
    "v3": ("v3", 2, 2, 1024),
    "v4": ("v4", 2, 3, 4096),
    "v5litepod": ("v5e", 1, 2, 256),
    "v5e": ("v5e", 1, 2, 256),
    "v5p": ("v5p", 2, 3, 8960),
    "v6e": ("v6e", 1, 2, 256),
    "tpu7x": ("tpu7x", 2, 3, 9216),
}
# GKE's names of the generations, used with a topology: `tpu-v5-lite-podslice:4x4`.
_GKE = {
    "tpu-v4-podslice": "v4",
    "tpu-v5-lite-podslice": "v5e",
    "tpu-v5-lite-device": "v5e",
    "tpu-v5p-slice": "v5p",
    "tpu-v6e-slice": "v6e",
}
# Generation -> int8 peak of a chip in TOP/s, from docs.cloud.google.com/tpu/docs/{v5e,v6e}; other generations are
# planned at their bfloat16 peak.
INT8_TOPS = {"v5e": 393.0, "v6e": 1836.0}
_WITHIN_A_CUBE = {4: (2, 2, 1), 8: (2, 2, 2), 16: (2, 2, 4), 32: (2, 4, 4)}  # chips -> shape, in three dimensions
_CUBE = 64  # chips in a cube of 4 x 4 x 4, of which larger three-dimensional slices are made


def topology_of(name: str) -> str:
    """Return the topology of a slice, such as `v5e:4x4`, from a topology or one of Google's accelerator types.

    The shape is the one that gcloud chooses for the number of chips.

    Raises:
        InputError: there is no such accelerator, or no slice of this size.
    """
    generation, colon, shape = name.partition(":")
    if colon:
        return f"{_GKE.get(generation.lower(), generation)}:{shape}"
    match = re.fullmatch(r"([a-z][a-z0-9]*)-(\d{1,6})", name.lower())
    if not match:
        return name
    if match[1] not in _ACCELERATORS:
        raise InputError(
            f"--topology {name!r}: no accelerator type {match[1]!r}{did_you_mean(match[1], _ACCELERATORS)}"
        )
    generation, per_chip, dimensions, largest = _ACCELERATORS[match[1]]
    number = int(match[2])
    chips, rest = divmod(number, per_chip)
    sides = None if rest or not 0 < chips <= largest else _shape(chips, dimensions)
    if sides is None or (per_chip == 2 and chips < 4):
        sizes = [n for n in range(1, largest + 1) if (per_chip == 1 or n >= 4) and _shape(n, dimensions)]
        near = sorted(sorted(sizes, key=lambda size: (abs(size * per_chip - number), size))[:2])
        known = " or ".join(f"{match[1]}-{size * per_chip}" for size in near)
        counts = "TensorCores, two per chip" if per_chip == 2 else "chips"
        raise InputError(
            f"--topology {name!r}: no slice of this size; the number counts {counts}; the nearest sizes: {known}"
        )
    return f"{generation}:{'x'.join(map(str, sides))}"


def _shape(chips: int, dimensions: int) -> tuple[int, ...] | None:
    """Return the shape of a slice, or None if there is no slice with this number of chips."""
    if dimensions == 2:
        power = chips.bit_length() - 1
        if chips != 2**power or chips == 2:
            return None
        return 2 ** (power // 2), 2 ** (power - power // 2)
    if chips < _CUBE:
        return _WITHIN_A_CUBE.get(chips)
    cubes, rest = divmod(chips, _CUBE)
    if rest:
        return None
    divisors = [n for n in range(1, cubes + 1) if cubes % n == 0]
    shapes = ((a, b, cubes // (a * b)) for a, b in itertools.product(divisors, repeat=2) if cubes % (a * b) == 0)
    compact = min((shape for shape in shapes if list(shape) == sorted(shape)), key=sum)
    return tuple(4 * side for side in compact)
