"""Training on several data sets in one run (`data.sets`), for any task whose recipe has these keys.

Each set has a job of its own, built by the task as for a run on this set alone. `TaskOfSets` and the source of its
batches join them: the arrays of a batch are called `SET/NAME`, and each set's part goes to the set's own task.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import Batch, sub_batches
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.data.finetuning.set_batches import (
    MixedBatches,
    OneSetBatches,
    RoundRobinOrder,
    SetOrder,
    ShuffledOrder,
    WeightedOrder,
    rows_of_sets,
)
from bert_jax.errors import InputError
from bert_jax.jobs import fine_tuning, fingerprints, setup, several_heads
from bert_jax.jobs.abstract import Stage
from bert_jax.jobs.base import Evaluation, Job, Metrics, Task
from bert_jax.jobs.synthetic_rows import DATA
from bert_jax.recipes import Recipe
from bert_jax.recipes.data_sets import naming_set, own_value, recipes_of_sets
from bert_jax.recipes.keys import SETS, TASK_RECIPES, compares_rows
from bert_jax.sharding import split_rows

_PROMPTS = ("query_prefix", "document_prefix")  # keys of `data` that set prompts of the finished model
_ROWS = "rows"  # weight of a set in `TaskOfSets.weights`: its rows that are not padding


class SetTask(NamedTuple):
    """A set of a `TaskOfSets`.

    Attributes:
        name: the name of the set.
        task: the task of a run on this set alone.
        loss_weight: factor of the set's loss.
        parts: number of micro-batches into which `TaskOfSets.loss` splits the rows of the set.
    """

    name: str
    task: Any
    loss_weight: float = 1.0
    parts: int = 1


@dataclasses.dataclass(frozen=True)
class TaskOfSets:
    """A task whose batches have rows of one or several data sets, each with a task of its own and the same parameters.

    The loss is the mean of the losses of the sets in the batch, weighted by their rows and by `loss_weight`. So the
    expected gradient is the same whether a step has rows of one set or, in the same shares, of all.
    """

    sets: tuple[SetTask, ...]

    @property
    def model(self) -> Any:
        """Return the model of the first set; all have the same parameters."""
        return self.sets[0].task.model

    def wrapped(self, wrap: Callable[[Any], Any]) -> Self:
        """Return this task with `wrap` applied to the task of each set."""
        return dataclasses.replace(self, sets=tuple(each._replace(task=wrap(each.task)) for each in self.sets))

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the weights of the sets in the batch, called `SET/NAME`, and their numbers of rows, `SET/rows`."""
        weights: dict[str, jax.Array] = {}
        for each, part in self._parts(batch):
            weights |= {f"{each.name}/terms/{name}": value for name, value in each.task.weights(part).items()}
            weights[f"{each.name}/{_ROWS}"] = jnp.maximum(part["example_weights"].sum(), 1.0)
        return weights

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`).

        Metrics of a set are called `SET/NAME`. `SET/loss` is the set's loss without `loss_weight`, `SET/rows` the mean
        number of its rows in a step, and `SET/share` its share of all rows.
        """
        parts = self._parts(batch)
        all_rows = sum((weights[f"{each.name}/{_ROWS}"] for each, _ in parts), jnp.float32(0))
        here = {each.name: part["example_weights"].sum() for each, part in parts}
        rows_here = sum(here.values(), jnp.float32(0))
        total, metrics = jnp.float32(0), dict[str, Any]()
        for number, (each, part) in enumerate(parts):
            rows = weights[f"{each.name}/{_ROWS}"]
            prefix = f"{each.name}/terms/"
            own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
            key = dropout_key
            if key is not None and len(parts) > 1:
                key = jax.random.fold_in(key, number)
            loss, of_set = _loss_in_parts(each, params, part, key, own)
            total += each.loss_weight * rows / all_rows * loss
            metrics |= {f"{each.name}/{name}": value for name, value in of_set.items()}
            # Counts of micro-batches sum to 1.
            metrics[f"{each.name}/loss"] = (loss, here[each.name] / rows)
        for each in self.sets:
            rows = here.get(each.name, jnp.float32(0))
            metrics[f"{each.name}/rows"] = (rows, rows_here / all_rows)
            metrics[f"{each.name}/share"] = (rows, rows_here)
        return total, metrics

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return the outputs of each set's task, called `SET/NAME`."""
        outputs = ((each.name, each.task.predict(params, part)) for each, part in self._parts(batch))
        return {f"{name}/{output}": value for name, of_set in outputs for output, value in of_set.items()}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the metrics of each set, called `SET/NAME`."""
        scores: dict[str, float] = {}
        for each in self.sets:
            pairs = [
                (sub_batches(outputs), sub_batches(batch)) for outputs, batch in zip(predictions, batches, strict=True)
            ]
            own = [(outputs[each.name], batch[each.name]) for outputs, batch in pairs if each.name in batch]
            if own:
                of_set = each.task.score(*map(list, zip(*own, strict=True)))
                scores |= {f"{each.name}/{name}": value for name, value in of_set.items()}
        return scores

    def _parts(self, batch: Batch) -> list[tuple[SetTask, Batch]]:
        """Return the sets whose rows the batch has, and the rows of each."""
        parts = sub_batches(batch)
        return [(each, parts[each.name]) for each in self.sets if each.name in parts]


def _loss_in_parts(
    each: SetTask, params: Any, batch: Batch, key: jax.Array | None, weights: dict[str, jax.Array]
) -> tuple[jax.Array, Metrics]:
    """Return the loss and the metrics of a set's rows, for one micro-batch at a time, also backward."""
    task: Task = each.task
    if each.parts == 1:
        return task.loss(params, batch, key, weights)
    split = jax.tree.map(lambda x: split_rows(x, each.parts), batch)
    keys = None if key is None else jax.random.split(key, each.parts)
    part = jax.checkpoint(lambda given: task.loss(params, given[0], given[1], weights), prevent_cse=False)
    losses, metrics = jax.lax.map(part, (split, keys))
    return losses.sum(), jax.tree.map(lambda x: x.sum(0), metrics)


def build_on_sets(recipe: Recipe, build_set: Callable[[Recipe], Job]) -> Job:
    """Return the training job of a resolved recipe with several data sets.

    Args:
        recipe: the recipe.
        build_set: the function that builds the job of a recipe with one set.

    Raises:
        InputError: as `build_set`, with the name of the set; or the sets do not fit together.
    """
    of_sets = recipes_of_sets(recipe)
    opened: dict[tuple[str, str], fine_tuning.StartingModel] = {}

    def open_model(of_set: Recipe, head: str, read_head: str) -> fine_tuning.StartingModel:
        if (head, read_head) not in opened:
            opened[head, read_head] = fine_tuning.opened_model(of_set, head, read_head)
        return opened[head, read_head]

    jobs: dict[str, Job] = {}
    for name, of_set in of_sets.items():
        with of_set.unlocked():
            of_set[fine_tuning.OPEN_MODEL] = open_model
        with naming_set(recipe, name):
            jobs[name] = build_set(of_set)
    apart = bool(TASK_RECIPES[recipe.task].tasks_of_sets)  # each set has a head of its own
    if apart:
        several_heads.check_recipe(recipe)
        jobs = several_heads.with_shared_encoder(jobs)
    else:
        _check_models(jobs)
    source, num_steps = _batches(recipe, jobs)
    splits = compares_rows(recipe)  # then the training step does not split the batch
    tasks = [
        SetTask(name, job.task, own_value(recipe, name, "loss_weight"),
                recipe.accumulation_steps if splits and not compares_rows(of_sets[name]) else 1)
        for name, job in jobs.items()
    ]  # fmt: skip
    first = next(iter(jobs.values()))
    recorded = _recorded_set({name: of_set.data for name, of_set in of_sets.items()})
    return dataclasses.replace(
        first,
        task=TaskOfSets(tuple(tasks)),
        train_source=source,
        eval_source=None,
        num_steps=num_steps,
        save=jobs[recorded].save,
        data=functools.partial(_fingerprints, jobs),
        notes=(*_common_notes(jobs), *_shares(jobs, source, num_steps)),
        more_evaluations=_evaluations(jobs),
        heads={
            name: (of_sets[name], dataclasses.replace(job, num_steps=num_steps)) for name, job in jobs.items() if apart
        },
    )


def _recorded_set(data: Mapping[str, Any]) -> str:
    """Return the set whose columns, prompts and `max_seq_length` the files of the finished model record.

    It is the longest of those that set a prompt, or else of all.
    """
    prompted = [name for name, keys in data.items() if any(keys.get(key) is not None for key in _PROMPTS)]
    return max(prompted or data, key=lambda name: data[name].max_seq_length)


def stages_of_sets(job: Job, recipe: Recipe) -> tuple[Stage, ...]:
    """Return a stage for each shape of the batches of a job of several sets.

    Without data, the number of steps in an epoch is unknown.
    """
    source: Any = job.train_source
    has_data = all(any(of_set.data.get(name) for name in DATA) for of_set in recipes_of_sets(recipe).values())
    num_steps = job.num_steps if has_data else recipe.num_steps
    if isinstance(source, MixedBatches):
        return (Stage(num_steps, _abstract(source.batch(0))),)
    counts = source.order.counts(num_steps)
    return tuple(
        Stage(count, _abstract({f"{name}/{array}": value for array, value in of_set.batch(turn).items()}))
        for (name, of_set), steps in zip(source.sources.items(), counts, strict=True)
        for turn, count in of_set.steps_by_shape(steps).items()
    )


def check_rows_of_sets(source: Any, parts: int) -> None:
    """Raise InputError when the rows that a set has in a mixed batch do not divide over `parts` parts of the mesh."""
    for name, of_set in source.sources.items():
        if of_set.batch_size % parts:
            raise InputError(
                f"mesh: expected the rows of set {name!r} in a batch to be a multiple of {parts} (data * fsdp), found "
                f"{of_set.batch_size}; data.sampling=weights can set them"
            )


def _abstract(batch: Batch) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in batch.items()}


def _batches(recipe: Recipe, jobs: Mapping[str, Job]) -> tuple[OneSetBatches | MixedBatches, int]:
    """Return the source of the batches of all sets, and the number of steps."""
    sources: dict[str, TrainSource] = {}
    for name, job in jobs.items():
        if not isinstance(job.train_source, TrainSource):
            raise InputError(f"config.{SETS}: expected a task whose batches are of rows in memory, found {recipe.task}")
        sources[name] = job.train_source
    mixed = recipe.data.batches == "mixed"
    if mixed:
        rows = _mixed_rows(recipe, sources)
        of_sets = recipes_of_sets(recipe)
        resized = {name: _for_mixed(of_sets[name], source, rows[name]) for name, source in sources.items()}
        num_steps = _num_steps(recipe, resized, mixed)
        return MixedBatches({name: source.in_run(num_steps) for name, source in resized.items()}), num_steps
    order = _order(recipe, sources)
    num_steps = _num_steps(recipe, sources, mixed)
    counts = order.counts(num_steps)
    of_run = {name: source.in_run(count) for (name, source), count in zip(sources.items(), counts, strict=True)}
    return OneSetBatches(of_run, order), num_steps


def _order(recipe: Recipe, sources: Mapping[str, TrainSource]) -> SetOrder:
    match recipe.data.sampling:
        case "round_robin":
            return RoundRobinOrder(len(sources))
        case "proportional":
            return ShuffledOrder([source.steps_per_epoch for source in sources.values()], recipe.seed)
    return WeightedOrder(_weights(recipe, sources))


def _weights(recipe: Recipe, sources: Mapping[str, TrainSource]) -> list[float]:
    """Return the weight of each set, which is its share up to a factor."""
    data = recipe.data
    rows = [source.num_examples for source in sources.values()]
    match data.sampling:
        case "weights":
            return [own_value(recipe, name, "weight") for name in sources]
        case "round_robin":
            return [1.0] * len(rows)
        case "temperature":
            return [(count / max(rows)) ** (1 / data.sampling_temperature) for count in rows]
    return [float(count) for count in rows]


def _mixed_rows(recipe: Recipe, sources: Mapping[str, TrainSource]) -> dict[str, int]:
    """Return the number of rows of each set in a mixed batch."""
    size, parts = recipe.global_batch_size, recipe.accumulation_steps
    rows = dict(zip(sources, rows_of_sets(_weights(recipe, sources), size, parts), strict=True))
    for name, of_set in recipes_of_sets(recipe).items():
        least = 2 if compares_rows(of_set) else 1
        if rows[name] < least:
            raise InputError(
                f"config.global_batch_size: expected a batch in which set {name!r} has at least {least} rows, found "
                f"{rows[name]} of {size}; data.sampling can give it a larger share"
            )
    return rows


def _for_mixed(of_set: Recipe, source: TrainSource, rows: int) -> TrainSource:
    """Return the source of a set, by its recipe, for mixed batches with `rows` rows of it.

    The rows are padded to one length unless the recipe names several: every combination of the lengths of the sets
    would be a program to compile.
    """
    return source.resized(rows, source.buckets if of_set.data.length_buckets else source.buckets[-1:])


def _num_steps(recipe: Recipe, sources: Mapping[str, TrainSource], mixed: bool) -> int:
    return recipe.num_steps or setup.steps_of_epochs(recipe.num_epochs, _steps_per_epoch(recipe, sources, mixed))


def _steps_per_epoch(recipe: Recipe, sources: Mapping[str, TrainSource], mixed: bool) -> int:
    """Return the steps in which every set is read once (proportional) or the smallest is (round_robin); otherwise, as
    many as all rows take."""
    steps = [source.steps_per_epoch for source in sources.values()]
    match recipe.data.sampling:
        case "round_robin":
            return min(steps) if mixed else min(steps) * len(steps)
        case "proportional":
            return max(steps) if mixed else sum(steps)
    if mixed:
        return -(-sum(source.num_examples for source in sources.values()) // recipe.global_batch_size)
    return sum(steps)


def _check_models(jobs: Mapping[str, Job]) -> None:
    """Raise InputError when the sets do not train the same parameters of the same model."""
    (first, of_first), *others = jobs.items()
    shapes, config = _shapes(of_first), fingerprints.of_config(of_first.task.model.config)
    for name, job in others:
        if _shapes(job) != shapes or fingerprints.of_config(job.task.model.config) != config:
            raise InputError(
                f"config.{SETS}.{name}: expected the parameters of set {first!r}, as all sets train one model, found "
                "others; a loss with a part of its own, such as 'tsdae', must be that of every set"
            )


def _shapes(job: Job) -> Any:
    shapes = jax.eval_shape(job.init_params, jax.random.key(0))
    return [(jax.tree_util.keystr(path), leaf.shape) for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)]


def _evaluations(jobs: Mapping[str, Job]) -> tuple[tuple[str, Evaluation], ...]:
    """Return the held-out sets of all jobs: `SET`, or `SET/NAME` for those of a set that have names."""
    return tuple(
        (f"{name}/{held_out}".rstrip("/"), evaluation)
        for name, job in jobs.items()
        for held_out, evaluation in job.evaluations
    )


def _fingerprints(jobs: Mapping[str, Job]) -> dict[str, Any]:
    """Return the fingerprints of the data of all sets; those of a set's rows are called `SET/NAME`."""
    shared: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, job in jobs.items():
        for key, value in job.data().items():
            if key in ("vocabulary", "model"):
                shared.setdefault(key, value)
            else:
                own[f"{name}/{key}"] = value
    return shared | own


def _common_notes(jobs: Mapping[str, Job]) -> list[str]:
    """Return the notes of all jobs; a note that not all have begins with the name of its set."""
    notes = dict.fromkeys(itertools.chain.from_iterable(job.notes for job in jobs.values()))
    lines = []
    for note in notes:
        names = [name for name, job in jobs.items() if note in job.notes]
        lines.append(note if len(names) == len(jobs) else f"{', '.join(names)}: {note}")
    return lines


def _shares(jobs: Mapping[str, Job], source: OneSetBatches | MixedBatches, num_steps: int) -> list[str]:
    """Return a line for each set: its rows, steps, share and epochs."""
    if isinstance(source, MixedBatches):
        counts: Sequence[int] = [num_steps] * len(jobs)
    else:
        counts = source.order.counts(num_steps)
    lines = []
    for (name, of_set), count in zip(source.sources.items(), counts, strict=True):
        if isinstance(source, MixedBatches):
            share = f"{of_set.batch_size} rows of each batch"
        else:
            share = f"{count:,} of {num_steps:,} steps"
        epochs = count / of_set.steps_per_epoch
        lines.append(f"set {name}: {of_set.num_examples:,} rows, {share}, {epochs:.3g} epochs")
    return lines
