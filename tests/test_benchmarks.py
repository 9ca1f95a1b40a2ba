"""The command line of the benchmarks, and the general text of the distillation."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*words):
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_text_of_the_general_distillation(monkeypatch, shared_data, tmp_path):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.distillation import Comparison

    (tmp_path / "corpus.txt").write_text("One sentence. And another!\n\nA third one?\n")
    made = Comparison(shared_data, tmp_path, [str(tmp_path / "corpus.txt")], tmp_path, tmp_path / "record", 1.0)
    texts = [json.loads(line)["text"] for line in made._texts().read_text().splitlines()]
    assert texts[:3] == ["One sentence.", "And another!", "A third one?"]
    assert len(set(texts)) == len(texts) > 80_000
    for text in ("hide new secretions from the parental units", "A plane is taking off.", "Peter Blackburn"):
        assert text in map(str.strip, texts)


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


def test_clients_notice_that_a_server_has_closed_an_idle_connection(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import serving

    async def answer(reader, writer):
        try:
            while await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 0.05):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except (TimeoutError, asyncio.IncompleteReadError):
            writer.close()

    async def load():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        process = type("", (), {"port": server.sockets[0].getsockname()[1], "cpu_seconds": lambda _: 0.0})()
        return await serving.open_loop(process, [b"GET / HTTP/1.1\r\n\r\n"], rate=10, seconds=2)

    assert asyncio.run(load()).rate > 1  # every request is answered, or there is an error


def test_the_simulation_of_workers(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.at_scale import CHUNK, PREPARE, UNIT, Cluster, simulate, units_of

    units = [UNIT] * 400
    alone = 400 * UNIT / PREPARE / 3600
    whole = simulate(units, Cluster(8))
    assert whole.hours == pytest.approx(alone / 8) and whole.useful == pytest.approx(1.0) and whole.lost == 0
    assert simulate(units, Cluster(8, slow=1.0, slowness=2.0)).hours == pytest.approx(alone / 4)
    lost = simulate(units, Cluster(8, lost_per_hour=30.0, replaced_after=0.0))
    most = lost.lost * CHUNK / PREPARE / 3600 / 8  # a lost worker repeats less than a chunk
    assert lost.lost > 10 and whole.hours < lost.hours < whole.hours + most + 2 * UNIT / PREPARE / 3600
    large = units_of(400 * UNIT, [50 * UNIT])
    assert sum(large) == pytest.approx(400 * UNIT)
    assert simulate(large, Cluster(50)).hours > 50 * UNIT / PREPARE / 3600


def test_the_page_of_large_corpora_has_the_tables(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import at_scale

    at_scale.main()
    page, printed = (ROOT / "docs" / "at_scale.md").read_text().splitlines(), capsys.readouterr().out.splitlines()
    rows = [line for line in printed if line.startswith("|")]
    assert len(rows) > 15 and [row for row in rows if row not in page] == []


def test_rows_are_appended(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.turns import append

    append(None, {"rate": 1})
    append(tmp_path / "record", {"rate": 1}, {"rate": 2})
    append(tmp_path / "record", {"rate": 3})
    rows = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert [row["rate"] for row in rows] == [1, 2, 3]
    assert all(row["versions"]["jax"] == jax.__version__ and row["cores"] == os.cpu_count() for row in rows)


@pytest.mark.slow
def test_the_benchmark_of_a_gpu_runs_on_any_device(tmp_path):
    for name in ("torch", "transformers"):
        pytest.importorskip(name, reason="the competitors: pip install 'bert-jax[torch]'")
    code = (
        "import sys; from pathlib import Path; from benchmarks.gpu import Case, main\n"
        "cases = [Case(what, 'tiny', 4, 32) for what in ('pretraining', 'encoding')]\n"
        "main(1, Path(sys.argv[1]), cases, (256, 256, 256))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "record")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert [(row["what"], row["implementation"]) for row in rows] == [
        (what, side)
        for what in ("pretraining", "encoding")
        for side in ("bert_jax", "PyTorch, eager", "PyTorch, compiled")
    ]
    assert all(row["rate"] > 0 and 0 < row["share_of_peak"] < 1.5 and row["peak_gb"] > 0.1 for row in rows)
