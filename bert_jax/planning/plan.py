"""Plan a recipe on a slice: compile its training steps, and report memory, time and collectives.

The time of a step is bounded by a roofline (Williams et al. 2009, doi:10.1145/1498765.1498785):

    compute        FLOPs, including recomputed ones / peak FLOP/s
    memory         bytes to and from HBM in the compiled schedule / HBM bandwidth
    interconnect   bytes sent by ring algorithms / bandwidth of both directions of one link, or of the network
                   between slices
    step           max(compute, memory, hidden interconnect) + exposed interconnect

The roofline is a lower bound of the time of a step; real steps are slower.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from bert_jax import jobs, parameter_sharding, recipes, sharding
from bert_jax.data.batches import sub_batches
from bert_jax.jobs.abstract import AbstractTask, Stage
from bert_jax.planning.compiling import compile_step
from bert_jax.planning.hlo import Collective
from bert_jax.planning.slices import Slice
from bert_jax.training.flops import step_flops
from bert_jax.training.peaks import peak_flops
from bert_jax.training.program import Program, check_mesh, make_program


@dataclasses.dataclass(frozen=True)
class Seconds:
    """The roofline of one step, in seconds."""

    compute: float
    memory: float
    hidden: float  # communication that overlaps with other work
    exposed: float  # communication that does not overlap

    @property
    def step(self) -> float:
        """Return the lower bound of the time of the step."""
        return max(self.compute, self.memory, self.hidden) + self.exposed

    @property
    def bound_by(self) -> str:
        """Return the bottleneck: compute, memory or interconnect."""
        parts = {"compute": self.compute, "memory": self.memory, "interconnect": self.hidden + self.exposed}
        return max(parts, key=lambda name: parts[name])


@dataclasses.dataclass(frozen=True)
class StagePlan:
    """The plan of a stage of the recipe; bytes are per device.

    Attributes:
        num_steps: number of steps; 0 = not known.
        length: tokens per sequence.
        batch_size: examples per step, over all devices.
        state_bytes: bytes of parameters and optimizer state.
        peak_bytes: peak memory; for a stage that does not fit, the memory that it needs.
        fits: whether the step fits in the device's memory.
        collectives: the collectives of a step.
        model_flops: model FLOPs of a step over all devices, as MFU counts them.
        hbm_bytes: bytes read from and written to HBM in a step.
        seconds: the roofline; None if the stage does not fit.
        mfu: MFU at the roofline.
        compile_seconds: compile time.
    """

    num_steps: int
    length: int
    batch_size: int
    state_bytes: int
    peak_bytes: int
    fits: bool
    collectives: tuple[Collective, ...]
    model_flops: float
    hbm_bytes: int
    seconds: Seconds | None
    mfu: float
    compile_seconds: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a recipe on a slice.

    Attributes:
        topology: the slice, with its chips and devices.
        mesh: mesh axis -> number of devices.
        remat: the recipe's rematerialisation.
        accumulation_steps: micro-batches per step.
        parameters: number of parameters.
        shardings: parameter -> its shape and sharding.
        stages: the plans of the stages, in order.
    """

    topology: Slice
    mesh: dict[str, int]
    remat: str
    accumulation_steps: int
    parameters: int
    shardings: dict[str, str]
    stages: tuple[StagePlan, ...]

    @property
    def fits(self) -> bool:
        """Return whether every stage fits."""
        return all(stage.fits for stage in self.stages)

    @property
    def hours(self) -> float:
        """Return the hours of the whole recipe at the roofline."""
        return sum(stage.num_steps * stage.seconds.step for stage in self.stages if stage.seconds) / 3600

    @property
    def chip_hours(self) -> float:
        """Return hours times chips."""
        return self.hours * self.topology.chips


def plan(recipe: recipes.Recipe, topology: Slice, say: Callable[[str], None] = lambda _: None) -> Plan:
    """Compile every stage of a recipe for a slice, and return the plan.

    Args:
        recipe: a recipe, not yet resolved.
        topology: a slice of `find_slice`.
        say: function that is called with progress messages.

    Raises:
        InputError: the recipe is invalid, or its batch, heads or parameters cannot be divided over the slice.
    """
    recipe = recipes.resolve(recipe, platform="tpu")
    mesh = topology.mesh(recipe)
    abstract_task = for_tpu(jobs.abstract_task(recipe))
    check_mesh(recipe, abstract_task.task.model, mesh, evaluates=False)
    num_steps = sum(stage.num_steps for stage in abstract_task.stages)
    with jax.set_mesh(mesh):
        program = make_program(recipe, abstract_task.task, abstract_task.init_params, num_steps, mesh)
        stages = []
        for stage in abstract_task.stages:
            say(f"compiling {stage_text(stage)} for {topology.name}")
            stages.append(_plan_stage(recipe, abstract_task, program, stage, topology, mesh))
    params = jax.tree_util.tree_leaves_with_path(program.like.params)
    return Plan(
        topology=topology,
        mesh=dict(mesh.shape),
        remat=recipe.remat,
        accumulation_steps=recipe.accumulation_steps,
        parameters=sum(leaf.size for _, leaf in params),
        shardings={
            parameter_sharding.parameter_name(path): f"{leaf.shape} {leaf.sharding.spec}" for path, leaf in params
        },
        stages=tuple(stages),
    )


def stage_text(stage: Stage) -> str:
    """Return the shape of a batch as text: `256 x 512`, or `256 x 4 x 512` if an example has several sequences."""
    shapes = (part["input_ids"].shape for part in sub_batches(stage.batch).values())
    return " + ".join(" x ".join(map(str, shape)) for shape in shapes)


def for_tpu(abstract_task: AbstractTask) -> AbstractTask:
    """Return the abstract task with a model that targets TPU."""
    return dataclasses.replace(abstract_task, task=_on_tpu(abstract_task.task))


def _on_tpu(part: Any) -> Any:
    """Return a copy of a model, or of a task and its models, that targets TPU; a task may wrap another task."""
    if hasattr(part, "wrapped"):  # a task of several data sets
        return part.wrapped(_on_tpu)
    if hasattr(part, "compute"):
        return dataclasses.replace(part, compute=dataclasses.replace(part.compute, platform="tpu"))
    names = {field.name for field in dataclasses.fields(part)} & {"model", "task", "teacher"}
    return dataclasses.replace(part, **{name: _on_tpu(getattr(part, name)) for name in names if getattr(part, name)})


def _plan_stage(
    recipe: recipes.Recipe, abstract_task: AbstractTask, program: Program, stage: Stage, topology: Slice, mesh: Mesh
) -> StagePlan:
    split = NamedSharding(mesh, sharding.batch_spec())
    batch = {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=split) for name, array in stage.batch.items()
    }
    shapes = [part["input_ids"].shape for part in sub_batches(stage.batch).values()]
    flops = step_flops(abstract_task.task.model, stage.batch)
    lowered = program.train_step.lower(program.like, batch, 0)  # type: ignore[attr-defined]
    compiled = compile_step(lowered, dict(mesh.shape), topology)
    best = (peak_flops(mesh.devices.flat[0]) or 0.0) * mesh.size
    seconds = Seconds(
        compute=flops * _recomputed(recipe.remat) / best,
        memory=compiled.hbm_bytes / topology.chip.hbm_bandwidth,
        hidden=sum(_seconds(collective, topology) for collective in compiled.collectives if collective.hidden),
        exposed=sum(_seconds(collective, topology) for collective in compiled.collectives if not collective.hidden),
    )
    return StagePlan(
        num_steps=stage.num_steps,
        length=max(shape[-1] for shape in shapes),
        batch_size=sum(shape[0] for shape in shapes),
        state_bytes=_bytes_of(program.like),
        peak_bytes=compiled.peak_bytes,
        fits=compiled.fits,
        collectives=compiled.collectives,
        model_flops=flops,
        hbm_bytes=compiled.hbm_bytes,
        seconds=seconds if compiled.fits else None,
        mfu=flops / best / seconds.step if compiled.fits else 0.0,
        compile_seconds=compiled.seconds,
    )


def _recomputed(remat: str) -> float:
    """Return executed FLOPs / model FLOPs: with remat `full`, each layer's forward pass runs twice."""
    return 4 / 3 if remat == "full" else 1.0


def _seconds(collective: Collective, topology: Slice) -> float:
    """Return the time of a collective in one step."""
    if collective.network:
        return collective.wire_bytes / topology.chip.network_bandwidth
    return collective.wire_bytes / (2 * topology.chip.link_bandwidth)


def _bytes_of(tree: Any) -> int:
    """Return the bytes of a tree of sharded arrays on one device."""
    leaves = jax.tree.leaves(tree)
    return sum(leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves)
