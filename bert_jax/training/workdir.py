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
from bert_jax.conversion.huggingface import CONFIG_FILES
from bert_jax.errors import InputError, logger
from bert_jax.tasks.base import Job
from bert_jax.training import resuming
from bert_jax.training.resuming import DataRecord

log = logger(__name__)


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
        """The file that records the data at the beginning of the run (`resuming.DataRecord`)."""
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
        if not self.checkpoints.exists():
            return None
        return max((int(path.name) for path in self.checkpoints.iterdir() if path.name.isdigit()), default=None)

    def batch(self, step: int) -> storage.Path:
        """Return the path (.npz) of the batch of the skipped step that ended the run."""
        return self.path / f"batch-{step}.npz"

    def check(self, recipe: ConfigDict) -> None:
        """Raise InputError when the directory holds a run of another recipe, with the keys that differ, or when no
        checkpoints can be written to it."""
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
        """Return whether the run in this directory has another number of steps than `recipe`."""
        return self.config.exists() and resuming.has_other_length(storage.read_json(self.config), recipe.to_dict())

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
        """Lock the directory while the block runs, and begin the run (`begin`), on the first process for all.

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
                refused = refused or InputError(f"{self.path}: the first process could not have it")
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
            The number of steps that the run had before, or None where it is not known.

        Raises:
            InputError: the data have changed since the run began, or the run cannot have this number of steps.
        """
        done, before = self.last_step, None
        if done is not None:
            record = DataRecord(self.data)
            self._compare(recipe, record, data)
            before = record.num_steps
            if self.config.exists():
                resuming.check_new_length(storage.read_json(self.config), recipe, num_steps, done)
        for path in (self.model, self.report, self.metrics, self.wandb_id):
            storage.remove_leftovers(path)  # files of a process that was killed
        storage.remove_incomplete(self.model)
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
        if recipe.data.get("mixture"):
            places["prepared"] = "data.mixture"
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
        """Rename a model of fewer steps, or an incomplete model, to make room for the new one."""
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
