"""What killed processes leave beside what they wrote is swept by the next writer; what one still writes is not."""

import os
import subprocess
import sys
import time

import pytest

from bert_jax import storage

# A model that a run writes is written beside a directory that is itself beside the run's model.
_WRITER_OF_TWO = """
import sys, time
from bert_jax import storage
with storage.directory_atomically(sys.argv[1]) as outer, storage.directory_atomically(outer) as opened:
    (opened / "part").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""
_WRITER = """
import sys, time
from bert_jax import storage
kind, path = sys.argv[1:]
with (storage.directory_atomically if kind == "directory" else storage.open_atomically)(path) as opened:
    if kind == "directory":
        (opened / "part").write_text("half")
    else:
        opened.write("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def leftovers(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".partial")]


def age(folder):
    """Makes what is there seem older than a process needs to lock it."""
    for path in folder.iterdir():
        os.utime(path, (time.time() - 60, time.time() - 60))


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_the_next_writer_sweeps_what_a_killed_one_left_and_nothing_else(tmp_path, kind):
    out = tmp_path / "out[1]"
    process = subprocess.Popen([sys.executable, "-c", _WRITER, kind, str(out)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    strangers = [".other.0123abcd.partial", ".out[1].partial", ".out[1].0123abcd.partial.txt"]
    for name in strangers:
        (tmp_path / name).write_text("not of this output")
    age(tmp_path)
    storage.remove_leftovers(out)
    assert len(leftovers(tmp_path)) == 3  # it still writes
    process.kill()
    process.wait()
    (tmp_path / ".out[1].89abcdef.partial").write_text("young")
    if kind == "directory":
        with storage.directory_atomically(out) as folder:
            (folder / "whole").write_text("all")
    else:
        storage.write_atomically(out, "all")
    assert sorted(leftovers(tmp_path)) == sorted([*strangers[:2], ".out[1].89abcdef.partial"])
    assert (out / "whole" if kind == "directory" else out).read_text() == "all"


def test_the_next_writer_sweeps_what_a_writer_within_a_writer_left(tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", _WRITER_OF_TWO, str(out)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    age(tmp_path)
    storage.remove_leftovers(out)
    assert len(leftovers(tmp_path)) == 2  # it still writes
    process.kill()
    process.wait()
    for stranger in ("..out.0123abcd.partial", "..other.0123abcd.partial.0123abcd.partial"):
        (tmp_path / stranger).mkdir()
    age(tmp_path)
    storage.remove_leftovers(out)
    assert sorted(leftovers(tmp_path)) == ["..other.0123abcd.partial.0123abcd.partial", "..out.0123abcd.partial"]
