"""What killed processes leave beside what they wrote is swept by the next writer; what one still writes is not."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bert_jax import storage

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


# A model that a run writes is written beside a directory that is itself beside the run's model.
_WRITER_OF_TWO = """
import sys, time
from bert_jax import storage
with storage.directory_atomically(sys.argv[1]) as outer, storage.directory_atomically(outer) as opened:
    (opened / "part").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""
_STRANGERS = (  # of the user, of other outputs, and of programs with other names for what they write
    ".out[1].0123abcd.partial",
    ".out[1].partial",
    ".out[1].bert_jax-0123456789abcdef.partial.txt",
    ".out[1].bert_jax-0123456789abcdef",
    ".out[1].bert_jax-0123456789ABCDEF.partial",
    ".out1.bert_jax-0123456789abcdef.partial",
    "out[1].bert_jax-0123456789abcdef.partial",
    "..out[1].bert_jax-0123456789abcdef.partial",
    ".other.bert_jax-0123456789abcdef.partial",
    "..other.bert_jax-0123456789abcdef.partial.bert_jax-0123456789abcdef.partial",
)


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def started(script, *arguments):
    """A process that writes and has said so."""
    process = subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    return process


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("kind", ["directory", "file"])
def test_the_next_writer_sweeps_what_a_killed_one_left_and_nothing_else(tmp_path, kind, is_folder):
    out = tmp_path / "out[1]"
    for name in _STRANGERS:
        place = tmp_path / name / "thesis.txt" if is_folder else tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("of the user")
        os.utime(tmp_path / name, (0, 0))
    process = started(_WRITER, kind, out)
    storage.remove_leftovers(out)
    assert len(listing(tmp_path)) == len(_STRANGERS) + 1  # it still writes
    kill(process)
    if kind == "directory":
        with storage.directory_atomically(out) as folder:
            (folder / "whole").write_text("all")
    else:
        storage.write_atomically(out, "all")
    assert listing(tmp_path) == sorted([*_STRANGERS, "out[1]"])  # at once, however young it was
    assert (out / "whole" if kind == "directory" else out).read_text() == "all"
    for name in _STRANGERS:
        assert (tmp_path / name / "thesis.txt" if is_folder else tmp_path / name).read_text() == "of the user"


def test_the_next_writer_sweeps_what_a_writer_within_a_writer_left(tmp_path):
    out = tmp_path / "out"
    process = started(_WRITER_OF_TWO, out)
    storage.remove_leftovers(out)
    assert len(listing(tmp_path)) == 2  # it still writes
    kill(process)
    storage.remove_leftovers(out)
    assert listing(tmp_path) == []


def test_a_link_with_the_name_of_a_leftover_is_left_alone(tmp_path):
    (tmp_path / "theses").mkdir()
    (tmp_path / "theses" / "thesis.txt").write_text("of the user")
    (tmp_path / ".out.bert_jax-0123456789abcdef.partial").symlink_to(tmp_path / "theses")
    storage.remove_leftovers(tmp_path / "out")
    assert listing(tmp_path) == [".out.bert_jax-0123456789abcdef.partial", "theses"]
    assert listing(tmp_path / "theses") == ["thesis.txt"]


def test_writers_of_one_file_do_not_sweep_one_another(tmp_path):
    def write(number):
        for _ in range(20):
            storage.write_atomically(tmp_path / "out", f"{number}" * 1000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))  # raises what a writer raises
    assert listing(tmp_path) == ["out"]
    assert len(set((tmp_path / "out").read_text())) == 1
