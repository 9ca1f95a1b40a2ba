"""Commands in processes of their own that are killed by SIGKILL at random moments, and what they leave behind.

The moments are spread over the whole of a run. The first is in the start, the last while the model is written; the
others are between checkpoints, many of them while one is being written.
"""

import contextlib
import dataclasses
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from killed_kinds import KINDS, Kind, Makers
from small import assert_alike, metrics_of

from bert_jax import recipes

# A checkpoint, or a model: whole, or being written under another name (on a disk) or beside a mark (on a bucket).
_MILESTONE = re.compile(
    r"((?:[^/]+/)*?)[.]*(checkpoints/\d+|pruned|model|out(?:[.]jsonl)?)((?:(?:[.]bert_jax-[0-9a-f]{16})?[.]partial)*)(?=/|$)"
)
_WRITING = " being written"
_LONGEST = 3600  # seconds that a process may take, also on a machine that does much else
# What a run leaves beside its results: events have the names of processes, and leases are numbered by them.
_OWN = re.compile(r"(?:^|/)(?:tensorboard|[.]lease|checkpoints)/|^cache/")


class Disk:
    """A folder on a disk."""

    poll = 0.001  # seconds between looks at it

    def __init__(self, folder: Path) -> None:
        self.at, self._folder = str(folder), folder

    def names(self, run: str) -> list[str]:
        """The relative paths of all files and directories of a run."""
        root, found = self._folder / run, []
        for folder, directories, files in os.walk(root):
            found += [os.path.relpath(os.path.join(folder, name), root) for name in (*directories, *files)]
        return found

    def contents(self, run: str) -> dict[str, bytes]:
        """The files of a run."""
        root = self._folder / run
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def clear(self, run: str) -> None:
        """Delete the files of a run."""
        shutil.rmtree(self._folder / run)
        (self._folder / run).mkdir()

    def fetched(self, run: str) -> Path:
        """A local folder with the files of a run."""
        return self._folder / run


class OnBucket:
    """A prefix of a bucket; `folder` is a local one for what is fetched."""

    poll = 0.05

    def __init__(self, bucket: Any, prefix: str, folder: Path) -> None:
        self.at, self._bucket, self._prefix, self._folder = f"gs://{bucket.name}/{prefix}", bucket, prefix, folder

    def upload(self, folder: Path) -> None:
        """Copy the files of a local folder to the bucket."""
        for path in filter(Path.is_file, folder.rglob("*")):
            self._bucket.write(f"{self._prefix}/{path.relative_to(folder)}", path.read_bytes())

    def names(self, run: str) -> list[str]:
        start = f"{self._prefix}/{run}/"
        return [key.removeprefix(start) for key in self._bucket.keys(start)]

    def contents(self, run: str) -> dict[str, bytes]:
        return {name: self._bucket.read(f"{self._prefix}/{run}/{name}") for name in self.names(run)}

    def clear(self, run: str) -> None:
        for name in self.names(run):
            self._bucket.delete(f"{self._prefix}/{run}/{name}")

    def fetched(self, run: str) -> Path:
        for name, content in self.contents(run).items():
            path = self._folder / run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return self._folder / run


@dataclasses.dataclass
class Run:
    """A command, and what was seen of it.

    Attributes:
        command: the command.
        place: where it writes.
        name: the folder of the run there.
        output: a file for what its processes print.
        gaps: seconds from the start to the first milestone, from each to the next, and from the last to the end.
        milestones: the first milestone, the second, ...
        kills: (seconds after the start of its process, newest milestone) of each kill.
        stale: temporary files of processes that were killed earlier.
    """

    command: list[str]
    place: Disk | OnBucket
    name: str
    output: Path
    gaps: list[float] = dataclasses.field(default_factory=list)
    milestones: list[str] = dataclasses.field(default_factory=list)
    kills: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    stale: frozenset[str] = frozenset()

    @contextlib.contextmanager
    def process(self) -> Iterator[subprocess.Popen]:
        """Start the command, as a user does; whatever happens, the process has ended after the block."""
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
        with self.output.open("ab") as file:
            process = subprocess.Popen(self.command, env=environment, stdout=file, stderr=file)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def said(self) -> str:
        """What the processes printed, for the messages of assertions."""
        return f"{' '.join(self.command)}\n{self.output.read_text(errors='replace')[-6000:]}"

    def look(self) -> None:
        """Add the milestones that have been reached since the last look."""
        names = set(self.place.names(self.name)) - self.stale
        unfinished = {name.removesuffix("/.incomplete") for name in names if name.endswith("/.incomplete")}
        found = set()
        for match in filter(None, map(_MILESTONE.match, names)):
            name = match[1] + match[2]
            is_saved = name.rpartition("/")[2].isdigit()
            found |= {name} if is_saved or not (match[3] or name in unfinished) else set()
            found |= set() if is_saved else {name + _WRITING}
        new = found - set(self.milestones)
        self.milestones += sorted(new, key=lambda name: (_natural(name.removesuffix(_WRITING)), _WRITING not in name))

    @property
    def writing(self) -> int:
        """The index of the gap in which the last model is written."""
        return 1 + max(i for i, name in enumerate(self.milestones) if name.endswith(_WRITING))

    def finish(self) -> None:
        """Run the command to its end, and note when it reaches its milestones."""
        with self.process() as process:
            times = [time.monotonic()]
            while process.poll() is None and time.monotonic() < times[0] + _LONGEST:
                self.look()
                times += [time.monotonic()] * (len(self.milestones) + 1 - len(times))
                time.sleep(self.place.poll)
            assert process.returncode == 0, self.said()
        self.look()
        times += [time.monotonic()] * (len(self.milestones) + 2 - len(times))
        self.gaps = [after - before for before, after in itertools.pairwise(times)]

    def kill(self, reached: str, following: str, delay: float, late: float) -> bool:
        """Start the command, and kill it; return False if it ended first.

        Args:
            reached: the milestone after which it is killed; "" is the start.
            following: the next milestone; on reaching it, the process is killed at once. "" for the end.
            delay: seconds after `reached` at which it is killed.
            late: the delay where an earlier process has reached the milestone.
        """
        self.stale = frozenset(name for name in self.place.names(self.name) if ".partial" in name)
        self.look()
        delay = late if reached in self.milestones else delay
        with self.process() as process:
            start, since = time.monotonic(), None
            while process.poll() is None and time.monotonic() < start + _LONGEST:
                if since is None and (not reached or reached in self.milestones):
                    since = time.monotonic()
                if since is not None and (time.monotonic() - since >= delay or following in self.milestones):
                    break
                self.look()
                time.sleep(self.place.poll)
            ended = process.poll() is not None
            process.send_signal(signal.SIGKILL)
            assert process.wait() in ((0,) if ended else (0, -signal.SIGKILL)), self.said()
        self.look()
        if process.returncode == 0:
            return False
        self.kills.append((time.monotonic() - start, self.milestones[-1] if self.milestones else "none"))
        return True


def kill_at_moments(run: Run, whole: Run, count: int, rng: random.Random, slower: float = 1.0) -> None:
    """Kill a run `count` times, each later than the one before, and then run it to its end.

    Args:
        run: the run.
        whole: a run of the same command that was not killed, and has ended.
        count: number of kills.
        rng: decides about the moments.
        slower: how many times longer than `whole` the run is expected to take.
    """
    last = whole.writing
    some = sorted(rng.sample(range(1, last), max(0, count - 2)))
    chosen = [0, *some, last] if count > 1 else [rng.randrange(last + 1)]
    names = ["", *whole.milestones, ""]
    for gap in chosen:
        delay = rng.uniform(0, slower * whole.gaps[gap])
        late = rng.uniform(0, slower * (whole.gaps[0] + whole.gaps[gap]))
        run.kill(names[gap], names[gap + 1] or "(the end)", delay, late)
    run.finish()


def run_of(kind: Kind, place: Disk | OnBucket, name: str, folder: Path) -> Run:
    """The run `name` of a kind, whose files are in `place`; its recipe and what it prints are in a local folder."""
    at, out = place.at, f"{place.at}/{name}"
    config = folder / f"{name}.json"
    config.write_text(recipes.to_json(recipes.resolve(kind.recipe(at, out))))
    words = [*kind.words(at, out), "--config", str(config), "--quiet"]
    return Run([sys.executable, "-m", "bert_jax", kind.verb, *words], place, name, folder / f"{name}.log")


def assert_ended_alike(kind: Kind, whole: Path, killed: Path) -> None:
    """The folders of two runs hold the same models, checkpoints and metrics, and nothing that the other lacks."""
    for name in kind.workdirs:
        one, other = whole / name, killed / name
        assert_alike(one, other)
        scored = [line["step"] for line in metrics_of(other) if any("eval/" in key for key in line)]
        trained = [line["step"] for line in metrics_of(other) if any("train/" in key for key in line)]
        assert len(set(scored)) == len(scored) and len(set(trained)) == len(trained)
        arrays = [_last_arrays(workdir / "checkpoints") for workdir in (one, other)]
        assert arrays[0].keys() == arrays[1].keys()
        for key, array in arrays[0].items():
            assert array.tobytes() == arrays[1][key].tobytes(), key
    for name in kind.outputs:
        one, other = Disk(whole).contents(name), Disk(killed).contents(name)
        assert one.keys() == other.keys()
        assert [key for key in one if one[key] != other[key]] == []
    assert _names(killed) == _names(whole)


def _names(folder: Path) -> list[str]:
    """The files of a run, except those whose names depend on its processes, and the steps of its checkpoints."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    checkpoints = {name for path in folder.rglob("checkpoints/*") if not (name := path.name).isdigit()}
    return sorted({name for name in names if not _OWN.search(name)} | checkpoints)


def _last_arrays(checkpoints: Path) -> dict[str, np.ndarray]:
    """The arrays of the newest checkpoint: parameters, state of the optimizer, step."""
    newest = max((path for path in checkpoints.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    handler, item = ocp.PyTreeCheckpointHandler(), newest / "default"
    as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), handler.metadata(item).tree)
    tree = handler.restore(item, args=ocp.args.PyTreeRestore(restore_args=as_numpy))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _natural(name: str) -> list[Any]:
    """A key that sorts numbers in names by their value."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def whole_run(name: str, makers: Makers, folder: Path) -> Run:
    """Write the files of a kind into `folder/files`, and run it there to its end, undisturbed."""
    files = folder / "files"
    files.mkdir(parents=True)
    KINDS[name].write(makers, files)
    run = run_of(KINDS[name], Disk(files), "whole", folder)
    run.finish()
    return run
