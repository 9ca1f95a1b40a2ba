"""The commands of docs/pretraining.md for a Dask cluster, on one of two workers."""

import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from prepared_corpora import write_corpus

from bert_jax.data.pretraining.prepare import prepare

pytest.importorskip("apache_beam")
pytest.importorskip("distributed")
PAGE = Path(__file__).parents[3] / "docs" / "pretraining.md"


def contents(directory):
    return {p.relative_to(directory): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.mark.slow
def test_the_files_are_those_of_one_machine(tmp_path, tiny_tokenizer):
    (tmp_path / "corpus").mkdir()
    for number in range(20):
        write_corpus(tmp_path / "corpus" / f"{number:02}.txt", 20, seed=number)
    tiny_tokenizer.save(tmp_path / "tokenizer")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    block = re.search(r"```\n(dask scheduler.*?)```", PAGE.read_text(), re.DOTALL)[1].replace("8786", port)
    scheduler, worker, *verb = block.strip().split("\n")
    dask = [sys.executable, "-m", "dask"]
    started = [
        subprocess.Popen([*dask, *shlex.split(line)[1:], "--no-dashboard"], cwd=tmp_path, stderr=subprocess.DEVNULL)
        for line in (scheduler, f"{worker} --nthreads 1", f"{worker} --nthreads 1")
    ]
    try:
        words = shlex.split("\n".join(verb))[1:]
        subprocess.run([sys.executable, "-m", "bert_jax", *words], cwd=tmp_path, check=True, timeout=300)
        options = shlex.split(words[-1].removeprefix("--beam="))
        prepare(str(tmp_path / "corpus"), tiny_tokenizer, tmp_path / "theirs", beam_options=options, shard_bytes=5000)
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
    prepare(str(tmp_path / "corpus"), tiny_tokenizer, tmp_path / "ours", num_workers=1, shard_bytes=5000)
    assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")
    assert (tmp_path / "on_dask" / "manifest.json").exists()
