"""Checkpoints of the training state: written asynchronously, kept by age and by best metric, verified when read.

A checkpoint is a directory named by its step. Orbax writes it under another name and renames it when it is complete, so
that a run killed at any moment leaves only complete ones. Since batches, masks and dropout are functions of the step,
the state is all that has to be saved.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, LatestN, PreservationPolicy

from bert_jax import storage
from bert_jax.errors import InputError, logger
from bert_jax.storage import PathLike
from bert_jax.training import best_checkpoint
from bert_jax.training.best_checkpoint import BestMetric
from bert_jax.training.state import State
from bert_jax.training.workdir import COPIES

_STATE = ocp.checkpoint_manager.DEFAULT_ITEM_NAME
_NOTES = "_CHECKPOINT_METADATA"
_COMMITTED = "commit_success.txt"  # the file by which Orbax marks a complete checkpoint in an object store
_MOST_FAILURES = 4  # maximum number of transient failures in a row
_LONGEST_WAIT = 120  # seconds that a host waits for the other hosts to write their parts of a checkpoint

log = logger(__name__)


class Checkpoints:
    """The checkpoints of one run, in one directory.

    Args:
        directory: a local or `gs://` directory, created when it is missing.
        keep: the number of newest checkpoints to keep.
        best: the metric (a key of the metrics given to `save`) by which the best checkpoint is kept too; "" = none.
            Lower is better when its name ends in loss, perplexity or mse; otherwise higher is better.
        copies: JSON to copy into each checkpoint: the run's recipe and data record. Only the first process writes it.
    """

    def __init__(self, directory: PathLike, keep: int, best: str = "", copies: dict[str, Any] | None = None):
        self.directory = storage.Path(directory).absolute()
        self._best_metric = BestMetric(self.directory, best) if best else None
        self._merit: dict[str, Any] | None = None  # the merit file's content in the checkpoint being saved
        self._keep, self._copies = keep, copies or {}
        self._failures = 0  # transient failures in a row
        self._manager = self._open()
        if self._best_metric is not None:
            self._best_metric.read(self.steps())

    def save(self, state: State, metrics: dict[str, float] | None = None) -> None:
        """Save in the background, after the previous save has ended; return when `state` may be changed.

        If the previous save failed for a transient reason in the object store, it is abandoned with a warning.

        Raises:
            InputError: this save or the previous one could not be written; earlier checkpoints are intact.
        """
        self._merit = None
        if self._best_metric is not None and metrics is not None:
            self._merit = self._best_metric.add(int(state.step), metrics)
        self._settle()
        self._start(state)

    def _start(self, state: State) -> None:
        with self._write_errors():
            saved = {"state": state, "checksum": _checksum(state)}
            items: dict[str, Any] = {_STATE: ocp.args.PyTreeSave(saved), COPIES: ocp.args.JsonSave(self._copies)}
            if self._merit is not None:
                items[best_checkpoint.MERIT_FILE] = ocp.args.JsonSave(self._merit)
            self._manager.save(int(state.step), args=ocp.args.Composite(**items))

    def wait(self, state: State | None = None) -> None:
        """Wait until everything is stored. Raises InputError as `save` does.

        Args:
            state: the last saved state, to save it again if saving failed for a transient reason.
        """
        while not self._settle() and state is not None:
            self._start(state)

    def _settle(self) -> bool:
        """Wait for the save under way; return whether it succeeded on all hosts.

        Raises:
            InputError: the save failed, and a retry would fail too.
        """
        failure = None
        try:
            with self._write_errors():
                self._manager.wait_until_finished()
        except InputError as error:
            failure = error
        if not self.directory.is_remote:
            if failure:
                raise failure
            return True
        worst = _worst_of_hosts(0 if failure is None else 1 if _is_passing(failure.__cause__) else 2)
        if worst == 0:
            self._failures = 0
            return True
        self._failures += 1
        if worst == 2 or self._failures > _MOST_FAILURES:
            raise failure or InputError(f"{self.directory}: another host could not write its part of a checkpoint")
        log.warning(
            "%s; training continues, and saves again later", failure or f"{self.directory}: another host failed to save"
        )
        self._manager.reload()
        return False

    def delete_surplus(self) -> None:
        """Delete checkpoints beyond those to keep, which remain if the process was killed right after a save."""
        best = self.best()
        kept = {*self.steps()[-self._keep :], *([best[1]] if best else [])}
        for step in self.steps():
            if step not in kept:
                self._manager.delete(step)

    def close(self) -> None:
        """Wait for the save under way, and stop the threads."""
        with self._write_errors():
            self._manager.close()

    def check(self) -> None:
        """Raise InputError when a save in the background has failed, without waiting for it.

        In an object store, where the reason may be transient, this does nothing: the next `save` or `wait` handles the
        failure on all hosts together.
        """
        if self.directory.is_remote:
            return
        with self._write_errors():
            self._manager.check_for_errors()

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, ascending."""
        return sorted(self._manager.all_steps())

    def best(self) -> tuple[float, int] | None:
        """Return the merit and the step of the best checkpoint (the later in a tie); None when no merit is known."""
        return self._best_metric.best(self.steps()) if self._best_metric is not None else None

    def restore_latest(self, like: State) -> State | None:
        """Restore the newest state that can be read; return None when there is no checkpoint at all.

        Damaged checkpoints are renamed, with a warning.

        Args:
            like: a tree of `jax.ShapeDtypeStruct` with the shardings to restore into.

        Raises:
            InputError: a checkpoint has other shapes, or there are checkpoints and none can be read.
        """
        broken: list[int] = []
        reasons: list[UnreadableError] = []
        for step in reversed(self.steps()):
            try:
                state = self.restore(step, like)
            except UnreadableError as error:
                broken.append(step)
                reasons.append(error)
                continue
            for reason in reasons:
                log.warning("%s; resuming from the one before", reason)
            self._set_aside(broken)
            return state
        if broken:
            raise InputError(f"none of the checkpoints {broken[::-1]} can be read: {reasons[0]}")
        return None

    def restore(self, step: int, like: State) -> State:
        """Restore the state saved at `step`.

        Raises:
            InputError: the checkpoint has other shapes; the message names a parameter.
            UnreadableError: the checkpoint is damaged.
        """
        where = self.directory / str(step)
        template = {"state": like, "checksum": jax.ShapeDtypeStruct((), jnp.uint32, sharding=like.step.sharding)}
        for attempt in range(1, _MOST_FAILURES + 1):
            failure, saved = None, {}
            try:
                # The manager cannot restore: in it, a host that succeeds would wait for a host that fails, and it takes
                # its own saves in an object store for unfinished.
                item = where / _STATE
                self._check_shapes(where, like, self._handler().metadata(item))
                shardings = ocp.checkpoint_utils.construct_restore_args(template)
                saved = self._handler().restore(item, args=ocp.args.PyTreeRestore(template, restore_args=shardings))
            except InputError:
                raise
            except Exception as error:  # reading a damaged file may raise any error
                failure = error
            # Each host reads its own part; no host may resume from a checkpoint that another cannot read.
            worst = _worst_of_hosts(0 if failure is None else 1 if _is_passing(failure) else 2)
            reason = _first_line(failure) if failure else "by another host"
            if worst == 0:
                break
            if worst == 2:
                raise UnreadableError(f"checkpoint {where} cannot be read ({reason})") from failure
            if attempt == _MOST_FAILURES:  # the file is not damaged, so it must not be renamed
                raise InputError(f"checkpoint {where} could not be read; try again later ({reason})") from failure
            log.warning("checkpoint %s could not be read (%s); attempt %d", where, reason, attempt + 1)
            time.sleep(attempt)
        if int(_checksum(saved["state"])) != int(saved["checksum"]):
            raise UnreadableError(f"checkpoint {where} is damaged (its checksum differs)")
        state: State = saved["state"]
        return state

    def _open(self) -> ocp.CheckpointManager:
        policies: list[PreservationPolicy] = [LatestN(self._keep)]
        if self._best_metric is not None:
            policies.append(self._best_metric.policy())
        options = ocp.CheckpointManagerOptions(
            preservation_policy=AnyPreservationPolicy(policies),
            create=True,
            async_options=ocp.AsyncOptions(timeout_secs=_LONGEST_WAIT if self.directory.is_remote else 1200),
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        self._set_aside_what_others_wrote()
        if jax.process_index() == 0:
            self._remove_partial_once()
        self._set_aside_unreadable_notes()
        merits = ocp.JsonCheckpointHandler(filename=best_checkpoint.MERIT_FILE)
        handlers = {
            _STATE: self._handler(),
            best_checkpoint.MERIT_FILE: merits,
            COPIES: ocp.JsonCheckpointHandler(filename=COPIES),
        }
        return ocp.CheckpointManager(self.directory, options=options, item_handlers=handlers)

    def _handler(self) -> ocp.PyTreeCheckpointHandler:
        """Return the handler that reads and writes the state.

        On a disk, arrays share files (OCDBT). In an object store, each shard is an object, which needs only plain
        writes; OCDBT would need conditional writes of its manifest.
        """
        return ocp.PyTreeCheckpointHandler(use_ocdbt=not self.directory.is_remote)

    def _step_folders(self) -> list[storage.Path]:
        if not self.directory.exists():  # in an object store, an empty directory does not exist either
            return []
        return [entry for entry in self.directory.iterdir() if entry.name.isdigit()]

    def _set_aside_what_others_wrote(self) -> None:
        """Rename directories that are named like a step but are no checkpoints, as Orbax would delete them later."""
        if jax.process_index() == 0:
            for folder in self._step_folders():
                if not _is_checkpoint(folder):
                    aside = storage.free_name(self.directory / f"unreadable-{folder.name}")
                    log.warning("%s: expected a checkpoint, found other files; renamed it to %s", folder, aside)
                    folder.rename(aside)
        ocp.utils.sync_global_processes("bert_jax:what_others_wrote")

    def _set_aside_unreadable_notes(self) -> None:
        """Rename damaged files on which Orbax would fail although it does not need them: metrics files of earlier
        versions, and Orbax's own metadata with timestamps."""
        if jax.process_index() == 0:
            for folder in self._step_folders():
                path = folder / best_checkpoint.FORMER_FILE / best_checkpoint.FORMER_FILE
                if not path.is_file():
                    continue
                try:
                    storage.read_json(path)
                except InputError as error:
                    log.warning("the metric of checkpoint %s is damaged (%s)", folder.name, error)
                    path.parent.rename(folder / "unreadable-metrics")
            for saved in ocp.path.step.standard_name_format().find_all(os.fspath(self.directory)):
                try:
                    _ = saved.commit_timestamp
                except Exception as error:  # reading a damaged file may raise any error
                    log.warning("%s of checkpoint %d is damaged (%s)", _NOTES, saved.step, _first_line(error))
                    step = self.directory / str(saved.step)
                    (step / _NOTES).rename(step / f"unreadable{_NOTES}")
        ocp.utils.sync_global_processes("bert_jax:unreadable_notes")

    @contextlib.contextmanager
    def _write_errors(self) -> Iterator[None]:
        """Raise errors of a save as a one-line InputError, and remove the partial checkpoint."""
        try:
            yield
        except (ValueError, OSError, RuntimeError) as error:
            code = re.search(r"os_error_code='(\d+)'", str(error))  # TensorStore adds it in brackets
            text = os.strerror(int(code[1])) if code else _first_line(error)
            self._remove_partial()
            kept = ", ".join(map(str, sorted(self._manager.all_steps(read=True)))) or "none"
            raise InputError(
                f"{self.directory}: a checkpoint could not be written: {text} (whole checkpoints there: {kept})"
            ) from error

    def _remove_partial(self) -> None:
        """Remove partial checkpoints, repeatedly for a second: TensorStore may still write other files, which creates
        the directory again."""
        for _ in range(1 if self.directory.is_remote else 10):
            self._remove_partial_once()
            time.sleep(0 if self.directory.is_remote else 0.1)

    def _remove_partial_once(self) -> None:
        """Remove partial checkpoints. Orbax's own cleanup would also remove directories that Orbax did not write."""
        if self.directory.is_remote:  # there, a complete checkpoint is marked instead of renamed
            if jax.process_index() == 0:
                for folder in self._step_folders():
                    if not (folder / _COMMITTED).exists() and _is_checkpoint(folder):
                        folder.rmtree(missing_ok=True)
            return
        for partial in self.directory.glob("*.orbax-checkpoint-tmp*"):
            if partial.name.partition(".")[0].isdecimal():
                with contextlib.suppress(OSError):  # a file was added in the meantime
                    partial.rmtree(missing_ok=True)

    def _check_shapes(self, where: storage.Path, like: State, metadata: Any) -> None:
        shapes = {_key(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(metadata["state"])}
        for path, leaf in jax.tree_util.tree_leaves_with_path(like):
            name = _key(path)
            if name not in shapes:
                raise InputError(
                    f"{where}: expected {name} {leaf.shape}, found no such array: the checkpoint is of another model"
                )
            if (shape := tuple(shapes.pop(name))) != tuple(leaf.shape):
                raise InputError(
                    f"{where}: expected {name} of shape {leaf.shape}, found {shape}: the checkpoint is of another model"
                )
        if shapes:
            raise InputError(
                f"{where}: expected only arrays of this model, found also {next(iter(shapes))}: the checkpoint is "
                "of another model"
            )

    def _set_aside(self, steps: list[int]) -> None:
        if not steps:
            return
        if jax.process_index() == 0:
            for step in steps:
                (self.directory / str(step)).rename(storage.free_name(self.directory / f"unreadable-{step}"))
        ocp.utils.sync_global_processes("bert_jax:set_aside")
        self._manager.reload()


def _is_checkpoint(folder: storage.Path) -> bool:
    """Return whether a directory holds a checkpoint, complete or incomplete."""
    parts = {_STATE, COPIES, best_checkpoint.MERIT_FILE, best_checkpoint.FORMER_FILE, _NOTES, _COMMITTED}
    return any(entry.name in parts for entry in folder.iterdir())


class UnreadableError(InputError):
    """A checkpoint is damaged."""


def _is_passing(error: BaseException | None) -> bool:
    """Return whether a read or write failed for a transient reason: connection, store or expired credentials.

    TensorStore retries requests, but not those whose credentials were refused.
    """
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    text = str(error)
    return "http_response_code='401'" in text or bool(re.search(r"\b(UNAVAILABLE|DEADLINE_EXCEEDED)\b", text))


def _worst_of_hosts(code: int) -> int:
    """Return the maximum of a number over all hosts."""
    return int(np.max(multihost_utils.process_allgather(np.array([code]))))


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without the details that TensorStore adds in brackets."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line.partition(" See full TensorStore details")[0].partition(" [")[0][:300]


@jax.jit
def _checksum(state: State) -> jax.Array:
    """Return a uint32 that any flipped bit changes: the sum of all 32-bit words, weighted by an odd number per array.

    A sum modulo 2^32 does not depend on the order, so the checksum does not depend on the sharding of the state.
    """
    total: jax.Array = jnp.uint32(0)
    for i, leaf in enumerate(jax.tree.leaves(state)):
        words = jax.lax.bitcast_convert_type(leaf, jnp.uint32)
        total += jnp.uint32(2 * i + 1) * jnp.sum(words, dtype=jnp.uint32)
    return total


def _key(path: Any) -> str:
    """Return the path of a leaf, the same for a dataclass and for the dict by which Orbax describes it."""
    names = (getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", None))) for entry in path)
    return "/".join(map(str, names))
