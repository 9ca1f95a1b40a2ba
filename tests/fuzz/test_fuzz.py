"""Damaged files of every kind: whatever is wrong with them is said in one line, in bounded time and memory.

`make fuzz` tries many more. One case again, its files kept: `python tests/fuzz --case NAME --keep DIR`.
"""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import cases
import engine
import hostile_inputs
import worker
from mutations import Mutator

from bert_jax.errors import InputError

pytestmark = pytest.mark.skipif(not pathlib.Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
CASES = 120
# `make test-all` tries the others too.
QUICK = [name for name, it in hostile_inputs.NAMED.items() if not it.slow][::12]


@pytest.fixture(scope="module")
def seeds_file(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("fuzz") / "seeds"


@pytest.mark.slow
def test_numbered_cases(seeds_file):
    summary = engine.run(range(CASES), seeds_file)
    assert not summary.findings, f"\n{summary}"
    assert summary.tried.keys() == cases.KINDS.keys()
    assert CASES / 3 < summary.refused.total() < CASES  # most are damaged, and some not where it matters


@pytest.mark.slow
def test_hostile_inputs(seeds_file):
    summary = engine.run(QUICK, seeds_file)
    assert not summary.findings, f"\n{summary}"


@pytest.mark.slow
def test_the_other_hostile_inputs(seeds_file):
    summary = engine.run([name for name in hostile_inputs.NAMED if name not in QUICK], seeds_file)
    assert not summary.findings, f"\n{summary}"


@pytest.mark.slow
def test_a_case_is_the_same_each_time(seeds_file):
    known = cases.kept(seeds_file)
    for number in (0, 7, 1234):
        first, second = cases.make(number, known), cases.make(number, known)
        assert (first.what, first.files) == (second.what, second.files)
    assert cases.make(0, known).files != cases.make(100, known).files


def test_json_is_changed_as_json():
    whole = {"a": [1, {"b": "text"}], "c": {"d": None}}
    changed = [Mutator(number, [b""]).of_json(json.dumps(whole).encode()) for number in range(50)]
    assert sum(text != json.dumps(whole).encode() for text in changed) > 45
    assert any(len(text) > 1000 for text in changed) and any(b"e" in text for text in changed)


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (lambda: None, ""),
        (lambda: (_ for _ in ()).throw(InputError("expected X, found Y")), ""),
        (lambda: pathlib.Path("/absent").read_text(), ""),
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: sys.exit(3), "SystemExit"),
        (lambda: (_ for _ in ()).throw(InputError("a\nb")), ""),  # InputError makes one line of it
        (lambda: print("\x1b[31m"), "U+001B is printed"),
        (lambda: print("x" * 1000), "a line of 1000 characters is printed"),
    ],
)
def test_verdicts(run, found, capfd):
    class Printed:
        @staticmethod
        def take() -> str:
            return "".join(capfd.readouterr())

    verdict = worker.tried(run, Printed())
    assert found in verdict["kind"] and bool(found) == bool(verdict["kind"])
    assert "several lines" in worker.wrong_with("a\nb", one_line=True) and not worker.wrong_with("a\nb")


def test_output_is_looked_at_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(worker.os, "dup2", lambda *_: None)
    monkeypatch.setattr(worker, "_AT_ONCE", 8)
    output = worker.Output(tmp_path / "output")
    for written, found in (("fine\n" * 9, ""), ("fine\n" * 9 + "\x1b\n" + "fine\n" * 9, "U+001B is printed")):
        (tmp_path / "output").write_text(written)
        taken = output.take()
        assert len(taken) < 16 and worker.wrong_with(taken) == found
        assert not output.take() and not (tmp_path / "output").read_bytes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("any(iter(int, 1))", "not done after 2 seconds"),
        ("any(iter(lambda: open(sys.argv[1] + '/output', 'a').write('x') < 0, 1))", "not done after 4 seconds"),
        ("import os; os.abort()", "the process ended by SIGABRT"),
        ("import time; held = bytearray(400 << 20); time.sleep(9)", "over 256 MB of memory"),
    ],
)
def test_a_worker_that_hangs_dies_or_takes_memory(code, found, tmp_path, monkeypatch):
    """The limits, kept from outside of the process, which is started again."""
    script = "import json, sys; print('{}', flush=True)\nfor line in sys.stdin:\n"
    script += " print(json.dumps({'what': '', 'bytes': 0}), flush=True)\n"
    script += f" if json.loads(line): {code}\n"
    script += " print(json.dumps({'kind': '', 'text': '', 'refused': False, 'memory': 0}), flush=True)\n"
    (tmp_path / "worker.py").write_text(script)
    monkeypatch.setattr(engine, "_HERE", tmp_path)
    monkeypatch.setattr(engine, "SECONDS", 2)
    monkeypatch.setattr(engine, "MOST", 2)
    monkeypatch.setattr(engine, "MEMORY", 256 << 20)
    tried = engine.Worker(tmp_path / "root", tmp_path / "seeds", "")
    try:
        with pytest.raises(engine.Died, match=found):
            tried.attempt(1)
        assert not tried.attempt(0)["kind"]
    finally:
        tried.close()
