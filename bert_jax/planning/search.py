"""Find the largest batches that fit a slice, by mesh and rematerialisation, by compiling candidates."""

import dataclasses
import math
from collections.abc import Callable, Iterator

from bert_jax import recipes
from bert_jax.errors import InputError
from bert_jax.modeling.compute import REMATS
from bert_jax.planning.plan import StagePlan, plan
from bert_jax.planning.slices import Slice

_FIRST = 8  # sequences per device in the first trial
_MOST = 4096  # maximum number of sequences per device


@dataclasses.dataclass(frozen=True)
class Trial:
    """A stage compiled with one choice of mesh, rematerialisation and batch size.

    Attributes:
        mesh: mesh axis -> number of devices.
        remat: rematerialisation, as in a recipe.
        sequences: sequences per step on each group of `tensor` devices.
        stage: the plan of the stage.
    """

    mesh: dict[str, int]
    remat: str
    sequences: int
    stage: StagePlan

    @property
    def tokens_per_second(self) -> float:
        """Return tokens per second over all devices, at the roofline."""
        step = self.stage.seconds.step if self.stage.seconds else math.inf
        return self.stage.batch_size * self.stage.length / step


@dataclasses.dataclass(frozen=True)
class FoundPlan:
    """The largest batch (a power of two per device) that fits, and the smallest that does not.

    Attributes:
        fits: the largest batch that fits; None if one sequence does not fit.
        beyond: the smallest batch that does not fit; None if all tried batches fit.
    """

    fits: Trial | None
    beyond: Trial | None


def search(recipe: recipes.Recipe, topology: Slice, say: Callable[[str], None] = lambda _: None) -> Iterator[FoundPlan]:
    """Find the largest batch for each mesh and rematerialisation, in the recipe's stage with the most steps.

    Args:
        recipe: a pretraining recipe, not yet resolved; its mesh, remat, batch sizes and accumulation are replaced.
        topology: a slice of `find_slice`.
        say: function that is called with progress messages.

    Raises:
        InputError: the recipe is invalid, or not for pretraining.
    """
    if not recipes.is_pretraining(recipe):
        raise InputError(f"--search: expected a pretraining recipe, found one of {recipe.task}")
    heads = recipes.model_config(recipe).key_value_heads
    for mesh in meshes(len(topology.devices), topology.num_slices, heads):
        for remat in REMATS:
            yield _largest(recipe, topology, mesh, remat, say)


def meshes(devices: int, slices: int, heads: int) -> list[dict[str, int]]:
    """Return the meshes to try: parameters copied or sharded over a slice, tensor parallelism of 1 or 2."""
    shapes = []
    for tensor in (1, 2):
        if heads % tensor or devices // slices % tensor:
            continue
        inside = devices // slices // tensor
        shapes += [{"data": devices // tensor // fsdp, "fsdp": fsdp, "tensor": tensor} for fsdp in sorted({1, inside})]
    return shapes


def _largest(
    recipe: recipes.Recipe, topology: Slice, mesh: dict[str, int], remat: str, say: Callable[[str], None]
) -> FoundPlan:
    tried: dict[int, Trial] = {}

    def fits(sequences: int) -> bool:
        if sequences not in tried:
            tried[sequences] = _try(recipe, topology, mesh, remat, sequences, say)
        return tried[sequences].stage.fits

    size = _FIRST
    if fits(size) and fits(2 * size):
        # Memory grows nearly linearly with the batch.
        peak, peak_of_double = (tried[n].stage.peak_bytes for n in (size, 2 * size))
        room = topology.chip.hbm_gib * 2**30 - peak
        size = min(_MOST, max(2 * size, 2 ** int(math.log2(size + size * room / max(peak_of_double - peak, 1)))))
    while size > 1 and not fits(size):
        size //= 2
    while size < _MOST and fits(size) and fits(2 * size):
        size *= 2
    return FoundPlan(tried[size] if fits(size) else None, tried.get(2 * size if fits(size) else size))


def _try(
    recipe: recipes.Recipe,
    topology: Slice,
    mesh: dict[str, int],
    remat: str,
    sequences: int,
    say: Callable[[str], None],
) -> Trial:
    num_steps, length, _ = max(recipes.stages(recipe))
    changed = recipe.copy_and_resolve_references()
    size = sequences * mesh["data"] * mesh["fsdp"]
    changed.unlock()
    changed.update({"mesh": mesh, "remat": remat, "stages": ((num_steps, length, size),), "accumulation_steps": 1})
    say(f"mesh {' x '.join(map(str, mesh.values()))}, remat {remat}, {sequences} sequences of {length} per device")
    (stage,) = plan(changed, topology).stages
    return Trial(mesh, remat, sequences, stage)
