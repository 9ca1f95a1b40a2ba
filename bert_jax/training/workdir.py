"""The work directory of a run: the path of each file in it, and the recipe that it belongs to."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from bert_jax import recipes, storage
from bert_jax.errors import InputError, logger
from bert_jax.tasks.base import Job
from bert_jax.training import resuming
from bert_jax.training.resuming import DataRecord

log = logger(__name__)


@dataclasses.dataclass(frozen=True)
class Workdir:
    """The files that a run leaves.

    Attributes:
        path: the directory, local or `gs://`.
    """

    path: storage.Path

    @property
    def config(self) -> storage.Path:
        """The resolved recipe; the first thing written."""
        return self.path / "config.json"

    @property
    def data(self) -> storage.Path:
        """The record of the data that the run began with."""
        return self.path / "data.json"

    @property
    def checkpoints(self) -> storage.Path:
        """One directory a checkpoint."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> storage.Path:
        """One JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> storage.Path:
        """TensorBoard's files."""
        return self.path / "tensorboard"

    @property
    def profile(self) -> storage.Path:
        """Traces that TensorBoard and Perfetto show."""
        return self.path / "profile"

    @property
    def wandb_id(self) -> storage.Path:
        """The name of the run at Weights & Biases."""
        return self.path / "wandb-id"

    @property
    def report(self) -> storage.Path:
        """The curves."""
        return self.path / "report.png"

    @property
    def model(self) -> storage.Path:
        """The finished model in the Hugging Face layout."""
        return self.path / "model"

    @property
    def is_finished(self) -> bool:
        """Whether the model has been written whole: its `config.json`, its last file, and its weights."""
        if not (self.model / "config.json").is_file():
            return False
        return any(file.name.endswith(".safetensors") and file.size() for file in self.model.iterdir())

    @property
    def last_step(self) -> int | None:
        """The step of the newest checkpoint, or None."""
        if not self.checkpoints.exists():
            return None
        return max((int(path.name) for path in self.checkpoints.iterdir() if path.name.isdigit()), default=None)

    def batch(self, step: int) -> storage.Path:
        """The batch of the step whose skipping ended the run: NumPy's .npz, an array for each of its names."""
        return self.path / f"batch-{step}.npz"

    def check(self, recipe: ConfigDict) -> None:
        """Raise InputError when the directory holds a run of another recipe, naming the keys that differ, or is where
        no checkpoints can be written."""
        if self.path.is_remote and not self.path.url.startswith("gs://"):
            raise InputError(f"{self.path}: expected a work directory on a disk or on gs://, which checkpoints need")
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path}: expected a directory, found a file")
        if not self.config.exists():
            return
        has_content = self.data.exists() or self.last_step is None
        differing = resuming.differences(storage.read_json(self.config), recipe.to_dict(), has_content)
        if differing:
            more = f" and {len(differing) - 4} more" if len(differing) > 4 else ""
            them = "them" if len(differing) > 1 else "it"
            raise InputError(
                f"{self.path} belongs to another config: {'; '.join(differing[:4])}{more}; use another --workdir, "
                f"or set {them} back"
            )

    def has_other_length(self, recipe: ConfigDict) -> bool:
        """Whether the run in this directory has another number of steps than `recipe`."""
        return self.config.exists() and resuming.has_other_length(storage.read_json(self.config), recipe.to_dict())

    @contextlib.contextmanager
    def claimed(self) -> Iterator[storage.Claim]:
        """Keep other runs out while the block runs.

        Raises:
            InputError: another run is under way in it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with storage.claimed(self.path, f"{self.path}: another run is under way there; use another --workdir") as claim:
            yield claim

    @contextlib.contextmanager
    def begun(self, recipe: ConfigDict, job: Job) -> Iterator[tuple[storage.Claim, int | None]]:
        """Claim the directory while the block runs, and begin in it (`begin`); the first process does so for all.

        Raises:
            InputError: another run is under way in it, or one that began with other data; on every process.
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
                refused = refused or InputError(f"{self.path}: the first process could not have it")
            if refused is not None:
                raise refused
            yield claim, before

    def begin(self, recipe: ConfigDict, data: dict[str, Any], num_steps: int) -> int | None:
        """Write `config.json` and `data.json`, after comparing them with those of the run in this directory.

        Args:
            recipe: resolved.
            data: what it takes from its data (`Job.data`).
            num_steps: of the whole run.

        Returns:
            The number of steps that the run had until now, where it is known.

        Raises:
            InputError: the data are not those that the run began with, or the run cannot have this length.
        """
        done, before = self.last_step, None
        if done is not None:
            record = DataRecord(self.data)
            self._compare(recipe, record, data)
            before = record.num_steps
            if self.config.exists():
                resuming.check_new_length(storage.read_json(self.config), recipe, num_steps, done)
        for path in (self.model, self.report, self.metrics, self.wandb_id):
            storage.remove_leftovers(path)  # of a process that was killed
        self._set_model_aside(done)
        storage.write_atomically(self.config, recipes.to_json(recipe))
        DataRecord(self.data).write(data, num_steps)
        return before

    def _compare(self, recipe: ConfigDict, record: DataRecord, data: dict[str, Any]) -> None:
        if record.data is None:
            log.warning(
                "%s is of an earlier version: its data cannot be compared until now; from here on they are", self.path
            )
            return
        places = {name: recipe.data.get(name, "") for name in ("train", "dev", "prepared")}
        places |= {"classes": places["train"], "vocabulary": recipe.tokenizer or recipe.init_from or places["prepared"]}
        found = resuming.data_differences(record.data, data, places)
        if "dev" in found and not recipe.best_metric:
            log.warning("%s; evaluations from here on cannot be compared with those before", found.pop("dev"))
        if found:
            raise InputError(
                f"{self.path}: the data are not those that the run began with: {'; '.join(found.values())}; "
                "use those, or another --workdir"
            )

    def _set_model_aside(self, done: int | None) -> None:
        """Make room for the model that is to be written: rename a model of fewer steps, or what is left of one."""
        if not self.model.exists() or not any(self.model.iterdir()):
            return
        aside = self.path / (f"{self.model.name}-{done}" if self.is_finished else f"{self.model.name}-incomplete")
        aside.rmtree(missing_ok=True)
        self.model.rename(aside)
        log.warning(
            "%s %s; it is %s now",
            self.model,
            "is of fewer steps" if "incomplete" not in aside.name else "is not whole",
            aside,
        )
