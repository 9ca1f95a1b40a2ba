"""The directory of a run: what lies where in it, and to which recipe it belongs."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from bert_jax import recipes, storage
from bert_jax.errors import InputError

# Keys that may differ between a run and its continuation: they change how often something is written down or how the
# work is spread and recomputed (which changes rounding), but not what is computed. Any other key makes another run.
MAY_CHANGE = frozenset(
    {
        "log_every",
        "checkpoint_every",
        "keep_checkpoints",
        "max_skipped_steps",
        "warn_after_seconds",
        "profile",
        "wandb",
        "mesh.data",
        "mesh.fsdp",
        "mesh.tensor",
        "layers",
        "remat",
        "attention",
    }
)


@dataclasses.dataclass(frozen=True)
class Workdir:
    """Names of what a run leaves.

    Attributes:
        path: the directory, local or `gs://`.
    """

    path: storage.Path

    @property
    def config(self) -> storage.Path:
        """The resolved recipe; the first thing written."""
        return self.path / "config.json"

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
        """Whether the model has been written: `config.json` is its last file."""
        return (self.model / "config.json").exists()

    def batch(self, step: int) -> storage.Path:
        """The batch of a step that could not be learned from: NumPy's .npz, an array for each of its names."""
        return self.path / f"batch-{step}.npz"

    def check(self, recipe: ConfigDict) -> None:
        """Raises InputError when the directory holds a run of another recipe, naming the keys that differ, or is where
        no checkpoints can be written."""
        if self.path.is_remote and not self.path.url.startswith("gs://"):
            raise InputError(f"{self.path}: expected a work directory on a disk or on gs://, which checkpoints need")
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path}: expected a directory, found a file")
        if not self.config.exists():
            return
        differing = differences(storage.read_json(self.config), recipe.to_dict())
        if differing:
            more = f" and {len(differing) - 4} more" if len(differing) > 4 else ""
            raise InputError(
                f"{self.path} belongs to another config: {'; '.join(differing[:4])}{more}; use another --workdir"
            )

    @contextlib.contextmanager
    def claimed(self, recipe: ConfigDict) -> Iterator[storage.Claim]:
        """Writes `config.json`, and keeps others out while the block runs.

        Raises:
            InputError: another run is under way in it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with storage.claimed(self.path, f"{self.path}: another run is under way there; use another --workdir") as claim:
            storage.write_atomically(self.config, recipes.to_json(recipe))
            yield claim


def differences(saved: dict[str, Any], recipe: dict[str, Any]) -> list[str]:
    """What of `recipe` is not as in `saved`, one phrase a key, keys of MAY_CHANGE apart."""
    old, new = recipes.flatten(saved), recipes.flatten(recipe)
    phrases = []
    for key in sorted((old.keys() | new.keys()) - MAY_CHANGE):
        before, now = old.get(key), new.get(key)
        if _plain(before) != _plain(now):
            phrases.append(f"{key} was {before!r}, is now {now!r}")
    return phrases


def _plain(value: Any) -> Any:
    """As JSON would give it back."""
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
