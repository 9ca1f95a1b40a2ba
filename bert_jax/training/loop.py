"""The training loop of all tasks, from a recipe to a finished model.

    recipe -> Job (tasks/) -> state in shards -> [batch -> step] * num_steps -> model/

During training, it writes metrics, evaluates and saves checkpoints; started again on the same directory, it resumes
from the newest checkpoint with the same results as an uninterrupted run.
"""

import contextlib
import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from bert_jax import compilers, forks, jobs, recipes, sharding, storage
from bert_jax.data.listing import list_counts
from bert_jax.data.prefetching import prefetch
from bert_jax.errors import InputError, did_you_mean, logger
from bert_jax.jobs.base import Job, Metrics
from bert_jax.process import MemoryBound
from bert_jax.storage import PathLike, directory_atomically
from bert_jax.training import diagnostics, stopping
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.curves import write_report
from bert_jax.training.eval_loop import EvalLoop
from bert_jax.training.feed import DeviceSource
from bert_jax.training.metrics import MetricsLog, MetricsWindow, Results, means_of, merit, read_metrics, results_of
from bert_jax.training.model_card import write_model_card
from bert_jax.training.monitoring import Throughput, Timer, Watchdog, profiling
from bert_jax.training.program import check_fits, make_program
from bert_jax.training.progress import Bar, clock
from bert_jax.training.state import State, finished_params, initial_state, to_numpy
from bert_jax.training.step import SkippedSteps, check_finite
from bert_jax.training.stopping import Interrupted, Preempted, Stop
from bert_jax.training.workdir import Workdir

__all__ = ["Interrupted", "Preempted", "Results", "steps", "train"]
log = logger(__name__)
_LOG_EVERY = 100  # maximum number of steps between lines of metrics, unless the recipe sets log_every
_LINES = 20  # minimum number of lines of metrics in a short run, unless the recipe sets log_every


def train(
    recipe: recipes.Recipe,
    workdir: PathLike,
    *,
    progress: bool = True,
    hooks: Sequence[Callable[[State, dict[str, jax.Array]], Any]] = (),
) -> Results:
    """Train a recipe in `workdir`, and write the finished model to `workdir/model`.

    A run of the same recipe in the directory is resumed; a finished one is left unchanged. On several hosts, every
    process calls this with the same arguments.

    The process's signal handlers are restored on return. On a CPU, steps are faster after
    `bert_jax.process.keep_freed_memory()`, which affects the whole process.

    Args:
        recipe: a recipe of `bert_jax.recipes`.
        workdir: a local or `gs://` directory.
        progress: whether to show the progress on stderr.
        hooks: functions that are called after every step with the values that `steps` yields.

    Returns:
        The metrics of the finished model, and its state.

    Raises:
        InputError: the recipe or the data are invalid, or the directory belongs to another recipe.
        NotFiniteError: the training has diverged.
        Interrupted: Ctrl-C was pressed, and the state is saved.
        Preempted: SIGTERM was received, and the state is saved.
    """
    results = Results()
    with contextlib.closing(_stoppable_steps(recipe, workdir, progress, results)) as run:
        for state, metrics in run:
            for hook in hooks:
                hook(state, means_of(metrics))
    return results


def steps(
    recipe: recipes.Recipe, workdir: PathLike, *, progress: bool = True
) -> Generator[tuple[State, dict[str, jax.Array]], None, Results]:
    """Train as `train` does, and yield after every step, for a custom loop.

        for state, metrics in bert_jax.training.steps(recipe, workdir):
            if int(state.step) % 100 == 0:
                print(float(metrics["loss"]))

    Logging, evaluation and saving precede the yield, and the model is written after the last step. If the loop is left
    early, a later call resumes the run from the newest checkpoint.

    Args:
        recipe: as for `train`.
        workdir: as for `train`.
        progress: as for `train`.

    Yields:
        The state after a step, whose memory the next step reuses, and the step's metrics: arrays on the devices that
        may still be being computed. A resumed run yields the remaining steps; a finished one yields nothing.

    Raises:
        InputError, NotFiniteError, Interrupted, Preempted: as `train`.
    """
    results = Results()
    with contextlib.closing(_stoppable_steps(recipe, workdir, progress, results)) as run:
        for state, metrics in run:
            yield state, means_of(metrics)
    return results


def _stoppable_steps(
    recipe: recipes.Recipe, workdir: PathLike, progress: bool, results: Results
) -> Generator[tuple[State, Metrics], None, None]:
    """Run `_steps`, and stop cleanly on Ctrl-C and SIGTERM."""
    with stopping.listening() as stop:
        try:
            yield from _steps(recipe, workdir, progress, results, stop)
        except Exception as error:
            # Third-party code in which a signal arrived may raise another exception in place of ours.
            if stop.number is None or isinstance(error, (InputError, OSError)):
                raise
            raise stop.exception() from error


def _steps(
    recipe: recipes.Recipe, workdir: PathLike, progress: bool, results: Results, stop: Stop
) -> Generator[tuple[State, Metrics], None, None]:
    """Run the recipe to its finished model, yield after every step, and fill in `results` at the end."""
    forks.check_fork()
    with compilers.larger_stacks():  # must be set before the first use of a TPU
        recipe = recipes.resolve(recipe)
        directory = Workdir(storage.Path(workdir))
        directory.check(recipe)
        leads = jax.process_index() == 0
    if directory.is_finished and not directory.has_other_length(recipe):
        directory.check_finished(recipe, lambda: jobs.build(recipe))
        if leads and progress:
            Bar(0, 0, True, Timer()).say(f"{directory.path} is finished; {directory.model} is left as it is")
        if leads:
            results.update(results_of(directory, recipe))
        return
    mesh = sharding.make_mesh(**recipe.mesh)
    job = jobs.build(recipe)
    check_fits(recipe, job, mesh)
    with (
        directory.begun(recipe, job) as (claim, steps_before),
        jax.set_mesh(mesh),
        _Run(recipe, directory, claim, job, mesh, progress and leads, stop) as run,
    ):
        run.say_new_length(steps_before)
        state = yield from run.run_steps(run.state)
        results.state = run.finish(state)
    if leads:
        results.update(results_of(directory, recipe))


class _Run:
    """One call of `train`: the objects that are made once and used at every step."""

    def __init__(
        self,
        recipe: recipes.Recipe,
        workdir: Workdir,
        claim: storage.Claim,
        job: Job,
        mesh: Mesh,
        progress: bool,
        stop: Stop,
    ):
        self.recipe, self.workdir, self.claim, self.job, self.mesh, self.stop = recipe, workdir, claim, job, mesh, stop
        self.timer = Timer()
        program = make_program(recipe, job.task, job.init_params, job.num_steps, mesh)
        self.schedule = jax.jit(program.schedule)  # one compiled program instead of one per operation
        self.like, self.train_step = program.like, program.train_step
        self.evaluators = [(name, EvalLoop(each, mesh, program.shardings)) for name, each in job.evaluations]
        self.batch_sharding = NamedSharding(mesh, sharding.batch_spec())
        self.log_every = recipe.log_every or max(1, min(_LOG_EVERY, job.num_steps // _LINES))
        self.best_metric = recipe.best_metric.removeprefix("eval/")

        copies = workdir.copies() if jax.process_index() == 0 else {}
        self.checkpoints = Checkpoints(workdir.checkpoints, recipe.keep_checkpoints, self.best_metric, copies)
        with self.timer.pause("start"):
            restored = self.checkpoints.restore_latest(self.like)
            self.state = restored or initial_state(
                job, program.optimizer, recipe.seed, program.like, recipe.reinit_layers
            )
        # A new state is still being computed while the step is traced; reading its step number would wait for it.
        self.start = int(self.state.step) if restored else 0
        stop.saved = self.start if restored else None
        self.best = self.checkpoints.best() if restored and self.best_metric else None
        self.log = MetricsLog(workdir, self.start, recipe.wandb, recipe.to_dict()) if jax.process_index() == 0 else None
        self.bar = Bar(job.num_steps, self.start, progress, self.timer)
        stop.say = self.bar.say
        if job.classes:
            self.bar.say(f"classes (rows): {list_counts(job.classes)}")
        for note in job.notes:
            self.bar.say(note)
        if restored:
            self.bar.say(f"resuming from step {self.start} of {job.num_steps}")
        self.skipped = SkippedSteps(workdir, job.train_source, recipe.max_skipped_steps, self.bar.say)
        self.rates: dict[str, float] = {}
        self.compiled: set[Any] = set()

    def __enter__(self) -> "_Run":
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        self.bar.close()
        # After an error, errors while closing are suppressed, as the first one may be their cause.
        ending = contextlib.suppress(InputError, OSError) if kind else contextlib.nullcontext()
        if self.log is not None:
            with ending:
                self.log.close()
        with ending:
            self.checkpoints.close()

    def say_new_length(self, before: int | None) -> None:
        """Tell the user how the learning rate changes, as the run's total is no longer `before` steps."""
        now = self.job.num_steps
        if before in (None, now) or not self.start:
            return
        from bert_jax.training.length_changes import describe_new_length

        self.bar.say(describe_new_length(self.recipe, before, now, self.start, self.schedule))

    def run_steps(self, state: State) -> Generator[tuple[State, Metrics], None, State]:
        """Run the steps from `state` to the last, with logging, evaluation and saving; yield after each."""
        window, throughput = MetricsWindow(self.skipped.see), Throughput(self.timer, self.mesh, self._tokens_seen())
        watchdog = Watchdog(self.recipe.warn_after_seconds, self.timer)
        sizes = functools.partial(recipes.batch_size_at, self.recipe)
        memory = MemoryBound() if self.mesh.devices.flat[0].platform == "cpu" else None
        source = DeviceSource(self.job.train_source, sizes, self.batch_sharding)
        batches = prefetch(source, self.start, self.job.num_steps)
        last = self.start if self._stalled(self.start) else self.job.num_steps
        if self.stop.agreed():
            raise self.stop.exception()
        with (
            contextlib.closing(batches),
            watchdog.watching(),
            profiling(self.recipe.profile or (0, 0), self.workdir.profile, self.bar.say) as profile,
            contextlib.ExitStack() as stack,
        ):
            for done in range(self.start + 1, last + 1):
                profile(done)
                with self.timer.pause("input"):
                    batch = next(batches)
                with self._compiling(batch):
                    state, metrics = self.train_step(state, batch, self.recipe.seed)
                if done == self.start + 1:
                    stack.enter_context(self.stop.deferred())  # from here on, a signal stops the run after it has saved
                window.add(done, metrics)
                throughput.add(self.job.task.model, batch)
                watchdog.beat(done)
                if memory is not None:
                    memory.check()
                self.bar.update(done, self.rates | window.last)
                stops = self.stop.agreed()
                saves, evaluates = self._saves(done) or stops, self._evaluates(done)
                if saves or done % self.log_every == 0 or done == self.job.num_steps:
                    self._log_window(done, window, throughput)
                scores = self._evaluate(done, finished_params(state)) if evaluates else None
                if saves:
                    with self.timer.pause("checkpoint"):
                        self.claim.check()
                        if self.log is not None:
                            self.log.flush()  # a run that resumes from here does not write these lines again
                        self.checkpoints.save(state, scores)
                        self.stop.saved = done  # the run waits for this checkpoint before it ends
                if stops:
                    self.checkpoints.wait(state)
                    self.bar.say(f"stopped by a signal: saved step {done}")
                    raise self.stop.exception()
                yield state, metrics
                if scores is not None and self._stalled(done):
                    break
        return state

    def finish(self, state: State) -> State:
        """Write the best model, or the last, and the report; return the state of that model."""
        with self.timer.pause("checkpoint"):
            self.checkpoints.wait(state)
            self.checkpoints.delete_surplus()
            _, best = (self.checkpoints.best() if self.best_metric else None) or (None, None)
            if best is not None and best != int(state.step):
                jax.tree.map(lambda leaf: leaf.delete(), state)  # memory may not hold both states
                state = self.checkpoints.restore(best, self.like)
            params = to_numpy(finished_params(state))
            check_finite(params, int(state.step), self.workdir.checkpoints)
        self.claim.check()
        if jax.process_index() == 0:
            seconds = "  ".join(f"{name} {clock(value)}" for name, value in self.timer.totals().items())
            curves = write_report(self.workdir, f"{self.recipe.task}, {self.job.num_steps} steps: {seconds}")
            with directory_atomically(self.workdir.model) as directory:
                self.job.save(directory, params)
                record, scores = self.workdir.data_record(), results_of(self.workdir, self.recipe)
                write_model_card(directory, self.recipe, self.job, record, scores)
            for line in diagnostics.of_lines(read_metrics(self.workdir.metrics)):
                log.warning("%s", line)
            chosen = f" of step {best}, the best {self.best_metric}," if best is not None else ""
            self.bar.say(f"model{chosen} in {self.workdir.model}, {curves}  ({seconds})")
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("bert_jax: finished")
        return state

    def _tokens_seen(self) -> int:
        """Return the number of tokens in the steps before this call, from the log."""
        seen = [line["train/tokens_seen"] for line in self.log.lines if "train/tokens_seen" in line] if self.log else []
        return int(seen[-1]) if seen else 0

    def _compiling(self, batch: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
        """Count the time of the block as compilation when it is the first with a batch of this shape."""
        shapes = tuple(sorted((name, array.shape) for name, array in batch.items()))
        if shapes in self.compiled:
            return contextlib.nullcontext()
        self.compiled.add(shapes)
        return self.timer.pause("compile")

    def _saves(self, done: int) -> bool:
        """Return whether to save after step `done`; if the best checkpoint is kept, each evaluated step is saved."""
        every = self.recipe.checkpoint_every
        regular = done == self.job.num_steps or (every > 0 and done % every == 0)
        return regular or (bool(self.best_metric) and self._evaluates(done))

    def _evaluates(self, done: int) -> bool:
        every = self.recipe.eval_every
        regular = done == self.job.num_steps or (every > 0 and done % every == 0)
        return regular and bool(self.evaluators)

    def _stalled(self, done: int) -> bool:
        """Return whether the last `stop_after` evaluations up to step `done` were worse than the best one."""
        if not self.recipe.stop_after or self.best is None:
            return False
        _, step = self.best
        stalled: bool = done - step >= self.recipe.stop_after * self.recipe.eval_every
        if stalled:
            self.bar.say(f"stopped at step {done}: {self.best_metric} was best at step {step}")
        return stalled

    def _log_window(self, done: int, window: MetricsWindow, throughput: Throughput) -> None:
        """Write a line of training metrics.

        A window also ends at each checkpoint, so that a resumed run writes the same lines as an uninterrupted one.
        """
        means = window.close()
        rates = throughput.close()
        with self.timer.pause("logging"):
            self.rates = rates | {
                "learning_rate": float(self.schedule(done - 1)),
                "compilations": float(len(self.compiled)),  # batch shapes compiled by this process
            }
            self.checkpoints.check()
            if self.log is not None:
                self.log.write(done, {f"train/{name}": value for name, value in (means | self.rates).items()})
            if done % self.log_every == 0 or done == self.job.num_steps:
                self.bar.line(done, means | self.rates)

    def _evaluate(self, done: int, params: Any) -> dict[str, float]:
        """Score the model on its held-out sets."""
        scores: dict[str, float] = {}
        with self.timer.pause("evaluation"):
            for name, evaluator in self.evaluators:
                of_set = evaluator.scores(params)
                scores |= {f"{name}/{metric}" if name else metric: value for metric, value in of_set.items()}
        if self.best_metric and self.best_metric not in scores:
            raise InputError(
                f"config.best_metric: {self.best_metric!r} is not measured{did_you_mean(self.best_metric, scores)}"
            )
        if self.best_metric:
            merit_and_step = merit(self.best_metric, scores[self.best_metric]), done
            self.best = max(self.best or merit_and_step, merit_and_step)
        if self.log is not None:
            self.log.write(done, {f"eval/{name}": value for name, value in scores.items()})
        self.bar.say(f"step {done}: " + "  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
        return scores
