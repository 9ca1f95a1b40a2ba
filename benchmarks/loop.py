"""The cost of the training loop: a run at its default intervals, beside its compiled step on batches that are there."""

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.sharding import NamedSharding
from ml_collections import ConfigDict

from benchmarks.turns import append
from bert_jax import jobs, recipes, sharding, training
from bert_jax.data.corpora.sources import Corpus, open_corpus
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.process import keep_freed_memory
from bert_jax.tokenization import train_wordpiece
from bert_jax.training.feed import DeviceSource
from bert_jax.training.program import make_program
from bert_jax.training.state import initial_state

TURN = 20  # steps
WARM_UP = 50  # steps before the first turn, so that a checkpoint is written amid a turn and not after it
TRACED = 40  # steps of the trace
HELD = 8  # batches of the steps alone
PARTS = ("input", "logging", "checkpoint", "evaluation")  # the loop waits for these


def main(steps: int, record: Path | None) -> None:
    """Print the seconds of a step of a run, and of the step alone, in alternation; append them to a JSON lines file.

    A trace of a run says in which share of its time no program computes.

    Args:
        steps: steps of the run, which pretrains a BERT-mini on pairs of 128 tokens, 16 a step.
        record: JSON lines file, or None.
    """
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as directory:
        recipe = recipes.resolve(_recipe(Path(directory), steps))
        run = training.steps(recipe, f"{directory}/run", progress=False)
        alone = _steps_alone(recipe)
        spent: dict[str, list[float]] = {"run": [], "alone": []}
        advance = {"run": lambda count: _last(itertools.islice(run, count)), "alone": alone}
        for name in advance:
            advance[name](WARM_UP)
        turns = (steps - WARM_UP) // TURN
        for _ in range(turns):
            for name in spent:
                start = time.perf_counter()
                advance[name](TURN)
                spent[name].append(time.perf_counter() - start)
        run.close()
        idle = _idle_share(recipe, Path(directory))
        lines = [json.loads(line) for line in Path(directory, "run", "metrics.jsonl").read_text().splitlines()]
    count, logged = turns * TURN, [line for line in lines if line["step"] > WARM_UP]
    waited = {part: sum(line.get(f"train/{part}_seconds", 0.0) for line in logged) for part in PARTS}
    seconds = waited | {name: sum(found) for name, found in spent.items()}
    row = {f"{name}_ms": round(1e3 * found / count, 3) for name, found in seconds.items()}
    ratios = [a / b - 1 for a, b in zip(spent["run"], spent["alone"], strict=True)]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    row |= {"steps": count, "share": round(statistics.mean(ratios), 4), "standard_error": round(error, 4)}
    row["idle_share"] = round(idle, 5)
    print(f"a step of the run {row['run_ms']:.1f} ms, alone {row['alone_ms']:.1f} ms: "
          f"{row['share']:.1%} ± {error:.1%} more")  # fmt: skip
    print("waits of the run for each step, ms: " + ", ".join(f"{part} {row[f'{part}_ms']:.2f}" for part in PARTS))
    print(f"no program computes in {idle:.2%} of a trace of {TRACED} steps")
    append(record, row)


def prepared_documentation(directory: Path) -> str:
    """Prepare the documentation inside Python as pairs of 128 tokens, and return their directory."""
    documents = list(open_corpus("python-docs"))
    texts = (text for document in documents for text in document.texts)
    prepared = directory / "prepared"
    prepare(Corpus("python-docs", lambda: iter(documents)), train_wordpiece(texts, 4000), prepared)
    return str(prepared)


def _recipe(directory: Path, steps: int) -> ConfigDict:
    """Return a recipe of pretraining on the documentation inside Python, with its default intervals."""
    recipe = recipes.pretraining()
    recipe.model.size, recipe.data.prepared = "mini", prepared_documentation(directory)
    recipe.num_steps, recipe.global_batch_size, recipe.optimizer.warmup_steps = steps, 16, 10
    return recipe


def _steps_alone(recipe: ConfigDict) -> Callable[[int], None]:
    """Return a function that runs some steps of the recipe on batches that are on the device already."""
    mesh, job = sharding.make_mesh(**recipe.mesh), jobs.build(recipe)
    program = make_program(recipe, job.task, job.init_params, job.num_steps, mesh)
    state = initial_state(job, program.optimizer, recipe.seed, program.like, recipe.reinit_layers)
    source = DeviceSource(
        job.train_source, lambda step: recipe.global_batch_size, NamedSharding(mesh, sharding.batch_spec())
    )
    batches = itertools.cycle([source.batch(step) for step in range(HELD)])

    def run(count: int) -> None:
        nonlocal state
        with jax.set_mesh(mesh):
            for batch in itertools.islice(batches, count):
                state, _ = program.train_step(state, batch, recipe.seed)
        jax.block_until_ready(state)

    return run


def _idle_share(recipe: ConfigDict, directory: Path) -> float:
    """Return the share of a trace of a run, with a line of metrics and a checkpoint, in which no program computes."""
    recipe = recipe.copy_and_resolve_references()
    recipe.num_steps, recipe.profile = WARM_UP + TRACED, (WARM_UP // 2, TRACED)
    recipe.log_every = recipe.checkpoint_every = WARM_UP // 2 + TRACED // 2
    training.train(recipe, f"{directory}/traced", progress=False)
    (trace,) = (directory / "traced" / "profile").rglob("*.xplane.pb")
    lines = (line for plane in jax.profiler.ProfileData.from_file(str(trace)).planes for line in plane.lines)
    events = (event for line in lines for event in line.events if event.name.startswith("ThunkExecutor::Execute"))
    spans = sorted((event.start_ns, event.end_ns) for event in events)
    busy, end = 0.0, spans[0][0]
    for start, stop in spans:
        busy += max(stop - max(start, end), 0)
        end = max(end, stop)
    return 1 - busy / (end - spans[0][0])


def _last(states: Any) -> None:
    """Wait for the last step of an iterator of states and metrics."""
    *_, (state, _) = states
    jax.block_until_ready(state)
