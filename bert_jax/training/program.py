"""Build the training step of a run, after checking that recipe, model and mesh fit each other."""

import dataclasses
import importlib.util
from typing import TYPE_CHECKING

import jax
import optax
from jax.sharding import Mesh

from bert_jax import parameter_sharding, sharding
from bert_jax.errors import InputError
from bert_jax.extras import how_to_install
from bert_jax.jobs.base import Job, Task
from bert_jax.recipes import Recipe
from bert_jax.recipes.keys import compares_rows
from bert_jax.training.optimizers import OptimizerSettings, check_registered, make_optimizer
from bert_jax.training.schedules import Schedule, make_schedule
from bert_jax.training.state import InitParams, State, abstract_state
from bert_jax.training.step import TrainStep, jit_train_step, make_train_step

if TYPE_CHECKING:
    from bert_jax.modeling import Bert, Electra, EncoderDecoder

_SETTINGS = tuple(field.name for field in dataclasses.fields(OptimizerSettings))


@dataclasses.dataclass(frozen=True)
class Program:
    """The computation of a run at each step, on its mesh.

    Attributes:
        schedule: step -> learning rate.
        optimizer: the optimizer that the step applies.
        like: the shapes, dtypes and shardings of the state.
        shardings: the shardings of the state.
        train_step: the jitted step, (state, batch, seed) -> (state, metrics).
    """

    schedule: Schedule
    optimizer: optax.GradientTransformation
    like: State
    shardings: State
    train_step: TrainStep


def make_program(recipe: Recipe, task: Task, init_params: InitParams, num_steps: int, mesh: Mesh) -> Program:
    """Return the training step of a resolved recipe on `mesh`; compile nothing, and put nothing on a device."""
    schedule, optimizer = schedule_and_optimizer(recipe, num_steps)
    abstract = abstract_state(init_params, optimizer)
    shardings = parameter_sharding.param_shardings(mesh, abstract)
    like = jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), abstract, shardings
    )
    micro_batches = 1 if compares_rows(recipe) else recipe.accumulation_steps
    step = make_train_step(task, optimizer, micro_batches)
    return Program(schedule, optimizer, like, shardings, jit_train_step(step, mesh, shardings))


def check_mesh(recipe: Recipe, model: "Bert | Electra | EncoderDecoder", mesh: Mesh, evaluates: bool) -> None:
    """Raise InputError when batches or heads do not divide over the mesh."""
    parts = sharding.batch_parts(mesh)
    sizes = {stage[2] for stage in recipe.get("stages", ())} or {recipe.global_batch_size}
    micro = {size // recipe.accumulation_steps for size in sizes}
    evaluated = {recipe.eval_batch_size} if evaluates else set()
    for name, batch_sizes in (("a micro-batch", micro), ("eval_batch_size", evaluated)):
        for size in batch_sizes:
            if size % parts:
                raise InputError(f"mesh: expected {name} to be a multiple of {parts} (data * fsdp), found {size}")
    for part in model.models:
        for heads, what in (
            (part.config.num_attention_heads, "attention heads"),
            (part.config.key_value_heads, "heads of keys and values"),
        ):
            if heads % sharding.tensor_parts(mesh):
                raise InputError(f"mesh: tensor={sharding.tensor_parts(mesh)} does not divide the {heads} {what}")


def check_fits(recipe: Recipe, job: Job, mesh: Mesh) -> None:
    """Raise InputError when batches or heads do not divide over the mesh, or the recipe does not fit model or data."""
    check_mesh(recipe, job.task.model, mesh, bool(job.evaluations))
    if recipe.data.get("sets"):
        from bert_jax.jobs import several_sets

        several_sets.check_rows_of_sets(job.train_source, sharding.batch_parts(mesh) * recipe.accumulation_steps)
    check_registered(recipe.optimizer.name, OptimizerSettings(**{name: recipe.optimizer[name] for name in _SETTINGS}))
    layers = min(part.config.num_parameter_rows for part in job.task.model.models)
    for name, count in (
        ("reinit_layers", recipe.reinit_layers),
        ("optimizer.frozen_layers", recipe.optimizer.frozen_layers),
    ):
        if count > layers:
            raise InputError(f"config.{name}: expected at most the model's {layers} layers, found {count}")
    if recipe.best_metric and not job.evaluations:
        raise InputError(f"config.best_metric: {recipe.best_metric!r} needs data to evaluate on, and there is none")
    if recipe.wandb and importlib.util.find_spec("wandb") is None:
        raise InputError(f"config.wandb: {recipe.wandb!r} needs the package wandb: {how_to_install('wandb')}")


def schedule_and_optimizer(recipe: Recipe, num_steps: int) -> tuple[Schedule, optax.GradientTransformation]:
    """Return the schedule and optimizer of `recipe.optimizer`, for a run of `num_steps` steps."""
    c = recipe.optimizer
    warmup = c.warmup_steps or int(c.warmup_ratio * num_steps)
    schedule = make_schedule(c.schedule, c.learning_rate, num_steps, warmup)
    names = ("name", *_SETTINGS, "clip_norm", "layer_decay", "average_decay", "frozen_layers", "frozen_embeddings")
    chosen = {name: c[name] for name in names}
    has_teacher = bool(recipe.distillation.teacher and not recipe.distillation.cache)
    return schedule, make_optimizer(schedule, **chosen, frozen_base=recipe.lora.rank > 0, frozen_teacher=has_teacher)
