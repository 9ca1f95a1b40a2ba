"""Apache Beam writes the very files of the processes of one machine, on every runner and after every kill."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from prepared_corpora import write_corpus

from bert_jax.cli import main
from bert_jax.data.corpora.sources import Corpus, open_corpus
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError
from bert_jax.extras import how_to_install

pytest.importorskip("apache_beam")
OPTIONS = {"shard_bytes": 5000, "dupe_factor": 1, "max_seq_length": (32, 64), "validation_fraction": 0.05}
PROCESSES = ["--runner=DirectRunner", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small files, the last ones equal to the first, and a large one."""
    folder = tmp_path_factory.mktemp("beam") / "corpus"
    folder.mkdir()
    for number in range(30):
        write_corpus(folder / f"{number:02}.txt", 3 + number % 4, seed=number % 25)
    write_corpus(folder / "large.txt", 150, seed=99)
    return folder


def contents(directory):
    return {p.relative_to(directory): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.mark.parametrize("deduplicate", ["", pytest.param("near", marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [["--runner=DirectRunner"], PROCESSES], ids=["one process", "two processes"])
def test_the_files_are_those_of_one_machine(folder, tiny_tokenizer, tmp_path, deduplicate, options):
    filters = [f"{folder.parent}/keep.py:keep"] if deduplicate else []
    (folder.parent / "keep.py").write_text("def keep(text):\n    return len(text) % 7 > 0\n")
    given = OPTIONS | {"deduplicate": deduplicate, "filters": filters}
    ours = prepare(str(folder), tiny_tokenizer, tmp_path / "ours", num_workers=1, **given)
    theirs = prepare(str(folder), tiny_tokenizer, tmp_path / "theirs", beam_options=options, **given)
    assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")
    assert ours.sets == theirs.sets and (ours.removed > 10) == bool(deduplicate)
    assert ours.filtered == theirs.filtered and (sum(ours.filtered.values()) > 5) == bool(filters)
    assert len({shard.name[:14] for instances in ours.sets for shard in instances.shards}) > 8  # units
    assert {path.name for path in tmp_path.iterdir()} == {"ours", "theirs"}


def test_without_a_low_hash_one_document_is_held_out(folder, tiny_tokenizer, tmp_path):
    changed = OPTIONS | {"validation_fraction": 1e-9}
    for name, options in (("ours", None), ("theirs", ["--runner=DirectRunner"])):
        prepare(str(folder), tiny_tokenizer, tmp_path / name, num_workers=1, beam_options=options, **changed)
    assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")
    assert Manifest.read(tmp_path / "theirs").documents["validation"] == 1


SCRIPT = """
import sys
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.tokenization import load_tokenizer
if __name__ == "__main__":
    prepare(sys.argv[1], load_tokenizer(sys.argv[2]), sys.argv[3], deduplicate="near", beam_options=sys.argv[4:],
            shard_bytes=5000, dupe_factor=1, max_seq_length=(32, 64), validation_fraction=0.05)
"""


@pytest.mark.slow
def test_killed_at_random_it_ends_with_the_same_files(folder, tiny_tokenizer, tmp_path):
    tiny_tokenizer.save(tmp_path / "tokenizer")
    prepare(str(folder), tiny_tokenizer, tmp_path / "ours", num_workers=1, deduplicate="near", **OPTIONS)
    rng, kills = random.Random(0), 0

    def command(out):
        return [sys.executable, "-c", SCRIPT, folder, tmp_path / "tokenizer", tmp_path / out, *PROCESSES]

    start = time.monotonic()
    subprocess.run(command("whole"), check=True, capture_output=True)
    seconds = time.monotonic() - start
    for run in range(12):
        process = subprocess.Popen(
            command("theirs"), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(None if run == 11 else rng.uniform(0.4, 0.9) * seconds)
        except subprocess.TimeoutExpired:
            kills += 1
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(0.2)
        if (tmp_path / "theirs").exists():
            break
    assert kills >= 1 and contents(tmp_path / "ours") == contents(tmp_path / "theirs")


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--runner=DirectRunner"], PROCESSES], ids=["one process", "two processes"])
def test_an_error_in_the_text_is_one_line(folder, tiny_tokenizer, tmp_path, options):
    (tmp_path / "bad.txt").write_bytes(b"bad \xff\n")
    with pytest.raises(
        InputError, match=r"^\S*/bad\.txt: line 1: expected UTF-8 text, found [^\n]*-t utf-8 FILE > NEW$"
    ):
        prepare([str(folder), str(tmp_path / "bad.txt")], tiny_tokenizer, tmp_path / "out", beam_options=options)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]


def test_what_beam_cannot_do(folder, tiny_tokenizer, tmp_path, monkeypatch, capsys):
    mine = dataclasses.replace(open_corpus(str(folder)), cut=None, read=lambda: iter(()))
    with pytest.raises(InputError, match="expected a corpus that workers of Beam can open"):
        prepare(mine, tiny_tokenizer, tmp_path / "out", beam_options=[])
    assert isinstance(mine, Corpus)
    tiny_tokenizer.save(tmp_path / "tokenizer")
    words = ["prepare", str(folder), "--tokenizer", str(tmp_path / "tokenizer"), "--out", str(tmp_path / "out")]
    assert main([*words, "--beam", "", "--num-workers", "2"]) != 0
    assert "--num-workers: expected none with --beam" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.delitem(sys.modules, "bert_jax.data.pretraining.beam", raising=False)
    monkeypatch.delattr("bert_jax.data.pretraining.beam", raising=False)
    assert main([*words, "--beam=--runner=DirectRunner"]) != 0
    assert f"--beam: expected Apache Beam: {how_to_install('beam')}" in capsys.readouterr().err
