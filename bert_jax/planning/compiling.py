"""Compile a lowered training step for TPU, with a cache of earlier results."""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import re
import time
from typing import Any

import jax

from bert_jax import compilers, program_cache, storage
from bert_jax.planning.hlo import Collective, HloModule
from bert_jax.planning.slices import Slice


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The properties of a compiled step; bytes are per device.

    Attributes:
        fits: whether the step fits in the device's memory.
        peak_bytes: peak memory; for a step that does not fit, the memory that it needs.
        hbm_bytes: bytes read from and written to memory in a step.
        collectives: the collectives of a step.
        seconds: compile time.
    """

    fits: bool
    peak_bytes: int
    hbm_bytes: int
    collectives: tuple[Collective, ...]
    seconds: float


def compile_step(lowered: Any, mesh_shape: dict[str, int], topology: Slice) -> Compiled:
    """Compile a lowered step for a slice, or read the result of an earlier compilation from the cache.

    Args:
        lowered: a `jax.stages.Lowered`.
        mesh_shape: mesh axis -> number of devices.
        topology: the slice, with its chips and devices.
    """
    path = _cache() / f"{_fingerprint(lowered, mesh_shape, topology)}.json"
    if (cached := _read(path)) is not None:
        return cached
    compiled = _compile(lowered, mesh_shape, topology)
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write_atomically(path, json.dumps(dataclasses.asdict(compiled)))
    return compiled


def _read(path: storage.Path) -> Compiled | None:
    """Read a cached result; None if it is missing or damaged."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
        collectives = tuple(Collective(**c | {"axes": tuple(c["axes"])}) for c in content.pop("collectives"))
        return Compiled(**content, collectives=collectives)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _cache() -> storage.Path:
    return storage.Path(program_cache.user_directory()) / "plans"


def _fingerprint(lowered: Any, mesh_shape: dict[str, int], topology: Slice) -> str:
    """Return a hash of what determines the result: step, mesh, slice, compiler with its options, and this code."""
    versions = [importlib.metadata.version(package) for package in ("jax", "jaxlib", "libtpu")]
    options = [str(compilers.XLA_OPTIONS["tpu"]), os.environ.get("LIBTPU_INIT_ARGS", "")]
    parts = [lowered.as_text(), *options, str(mesh_shape), topology.name, str(topology.num_slices), *versions]
    readers = program_cache.fingerprint_of_sources(storage.Path(__file__).parent)
    return hashlib.sha256("\0".join([*parts, str(readers)]).encode()).hexdigest()


def _compile(lowered: Any, mesh_shape: dict[str, int], topology: Slice) -> Compiled:
    start = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return Compiled(False, asked_for(str(error)), 0, (), time.perf_counter() - start)
    spent = time.perf_counter() - start
    memory, module = compiled.memory_analysis(), HloModule(compiled.as_text())
    peak = (
        memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes + memory.generated_code_size_in_bytes
    )  # fmt: skip
    collectives = module.collectives(mesh_shape, topology.num_slices)
    return Compiled(True, peak, module.hbm_bytes(), tuple(collectives), spent)


def asked_for(error: str) -> int:
    """Return the bytes in an error such as `HLO temporaries (80.92G) exceeds available HBM` or `Used 20.09G of ...`."""
    match = re.search(r"\(([\d.]+)([KMGT])\) exceeds|Used ([\d.]+)([KMGT]) of", error)
    if not match:
        return 0
    number, unit = (group for group in match.groups() if group)
    return int(float(number) * 1024 ** " KMGT".index(unit))
