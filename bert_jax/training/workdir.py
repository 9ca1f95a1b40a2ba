"""The work directory of a run: the path of each file in it, and the recipe that it belongs to."""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from bert_jax import recipes, storage
from bert_jax.conversion.file_names import CONFIG_FILES
from bert_jax.errors import InputError, logger, printable
from bert_jax.jobs.base import Job
from bert_jax.lazy import LazyModule
from bert_jax.training.data_record import DataRecord, is_data_record, is_recipe

if TYPE_CHECKING:
    from bert_jax.training import resuming
else:
    resuming = LazyModule("bert_jax.training.resuming")

log = logger(__name__)

COPIES = "run"  # name of a directory in a checkpoint, and of its file with copies of `config.json` and `data.json`
_OF_OTHERS = re.compile(r"\..*|lost\+found|logs|.*\.(log|out|err)")  # files that schedulers and file systems create


@dataclasses.dataclass(frozen=True)
class Workdir:
    """The files of a run.

    Attributes:
        path: the directory, local or `gs://`.
    """

    path: storage.Path

    @property
    def config(self) -> storage.Path:
        """The file of the resolved recipe, which is written first."""
        return self.path / "config.json"

    @property
    def data(self) -> storage.Path:
        """The file that records the data at the beginning of the run (`data_record.DataRecord`)."""
        return self.path / "data.json"

    @property
    def checkpoints(self) -> storage.Path:
        """The directory of the checkpoints, with one directory for each."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> storage.Path:
        """The file of metrics, with one JSON object per line."""
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> storage.Path:
        """The directory of TensorBoard's files."""
        return self.path / "tensorboard"

    @property
    def profile(self) -> storage.Path:
        """The directory of traces for TensorBoard and Perfetto."""
        return self.path / "profile"

    @property
    def wandb_id(self) -> storage.Path:
        """The file with the id of the run at Weights & Biases."""
        return self.path / "wandb-id"

    @property
    def report(self) -> storage.Path:
        """The plot of the curves."""
        return self.path / "report.png"

    @property
    def model(self) -> storage.Path:
        """The directory of the finished model in the Hugging Face layout."""
        return self.path / "model"

    @property
    def is_finished(self) -> bool:
        """Whether the model is complete: it has weights and one of `CONFIG_FILES`, which is written last."""
        if not any((self.model / name).is_file() for name in CONFIG_FILES) or storage.is_incomplete(self.model):
            return False
        return any(file.name.endswith(".safetensors") and file.size() for file in self.model.iterdir())

    @property
    def last_step(self) -> int | None:
        """The step of the newest checkpoint, or None."""
        return max(self._steps(), default=None)

    def batch(self, step: int) -> storage.Path:
        """Return the path (.npz) of the batch of the skipped step that ended the run."""
        return self.path / f"batch-{step}.npz"

    def saved_recipe(self, warn: bool = False) -> dict[str, Any] | None:
        """Return the recipe of the run in this directory; None if there is no run.

        Raises:
            InputError: `config.json` is damaged, and no checkpoint has a copy of it.
        """
        way_on = "put it back from a backup, or use another --workdir"
        return self._read(self.config, is_recipe, "the recipe of a run", way_on, warn)

    def data_record(self, warn: bool = False) -> DataRecord:
        """Return the record of the data of the run in this directory. Raises InputError as `saved_recipe` does."""
        way_on = "remove it to resume without comparing the data"
        content = self._read(self.data, is_data_record, "the record of the data of a run", way_on, warn) or {}
        return DataRecord(content.get("data"), content.get("num_steps"))

    def copies(self) -> dict[str, Any]:
        """Return the contents of `config.json` and `data.json` by name, for the copies in each checkpoint."""
        return {path.name: storage.read_json(path) for path in (self.config, self.data)}

    def _read(
        self, path: storage.Path, is_valid: Callable[[Any], bool], what: str, way_on: str, warn: bool
    ) -> dict[str, Any] | None:
        """Read a file of the run; if it is missing or damaged, its copy in the newest checkpoint that has one."""
        why = f"{path}: expected {what}, found no file"
        if is_there := path.exists():
            try:
                content = storage.read_json(path)
                if is_valid(content):
                    return content
                why = f"{path}: expected {what}, found other JSON"
            except InputError as error:
                why = str(error)
        for step in self._steps():
            with contextlib.suppress(InputError, OSError):
                content = storage.read_json(self.checkpoints / str(step) / COPIES / COPIES).get(path.name)
                if is_valid(content):
                    if warn:
                        log.warning("%s; its copy in checkpoint %d is used", why, step)
                    return content
        if is_there:
            raise InputError(f"{why}, and no checkpoint has a copy of it; {way_on}")
        return None

    def _steps(self) -> list[int]:
        """Return the steps of the checkpoints, the newest first."""
        if not self.checkpoints.is_dir():
            return []
        return sorted((int(path.name) for path in self.checkpoints.iterdir() if path.name.isdecimal()), reverse=True)

    def check(self, recipe: ConfigDict) -> None:
        """Raise InputError when the directory holds a run of another recipe (the message names the keys that differ) or
        files of other programs, or when no checkpoints can be written to it."""
        if self.path.is_remote and not self.path.url.startswith("gs://"):
            raise InputError(f"{self.path}: expected a work directory on a disk or on gs://, as checkpoints need it")
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise InputError(f"{self.path}: expected a directory, found a file")
        saved = None
        try:
            saved = self.saved_recipe(warn=True)
        except InputError:
            if self._steps():
                raise
        if saved is None:
            self._check_ours()
            return
        has_content = self.last_step is None or self.data_record(warn=True).data is not None
        differing = resuming.differences(saved, recipe.to_dict(), has_content)
        if differing:
            more = f" and {len(differing) - 4} more" if len(differing) > 4 else ""
            them = "them" if len(differing) > 1 else "it"
            raise InputError(
                f"{self.path} belongs to another config: {'; '.join(differing[:4])}{more}; use another --workdir, "
                f"or set {them} back"
            )

    def _check_ours(self) -> None:
        """Raise InputError when a directory without the recipe of a run holds files that no run has written."""
        with contextlib.suppress(InputError):
            if self.data_record().data is not None:  # only config.json is missing
                return
        others = sorted(path.name for path in self.path.iterdir() if not _OF_OTHERS.fullmatch(path.name))
        if others:
            raise InputError(
                f"{self.path}: expected a new or empty directory, or that of a run, found "
                f"{printable(repr(others[0]), 100)}, which no run has written; use another --workdir"
            )

    def has_other_length(self, recipe: ConfigDict) -> bool:
        """Return whether the run in this directory has another number of steps than `recipe`."""
        saved = self.saved_recipe()
        return saved is not None and resuming.has_other_length(saved, recipe.to_dict())

    def check_finished(self, recipe: ConfigDict, build: Callable[[], Job]) -> None:
        """Compare the data and initial weights of a finished run with those of `recipe`, on the first process.

        If the recipe names the same files as before but they can no longer be read, this only logs a warning.

        Args:
            recipe: the resolved recipe.
            build: function that returns its training job; every process calls it.

        Raises:
            InputError: the run was trained or evaluated on other data, or new files of the recipe cannot be read.
        """
        saved, record = self.saved_recipe(), self.data_record()
        if saved is None or record.data is None:
            return  # `check` has compared the paths
        try:
            job = build()
        except (InputError, OSError) as error:
            if resuming.have_same_paths(saved, recipe.to_dict()):
                log.warning("%s: its data are not compared, as they cannot be read: %s", self.path, error)
                return
            raise
        if jax.process_index() == 0:
            self._compare(recipe, record, job.data(), is_finished=True)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[storage.Claim]:
        """Lock the directory against other runs while the `with` block is active.

        Raises:
            InputError: another run is under way in the directory.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with storage.claimed(self.path, f"{self.path}: another run is under way there; use another --workdir") as claim:
            yield claim

    @contextlib.contextmanager
    def begun(self, recipe: ConfigDict, job: Job) -> Iterator[tuple[storage.Claim, int | None]]:
        """Lock the directory while the block runs, and begin the run (`begin`); the first process does so for all.

        Raises:
            InputError: on every process: another run is under way in the directory, or `begin` raised.
        """
        claim, before, refused = storage.Claim(), None, None
        with contextlib.ExitStack() as stack:
            if jax.process_index() == 0:
                try:
                    claim = stack.enter_context(self.claimed())
                    before = self.begin(recipe, job.data(), job.num_steps)
                except (InputError, OSError) as error:
                    refused = error
            if jax.process_count() > 1 and multihost_utils.process_allgather(np.array(refused is not None)).any():
                refused = refused or InputError(f"{self.path}: the first process could not use it")
            if refused is not None:
                raise refused
            yield claim, before

    def begin(self, recipe: ConfigDict, data: dict[str, Any], num_steps: int) -> int | None:
        """Write `config.json` and `data.json`, after comparing them with those of the run in this directory.

        Args:
            recipe: the resolved recipe.
            data: the record of its data (`Job.data`).
            num_steps: the number of steps of the whole run.

        Returns:
            The run's previous total number of steps; None if it is unknown.

        Raises:
            InputError: the data have changed since the run began, or the run cannot have this number of steps.
        """
        done, before = self.last_step, None
        if done is not None:
            record = self.data_record()
            self._compare(recipe, record, data)
            before = record.num_steps
            if (saved := self.saved_recipe()) is not None:
                resuming.check_new_length(saved, recipe, num_steps, done)
        for path in (self.model, self.report, self.metrics, self.wandb_id):
            storage.remove_leftovers(path)  # files of a process that was killed
        storage.remove_incomplete(self.model)
        self._set_model_aside(done)
        storage.write_atomically(self.config, recipes.to_json(recipe))
        storage.write_atomically(self.data, DataRecord(data, num_steps).to_json())
        return before

    def _compare(self, recipe: ConfigDict, record: DataRecord, data: dict[str, Any], is_finished: bool = False) -> None:
        if record.data is None:
            log.warning(
                "%s is of an earlier version, which recorded no data: only later changes of data are found", self.path
            )
            return
        places = {name: recipe.data.get(name, "") for name in ("train", "dev", "prepared")}
        if recipe.data.get("mixture"):
            places["prepared"] = "data.mixture"
        places["weights"] = recipe.init_from
        places |= {"classes": places["train"], "vocabulary": recipe.tokenizer or recipe.init_from or places["prepared"]}
        if recipe.data.get("sets"):
            from bert_jax.recipes.data_sets import paths_of_sets

            places |= paths_of_sets(recipe)
        differences = resuming.data_differences(record.data, data, places)
        for name in [each for each in differences if each.rpartition("/")[2] == "dev"]:
            if not recipe.best_metric and not is_finished:
                log.warning("%s; evaluations from here on cannot be compared with those before", differences.pop(name))
        if differences:
            raise InputError(
                f"{self.path}: the data are not those that the run began with: {'; '.join(differences.values())}; "
                "use those, or another --workdir"
            )

    def _set_model_aside(self, done: int | None) -> None:
        """Rename a model of fewer steps, or an incomplete model, to make room for the new one."""
        if not self.model.exists() or not any(self.model.iterdir()):
            return
        name, why = (str(done), "is of fewer steps") if self.is_finished else ("incomplete", "is incomplete")
        aside = storage.free_name(self.path / f"{self.model.name}-{name}")
        self.model.rename(aside)
        log.warning("%s %s; renamed it to %s", self.model, why, aside)
