"""Curves of pruning: score against parameters, seconds and megabytes, on SST-2 and STS-B.

    python -m benchmarks pruning --data data --workdir runs/pruning --record pruning.jsonl --picture pruning.png

Fine-tunes all-MiniLM-L6-v2 on each task, then prunes it by each of `PRUNINGS`, and scores the model before and after
recovery training. Each result is appended to the JSON lines file; recorded results are skipped, and runs resume.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tasks import dtype_of
from benchmarks.turns import append
from bert_jax import recipes
from bert_jax.compression.figures import Figures, figures_of
from bert_jax.compression.pruning import Pruning, open_for_pruning
from bert_jax.compression.recovery import prune_and_recover
from bert_jax.data.finetuning.columns import Columns
from bert_jax.evaluation import evaluate
from bert_jax.training import train


class Subject(NamedTuple):
    """A task: its recipe and metric, the epochs of fine-tuning and of recovery, and whether recovery has a teacher.

    On SST-2, recovery by labels costs dev accuracy at any rate: there the whole model teaches the pruned one.
    """

    recipe: str
    metric: str
    epochs: float
    recovery_epochs: float
    is_taught: bool


_TAUGHT: dict[str, Any] = {
    "optimizer.learning_rate": 3e-5, "distillation.weights.labels": 0.0, "distillation.weights.soft_labels": 1.0,
    "distillation.temperature": 2.0,
}  # fmt: skip
TASKS: dict[str, Subject] = {
    "sst2": Subject("classification:sst2,{data}/glue/SST-2", "accuracy", 1.0, 0.5, True),
    "stsb": Subject("stsb_embedding:{data}/glue/STS-B", "spearman", 1.0, 1.0, False),
}
# Name of a curve -> its points.
PRUNINGS: dict[str, tuple[Pruning, ...]] = {
    "heads and columns": tuple(Pruning(heads=share, columns=share) for share in (0.25, 0.5, 0.75)),
    "heads": tuple(Pruning(heads=share) for share in (0.25, 0.5, 0.75)),
    "columns": tuple(Pruning(columns=share) for share in (0.25, 0.5, 0.75)),
    "layers": tuple(Pruning(num_layers=layers) for layers in (5, 4, 3)),
}
SETTINGS = {
    "global_batch_size": 32, "optimizer.learning_rate": 1e-4, "optimizer.bias_correction": True, "best_metric": "",
    "eval_every": 0, "checkpoint_every": 200,
}  # fmt: skip
_AXES = {"parameters": 1e6, "megabytes": 1.0, "relative_seconds": 1.0}
_LABELS = {
    "parameters": "million parameters",
    "megabytes": "MB in float32",
    "relative_seconds": "time of a forward pass / that of the whole model",
}


def main(
    data: Path, model: Path, workdir: Path, record: Path, picture: Path, share: float, only: Sequence[str] = ()
) -> None:
    """Run what is not recorded yet, print each result, and draw the curves.

    Args:
        data: data directory, with glue/SST-2 and glue/STS-B.
        model: all-MiniLM-L6-v2.
        workdir: the directory of all runs.
        record: JSON lines file of the results.
        picture: file of the curves.
        share: fraction of the epochs to run.
        only: names of `TASKS`; () = all.
    """
    for task in only or TASKS:
        for found in _results(task, data, model, workdir / task, _recorded(record, task), share):
            append(record, found)
            print(json.dumps(found), flush=True)
    draw([line for task in TASKS for line in _recorded(record, task).values()], picture)


def _recorded(record: Path, task: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the recorded results of a task, by curve and point."""
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    found = [line for line in map(json.loads, lines) if line["task"] == task]
    return {(line["curve"], line["point"]): line for line in found}


def _results(
    task: str, data: Path, model: Path, workdir: Path, done: Mapping[tuple[str, str], Any], share: float
) -> Iterator[dict[str, Any]]:
    """Yield the results of a task that are not `done`."""
    subject, metric = TASKS[task], TASKS[task].metric
    recipe = recipes.load_recipe(subject.recipe.format(data=data))
    start = {"init_from": str(model), "num_epochs": subject.epochs * share, "dtype": dtype_of(workdir)}
    recipe.update_from_flattened_dict(SETTINGS | start)
    train(recipe, workdir / "teacher")
    teacher, held_out = workdir / "teacher" / "model", recipe.data.dev

    def score(path: Path) -> float:
        return evaluate(path, held_out, Columns(), metric_names=(metric,))[metric]

    whole = open_for_pruning(teacher)[0]
    if ("whole", "") not in done:
        found = score(teacher)
        yield _result(task, "whole", "", metric, figures_of([whole]) * 2, found, found)
    taught = _TAUGHT | {"distillation.teacher": str(teacher)} if subject.is_taught else {}
    recipe.update_from_flattened_dict({"num_epochs": subject.recovery_epochs * share} | taught)
    for curve, points in PRUNINGS.items():
        if subject.is_taught:  # with fewer layers than the teacher, only the last has its counterpart
            recipe.distillation.weights.hidden_states = float(curve != "layers")
            recipe.distillation.weights.last_hidden_state = float(curve == "layers")
        for pruning in points:
            point = _name(pruning)
            if (curve, point) in done:
                continue
            folder = workdir / f"{curve} {point}".replace(" ", "-")
            out = folder / "model"
            if not out.exists():
                prune_and_recover(teacher, out, pruning, recipe, folder / "work")
            figures = figures_of([whole, open_for_pruning(out)[0]])
            before = score(folder / "work" / "round-1" / "pruned")
            yield _result(task, curve, point, metric, figures, before, score(out))


def _name(pruning: Pruning) -> str:
    shares = (pruning.heads or pruning.columns) * 100
    return f"{pruning.num_layers} layers" if pruning.num_layers else f"{shares:g}% removed"


def _result(
    task: str, curve: str, point: str, metric: str, figures: Sequence[Figures], before: float, after: float
) -> dict[str, Any]:
    """Return a line of the record; `figures` are those of the whole and of the pruned model, timed in alternation."""
    whole, pruned = figures
    named = {"task": task, "curve": curve, "point": point, "metric": metric}
    scores = {"score": after, "score_before_recovery": before}
    return named | scores | pruned._asdict() | {"relative_seconds": pruned.seconds / whole.seconds}


def draw(results: Sequence[Mapping[str, Any]], picture: Path) -> None:
    """Draw the score of each task against parameters, megabytes and seconds; crosses are scores before recovery."""
    import matplotlib.pyplot as plt

    tasks = list(dict.fromkeys(line["task"] for line in results))
    figure, grid = plt.subplots(
        len(tasks), len(_AXES), figsize=(13, 4 * len(tasks)), squeeze=False, layout="constrained"
    )
    for task, row in zip(tasks, grid, strict=True):
        own = [line for line in results if line["task"] == task]
        for axes, (name, unit) in zip(row, _AXES.items(), strict=True):
            for number, curve in enumerate(PRUNINGS):
                points = [line for line in own if line["curve"] in ("whole", curve)]
                points.sort(key=lambda line: -line[name])
                x = [line[name] / unit for line in points]
                axes.plot(x, [line["score"] for line in points], "o-", color=f"C{number}", label=curve)
                before = [line["score_before_recovery"] for line in points]
                axes.plot(x, before, "x:", color=f"C{number}", alpha=0.6)
            axes.set(xlabel=_LABELS[name], ylabel=f"{task}: {own[0]['metric']}")
    grid[0][0].legend()
    figure.savefig(picture, dpi=120, bbox_inches="tight")
