"""Weight files that are damaged or that lie: they load, or end in an InputError, and take little memory and time."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import hostile
import numpy as np
import pytest

from bert_jax.conversion.formats import safetensors_writing
from bert_jax.conversion.weights import open_weights
from bert_jax.errors import InputError

SECONDS = 5  # for one directory
MEMORY = 2**20  # bytes beside twice the files' size
BOMB_MEMORY = 6 * 2**20  # for those that use each bound to the full
QUICK, ALL = 300, 10_000


class TooSlow(Exception):
    """A file was not done with in time."""


@contextlib.contextmanager
def limited(seconds: float):
    def stop(*_):
        raise TooSlow(f"over {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def read_all(directory: Path) -> None:
    """Opens weights and reads each tensor, one after the other."""
    with open_weights(directory) as weights:
        for name, tensor in weights.tensors.items():
            found = tensor.read()
            assert (found.shape, found.dtype) == (tensor.shape, tensor.dtype), name
            del found


def written(directory: Path, found: hostile.Files) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, content in found.items():
        (directory / name).write_bytes(content)
    return directory


def attempt(directory: Path) -> tuple[bool, int]:
    """Whether the weights in a directory load; and the most memory that it took."""
    tracemalloc.start()
    try:
        with limited(SECONDS):
            read_all(directory)
        return True, tracemalloc.get_traced_memory()[1]
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000 and str(directory) in str(error), str(error)
        return False, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def maker(tmp_path) -> hostile.Hostile:
    (tmp_path / "bases").mkdir()
    return hostile.Hostile(hostile.whole(tmp_path / "bases"), hostile.witness_command(tmp_path))


def test_what_the_damage_starts_from_is_whole(tmp_path):
    (tmp_path / "bases").mkdir()
    for kind, found in hostile.whole(tmp_path / "bases").items():
        loaded, _ = attempt(written(tmp_path / "case", found))
        assert loaded, kind


@pytest.mark.parametrize(
    ("first", "last"), [(0, QUICK), pytest.param(QUICK, ALL + QUICK, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_damaged_files_load_or_are_refused(tmp_path, maker, first, last):
    loaded = 0
    for number in range(first, last):
        what, found = maker.make(number)
        directory = written(tmp_path / "case", found)
        try:
            whole, memory = attempt(directory)
        except Exception as error:
            pytest.fail(f"case {number} ({what}): {type(error).__name__}: {str(error)[:300]}", pytrace=False)
        size = sum(map(len, found.values()))
        assert memory <= 2 * size + MEMORY, f"case {number} ({what}): {memory} bytes for a file of {size}"
        loaded += whole
    assert not (tmp_path / hostile._WITNESS).exists()
    assert 0.02 * (last - first) < loaded < 0.5 * (last - first)  # most are damaged where it shows; some are not


def test_the_witness_would_tell(tmp_path):
    os.system(hostile.witness_command(tmp_path))
    assert (tmp_path / hostile._WITNESS).exists()


_MEASURED = """
import pathlib, re, signal, sys
from bert_jax.conversion.formats import safetensors_writing
from bert_jax.conversion.weights import open_weights
from bert_jax.errors import InputError

def resident(line):
    return 1024 * int(re.search(line + r":\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])

signal.alarm(int(sys.argv[2]))  # which ends the process
before = resident("VmRSS")
try:
    with open_weights(sys.argv[1]) as weights:
        for tensor in weights.tensors.values():
            tensor.read()
    print("loads", resident("VmHWM") - before)
except InputError:
    print("refused", resident("VmHWM") - before)
"""


def measured(directory: Path) -> tuple[str, int]:
    """How reading ends in a process of its own, and by how many bytes its resident memory grows at most."""
    if not Path("/proc/self/status").exists():
        pytest.skip("resident memory is measured on Linux")
    command = [sys.executable, "-c", _MEASURED, str(directory), str(4 * SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    how, grown = done.stdout.split()
    return how, int(grown)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", hostile.bombs())
def test_bombs_take_no_more_than_their_size(tmp_path, what):
    found = hostile.bombs()[what]
    directory = written(tmp_path / "case", found)
    _, memory = measured(directory)
    assert memory <= 2 * sum(map(len, found.values())) + BOMB_MEMORY


def test_large_tensors_come_one_at_a_time(tmp_path):
    tensors = {f"w{i}": np.zeros((1024, 4096), np.float32) for i in range(8)}  # 16 MiB each
    safetensors_writing.write(tmp_path / "model.safetensors", tensors)
    how, memory = measured(tmp_path)
    assert how == "loads" and memory < 2**24 + 2**22
