"""The training loop: one for every task, from a recipe to a finished model.

    recipe -> Job (tasks/) -> state in shards -> [batch -> step] * num_steps -> model/

Along the way it writes metrics, evaluates and checkpoints; started again on the same directory it resumes from the
newest checkpoint as if it had never stopped.
"""

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from ml_collections import ConfigDict

from bert_jax import recipes, sharding, storage, tasks
from bert_jax.compilers import give_compiler_room
from bert_jax.data.finetuning.labels import list_counts
from bert_jax.data.pretraining.sources import prefetch
from bert_jax.errors import InputError, did_you_mean, logger
from bert_jax.storage import PathLike, directory_atomically
from bert_jax.tasks.base import Job, Metrics
from bert_jax.training import notices, stopping
from bert_jax.training.checkpoints import Checkpoints, merit, to_numpy
from bert_jax.training.curves import write_report
from bert_jax.training.feed import DeviceSource, device_batch
from bert_jax.training.host_memory import keep_freed_memory
from bert_jax.training.metrics import MetricsLog, MetricsWindow, means_of, read_metrics
from bert_jax.training.program import check_fits, initial_state, make_program, schedule_and_optimizer
from bert_jax.training.progress import Bar, clock
from bert_jax.training.results import Results, results_of
from bert_jax.training.skipped import SkippedSteps, check_finite
from bert_jax.training.step import State, finished_params, jit_eval_step, make_eval_step
from bert_jax.training.stopping import Interrupted, Preempted, Stop
from bert_jax.training.throughput import Chrono, Lap
from bert_jax.training.watchdog import Watchdog
from bert_jax.training.workdir import Workdir

__all__ = ["Interrupted", "Preempted", "Results", "steps", "train"]
log = logger(__name__)
_LOG_EVERY = 100  # steps between lines of metrics at the most, and
_LINES = 20  # of a short run at the least, where the recipe does not say


def train(
    recipe: ConfigDict,
    workdir: PathLike,
    *,
    progress: bool = True,
    hooks: Sequence[Callable[[State, dict[str, jax.Array]], Any]] = (),
) -> Results:
    """Trains as `recipe` says, in `workdir`, and writes the finished model to `workdir/model`.

    A directory with checkpoints of the same recipe is resumed; a finished one is left as it is. On several hosts,
    every process calls this with the same arguments.

    Args:
        recipe: of `bert_jax.recipes`.
        workdir: local or `gs://`.
        progress: whether to show how it goes, on stderr.
        hooks: each is called with what `steps` yields, after every step.

    Returns:
        The metrics of the finished model, and its state.

    Raises:
        InputError: something given does not fit, or the directory belongs to another recipe.
        NotFiniteError: the training has diverged.
        Interrupted: Ctrl-C came, and the state is saved.
        Preempted: SIGTERM came, and the state is saved.
    """
    with contextlib.closing(_listening(recipe, workdir, progress)) as run:
        while True:
            try:
                state, metrics = next(run)
            except StopIteration as end:
                return end.value
            for hook in hooks:
                hook(state, means_of(metrics))


def steps(
    recipe: ConfigDict, workdir: PathLike, *, progress: bool = True
) -> Generator[tuple[State, dict[str, jax.Array]], None, Results]:
    """Trains as `train` does, and yields after every step: for a loop of one's own around it.

        for state, metrics in bert_jax.training.steps(recipe, workdir):
            if int(state.step) % 100 == 0:
                print(float(metrics["loss"]))

    Steps are logged, evaluated and saved before they are yielded, and the model is written after the last one. A loop
    that is left early resumes from the newest checkpoint, as any run.

    Args:
        recipe, workdir, progress: as for `train`.

    Yields:
        The state after a step, which the next step takes the memory of, and the step's metrics: arrays on the devices
        that may still be computed. Of a resumed run, the steps that are left; of a finished one, none.

    Raises:
        InputError, NotFiniteError, Interrupted, Preempted: as `train`.
    """
    with contextlib.closing(_listening(recipe, workdir, progress)) as run:
        while True:
            try:
                state, metrics = next(run)
            except StopIteration as end:
                return end.value
            yield state, means_of(metrics)


def _listening(
    recipe: ConfigDict, workdir: PathLike, progress: bool
) -> Generator[tuple[State, Metrics], None, Results]:
    """`_steps` that answer signals."""
    with stopping.listening() as stop:
        try:
            return (yield from _steps(recipe, workdir, progress, stop))
        except Exception as error:
            # An exception that a signal raises inside other people's code may come out of it as another.
            if stop.number is None or isinstance(error, (InputError, OSError)):
                raise
            raise stop.exception() from error


def _steps(
    recipe: ConfigDict, workdir: PathLike, progress: bool, stop: Stop
) -> Generator[tuple[State, Metrics], None, Results]:
    give_compiler_room()  # of use where this call is the first to use a TPU
    keep_freed_memory()
    recipe = recipes.resolve(recipe)
    place = Workdir(storage.Path(workdir))
    place.check(recipe)
    leads = jax.process_index() == 0
    if place.is_finished and not place.has_other_length(recipe):
        if leads and progress:
            Bar(0, 0, True, Chrono()).say(f"{place.path} is finished; {place.model} is left as it is")
        return results_of(place, recipe) if leads else Results()
    mesh = sharding.make_mesh(**recipe.mesh)
    job = tasks.build(recipe, str(place.path))
    check_fits(recipe, job, mesh)
    with (
        _claimed(place, recipe, job) as (claim, steps_before),
        jax.set_mesh(mesh),
        _Run(recipe, place, claim, job, mesh, progress and leads, stop) as run,
    ):
        run.tell_of_another_length(steps_before)
        state = yield from run.to_the_end(run.state)
        state = run.finish(state)
    results = results_of(place, recipe) if leads else Results()
    results.state = state
    return results


class _Run:
    """One call of `train`: everything that is made once and used at every step."""

    def __init__(
        self,
        recipe: ConfigDict,
        place: Workdir,
        claim: storage.Claim,
        job: Job,
        mesh: Mesh,
        progress: bool,
        stop: Stop,
    ):
        self.recipe, self.place, self.claim, self.job, self.mesh, self.stop = recipe, place, claim, job, mesh, stop
        self.chrono = Chrono()
        program = make_program(recipe, job.task, job.init_params, job.num_steps, mesh)
        self.schedule = jax.jit(program.schedule)  # one small program, not one for each of its operations
        self.like, self.train_step = program.like, program.train_step
        self.eval_step = jit_eval_step(make_eval_step(job.task), mesh, program.shardings)
        self.batch_sharding = NamedSharding(mesh, sharding.batch_spec())
        self.log_every = recipe.log_every or max(1, min(_LOG_EVERY, job.num_steps // _LINES))
        self.best_metric = recipe.best_metric.removeprefix("eval/")

        self.checkpoints = Checkpoints(place.checkpoints, recipe.keep_checkpoints, self.best_metric)
        with self.chrono.pause("start"):
            restored = self.checkpoints.restore_latest(self.like)
            self.state = restored or initial_state(
                job, program.optimizer, recipe.seed, program.like, recipe.fresh_layers
            )
        self.start = int(self.state.step)
        stop.saved = self.start if restored else None
        self.best = self.checkpoints.best() if restored and self.best_metric else None
        self.log = None
        if jax.process_index() == 0:
            self.log = MetricsLog(place, self.start, recipe.wandb, recipe.to_dict())
        self.bar = Bar(job.num_steps, self.start, progress, self.chrono)
        if self.log is not None and not self.log.has_events:
            self.bar.say("no TensorBoard files: install bert-jax[tensorboard] for them")
        stop.say = self.bar.say
        if job.classes:
            self.bar.say(f"classes (rows): {list_counts(job.classes)}")
        if restored:
            self.bar.say(f"resuming from step {self.start} of {job.num_steps}")
        self.skipped = SkippedSteps(place, job.train_source, recipe.max_skipped_steps, self.bar.say)
        self.rates: dict[str, float] = {}
        self.compiled: set[Any] = set()

    def __enter__(self) -> "_Run":
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        self.bar.close()
        # After an error, that one is told; what cannot be closed because of it is not.
        ending = contextlib.suppress(InputError, OSError) if kind else contextlib.nullcontext()
        if self.log is not None:
            with ending:
                self.log.close()
        with ending:
            self.checkpoints.close()

    def tell_of_another_length(self, before: int | None) -> None:
        """Says what it does to the learning rate that the run had `before` steps in all until now."""
        now = self.job.num_steps
        if before in (None, now) or not self.start:
            return
        former, _ = schedule_and_optimizer(self.recipe, before)
        done = np.unique(np.linspace(0, self.start - 1, 1000).astype(np.int32))
        text = f"{before} steps become {now}"
        if np.array_equal(former(done), self.schedule(done)):
            self.bar.say(f"{text}; the learning rate was until now as in one run of {now} steps")
            return
        rates = f"{float(former(self.start - 1)):.3g} to {float(self.schedule(self.start)):.3g}"
        self.bar.say(
            f"{text}: at step {self.start} the learning rate goes from {rates}, and from here on it is that of "
            f"{now} steps; in one run of {now} steps it would have been another before"
        )

    def to_the_end(self, state: State) -> Generator[tuple[State, Metrics], None, State]:
        """Runs the steps from `state` to the last, with all that happens between them; yields after each."""
        window, lap, model = MetricsWindow(self.skipped.see), Lap(self.chrono, self._tokens_seen()), self.job.task.model
        watchdog = Watchdog(self.recipe.warn_after_seconds, self.chrono)
        sizes = functools.partial(recipes.batch_size_at, self.recipe)
        source = DeviceSource(self.job.train_source, sizes, self.batch_sharding)
        batches = prefetch(source, self.start, self.job.num_steps)
        last = self.start if self._stalled(self.start) else self.job.num_steps
        with (
            contextlib.closing(batches),
            watchdog.watching(),
            self._profile() as profile,
            contextlib.ExitStack() as stack,
        ):
            for done in range(self.start + 1, last + 1):
                profile(done)
                with self.chrono.pause("input"):
                    batch = next(batches)
                with self._compiling(batch):
                    state, metrics = self.train_step(state, batch)
                if done == self.start + 1:
                    stack.enter_context(self.stop.deferred())  # from here on there is something to save
                window.add(done, metrics)
                lap.add(model, batch)
                watchdog.beat(done)
                self.bar.update(done, self.rates | window.last)
                stops = self._stops(done)
                saves, evaluates = self._saves(done) or stops, self._evaluates(done)
                if saves or done % self.log_every == 0 or done == self.job.num_steps:
                    self._log_window(done, window, lap)
                scores = self._evaluate(done, finished_params(state)) if evaluates else None
                if saves:
                    with self.chrono.pause("checkpoint"):
                        self.claim.check()
                        if self.log is not None:
                            self.log.flush()  # a run that resumes from here has these lines, and writes them no more
                        self.checkpoints.save(state, scores)
                        self.stop.saved = done  # when the checkpoints are closed, which every end waits for
                if stops:
                    self.checkpoints.wait(state)
                    self.bar.say(f"told to stop: saved step {done}")
                    raise self.stop.exception()
                yield state, metrics
                if scores is not None and self._stalled(done):
                    break
        return state

    def finish(self, state: State) -> State:
        """Writes the best model, or the last, and the report; returns the state of that model."""
        with self.chrono.pause("checkpoint"):
            self.checkpoints.wait(state)
            found = self.checkpoints.best() if self.best_metric else None
            best = found[1] if found else None
            if best is not None and best != int(state.step):
                jax.tree.map(lambda leaf: leaf.delete(), state)  # there may not be room for both
                state = self.checkpoints.restore(best, self.like)
            params = to_numpy(finished_params(state))
            check_finite(params, int(state.step), self.place.checkpoints)
        self.claim.check()
        if jax.process_index() == 0:
            seconds = "  ".join(f"{name} {clock(value)}" for name, value in self.chrono.totals().items())
            write_report(self.place, f"{self.recipe.task}, {self.job.num_steps} steps: {seconds}")
            with directory_atomically(self.place.model) as directory:
                self.job.save(directory, params)
            for line in notices.of_lines(read_metrics(self.place.metrics)):
                log.warning("%s", line)
            chosen = f" of step {best}, the best {self.best_metric}," if best is not None else ""
            self.bar.say(f"model{chosen} in {self.place.model}, curves in {self.place.report}  ({seconds})")
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("bert_jax: finished")
        return state

    def _tokens_seen(self) -> int:
        """By the steps before this call, as the log has it."""
        counts = (
            [line["train/tokens_seen"] for line in self.log.lines if "train/tokens_seen" in line] if self.log else []
        )
        return int(counts[-1]) if counts else 0

    @contextlib.contextmanager
    def _profile(self) -> Iterator[Callable[[int], None]]:
        """Yields what is called before each step, to trace those that the recipe names."""
        first, count = self.recipe.profile or (0, 0)
        tracing, stack = False, contextlib.ExitStack()

        def before(step: int) -> None:
            nonlocal tracing
            if tracing and step >= first + count:
                jax.profiler.stop_trace()
                tracing = False
                stack.close()
                self.bar.say(f"trace of steps {first} to {step - 1} in {self.place.profile}")
            elif step == first and count:
                jax.profiler.start_trace(stack.enter_context(storage.local_directory(self.place.profile)))
                tracing = True

        try:
            yield before
        finally:
            if tracing:
                jax.profiler.stop_trace()
            stack.close()

    def _compiling(self, batch: dict[str, Any]) -> contextlib.AbstractContextManager:
        """Counts the call as compilation when it is the first with a batch of this shape."""
        shapes = tuple(sorted((name, array.shape) for name, array in batch.items()))
        if shapes in self.compiled:
            return contextlib.nullcontext()
        self.compiled.add(shapes)
        return self.chrono.pause("compile")

    def _saves(self, done: int) -> bool:
        """Whether there is a checkpoint after step `done`: a best one is only found among those that were saved."""
        every = self.recipe.checkpoint_every
        due = done == self.job.num_steps or (every > 0 and done % every == 0)
        return due or (bool(self.best_metric) and self._evaluates(done))

    def _evaluates(self, done: int) -> bool:
        every = self.recipe.eval_every
        due = done == self.job.num_steps or (every > 0 and done % every == 0)
        return due and self.job.eval_source is not None

    def _stalled(self, done: int) -> bool:
        """Whether `stop_after` evaluations up to step `done` were worse than the best."""
        if not self.recipe.stop_after or self.best is None:
            return False
        _, step = self.best
        stalled = done - step >= self.recipe.stop_after * self.recipe.eval_every
        if stalled:
            self.bar.say(f"stopped at step {done}: {self.best_metric} was best at step {step}")
        return stalled

    def _stops(self, done: int) -> bool:
        """Whether a signal ends the run after step `done`."""
        if jax.process_count() > 1:
            return self.checkpoints.preempted(done)  # all hosts must agree on the step
        return self.stop.number is not None

    def _log_window(self, done: int, window: MetricsWindow, lap: Lap) -> None:
        """Writes a line of training metrics. A window also ends at each checkpoint, so that a run which resumes from
        there writes the lines that it would have written without stopping."""
        means = window.close()
        rates = lap.close(self.mesh)
        with self.chrono.pause("logging"):
            self.rates = rates | {
                "learning_rate": float(self.schedule(done - 1)),
                "compilations": float(len(self.compiled)),  # of the step, by this process
            }
            self.checkpoints.check()
            if self.log is not None:
                self.log.write(done, {f"train/{name}": value for name, value in (means | self.rates).items()})
            if done % self.log_every == 0 or done == self.job.num_steps:
                self.bar.line(done, means | self.rates)

    def _evaluate(self, done: int, params: Any) -> dict[str, float]:
        """Scores the whole evaluation set."""
        source = self.job.eval_source
        assert source is not None
        predictions, batches = [], []
        with self.chrono.pause("evaluation"):
            for i in range(source.num_batches):
                host = source.batch(i)
                size = len(next(iter(host.values())))
                batch = device_batch(functools.partial(_take, host), size, self.batch_sharding)
                predictions.append(self.eval_step(params, batch))
                batches.append(host)
                if i:
                    predictions[i - 1] = jax.tree.map(np.asarray, predictions[i - 1])  # while this one runs
            scores = self.job.task.score(jax.tree.map(np.asarray, predictions), batches)
        if self.best_metric and self.best_metric not in scores:
            raise InputError(
                f"config.best_metric: {self.best_metric!r} is not measured{did_you_mean(self.best_metric, scores)}"
            )
        if self.best_metric:
            found = merit(self.best_metric, scores[self.best_metric]), done
            self.best = max(self.best or found, found)
        if self.log is not None:
            self.log.write(done, {f"eval/{name}": value for name, value in scores.items()})
        self.bar.say(f"step {done}: " + "  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
        return scores


@contextlib.contextmanager
def _claimed(place: Workdir, recipe: ConfigDict, job: Job) -> Iterator[tuple[storage.Claim, int | None]]:
    """Keeps other runs out of the work directory while the block runs, and begins in it (`Workdir.begin`); the first
    process does so for all.

    Raises:
        InputError: another run is under way in it, or one that began with other data; on every process.
    """
    claim, before, refused = storage.Claim(), None, None
    with contextlib.ExitStack() as stack:
        if jax.process_index() == 0:
            try:
                claim = stack.enter_context(place.claimed())
                before = place.begin(recipe, job.data(), job.num_steps)
            except (InputError, OSError) as error:
                refused = error
        if jax.process_count() > 1 and multihost_utils.process_allgather(np.array(refused is not None)).any():
            refused = refused or InputError(f"{place.path}: the first process could not have it")
        if refused is not None:
            raise refused
        yield claim, before


def _take(host: dict[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
    return {name: array[rows] for name, array in host.items()}
