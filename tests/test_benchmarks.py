"""The command line of the benchmarks, and the general text of the distillation."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*words):
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("module", ["benchmarks", "benchmarks.quantization", "benchmarks.input"])
def test_the_command_line_opens(module):
    done = run(module, "--help")
    assert done.returncode == 0 and "--help" in done.stdout, done.stderr


def test_every_benchmark_has_its_flags(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.__main__ import BENCHMARKS, build_parser

    for name in BENCHMARKS:
        given = ["--vocab", "vocab.txt"] if "vocab" in BENCHMARKS[name][2] else []
        args = vars(build_parser().parse_args([name, *given]))
        assert args.keys() == {"what", *BENCHMARKS[name][2]}
    assert build_parser().parse_args(["pruning", "--only", "stsb", "--share", "0.5"]).only == ["stsb"]
    with pytest.raises(SystemExit):
        build_parser().parse_args(["pruning", "--only", "conll2003"])
