"""Preparing a corpus: complete, the same whatever the number of processes, and all or nothing."""

import dataclasses
import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from prepared_corpora import write_corpus

from bert_jax import program_cache, storage
from bert_jax.data.corpora.readers import Document
from bert_jax.data.corpora.sources import Corpus
from bert_jax.data.pretraining import chunk_shards
from bert_jax.data.pretraining.chunks import RECORDS_DIR, ChunkResult
from bert_jax.data.pretraining.corpus_checks import TextCounts
from bert_jax.data.pretraining.instances import decode_records
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.own_files import own_file
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.data.pretraining.steps import Prepared
from bert_jax.data.pretraining.units import is_held_out
from bert_jax.errors import InputError
from bert_jax.tokenization import load_tokenizer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return str(write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


def read_set(directory, instances):
    shards = [np.load(directory / shard.name)[:, 2:] for shard in instances.shards]  # behind the checksum
    width = max(shard.shape[1] for shard in shards)
    return decode_records(np.concatenate([np.pad(shard, ((0, 0), (0, width - shard.shape[1]))) for shard in shards]))


def contents(directory):
    return {p.relative_to(directory): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_what_is_written(tmp_path, corpus, tiny_tokenizer):
    progress = []
    out = tmp_path / "out"
    manifest = prepare(
        corpus,
        tiny_tokenizer,
        out,
        max_seq_length=(32, 64),
        dupe_factor=2,
        validation_fraction=0.1,
        shard_bytes=4000,
        num_workers=1,
        on_progress=progress.append,
    )
    assert manifest == dataclasses.replace(Manifest.read(out), settings=manifest.settings)
    assert manifest.documents == {"train": 35, "validation": 5}
    assert manifest.lengths("train") == manifest.lengths("validation") == [32, 64]
    assert load_tokenizer(out / "tokenizer").fingerprint == manifest.tokenizer_fingerprint
    shards = {shard.name for instances in manifest.sets for shard in instances.shards}
    assert {path.name for path in out.iterdir()} == {"manifest.json", "tokenizer"} | shards
    for instances in manifest.sets:
        batch = read_set(out, instances)
        lengths = batch.lengths_a + batch.lengths_b + 3
        assert len(lengths) == instances.examples and lengths.sum() == instances.tokens
        assert batch.labels.sum() == instances.label_1
        assert lengths.max() <= instances.max_seq_length and min(batch.lengths_a.min(), batch.lengths_b.min()) >= 1
    assert len(manifest.sets[0].shards) > 2
    assert [p.documents for p in progress] == sorted(p.documents for p in progress)
    assert [p.share for p in progress] == sorted(p.share for p in progress) and progress[-1].share == 1
    assert progress[-1].documents == 40 and progress[-1].instances == sum(s.examples for s in manifest.sets)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("objective", ["nsp", "mlm"])
def test_the_number_of_processes_and_the_day_change_nothing(tmp_path, corpus, tiny_tokenizer, objective):
    options = {"objective": objective, "shard_bytes": 3000}
    for name, workers, seed in (("one", 1, 0), ("two", 2, 0), ("seed", 1, 1)):
        prepare(corpus, tiny_tokenizer, tmp_path / name, seed=seed, num_workers=workers, **options)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    shard = "train-128-00000-000.npy"
    assert (tmp_path / "one" / shard).read_bytes() != (tmp_path / "seed" / shard).read_bytes()


def numbered_corpus(documents, sentences=6):
    """Documents whose every sentence names the document in digits."""
    texts = [tuple(f"cat {n} sat {n}." for _ in range(sentences)) for n in range(documents)]
    return Corpus("numbered", lambda: (Document(str(n), t, True) for n, t in enumerate(texts)))


def test_held_out_documents_are_not_trained_on(tmp_path, tiny_tokenizer):
    manifest = prepare(numbered_corpus(90), tiny_tokenizer, tmp_path / "out", validation_fraction=0.1, shard_bytes=500)
    words = {}
    for instances in manifest.sets:
        pieces = [tiny_tokenizer.pieces[i] for i in read_set(tmp_path / "out", instances).tokens]
        words[instances.split] = set(tiny_tokenizer.decode(map(tiny_tokenizer.token_to_id, pieces)).split())
    numbers = {split: {int(w) for w in found if w.isdigit()} for split, found in words.items()}
    held_out = {n for n, document in enumerate(numbered_corpus(90)) if is_held_out(document, 0.1)}
    assert numbers["validation"] == held_out and 4 < len(held_out) < 15
    assert numbers["train"] == set(range(90)) - held_out
    few = prepare(numbered_corpus(5), tiny_tokenizer, tmp_path / "few", validation_fraction=1e-9)
    assert few.documents == {"train": 4, "validation": 1}


def test_special_tokens_that_a_text_mentions_are_only_characters(tmp_path, tiny_tokenizer):
    texts = ("The [MASK] sat.", "A [SEP] b [PAD] ran.") * 3
    corpus = Corpus("special", lambda: (Document(str(n), texts) for n in range(4)))
    manifest = prepare(corpus, tiny_tokenizer, tmp_path / "out", validation_fraction=0)
    tokens = read_set(tmp_path / "out", manifest.sets[0]).tokens
    assert not np.isin([0, 2, 3, 4], tokens).any() and len(tokens)


def test_memory_does_not_grow_with_the_corpus(tmp_path, tiny_tokenizer):
    def documents(count):
        return Corpus(
            "many",
            lambda: (Document(str(n), ("the cat sat by the old river. it ran." * 100, str(n))) for n in range(count)),
        )

    peaks = []
    for count in (40, 160):
        tracemalloc.start()
        prepare(
            documents(count), tiny_tokenizer, tmp_path / str(count), num_workers=1, dupe_factor=1, shard_bytes=100_000
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_seq_length": 4}, "max_seq_length: expected lengths of at least 5"),
        ({"objective": "nps"}, "objective 'nps' is not known; did you mean 'nsp'"),
        ({"dupe_factor": 0}, "dupe_factor"),
        ({"short_seq_prob": 1.5}, "short_seq_prob"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"shard_bytes": 0}, "shard_bytes"),
    ],
)
def test_settings_that_make_no_sense(tmp_path, corpus, tiny_tokenizer, settings, message):
    with pytest.raises(InputError, match=message):
        prepare(corpus, tiny_tokenizer, tmp_path / "out", **settings)
    assert not list(tmp_path.iterdir())


def interrupted(corpus, tokenizer, out, **options):
    """Prepares until two chunks are done, and leaves what a kill in the middle of the third would."""

    def stop(progress):
        if len(list(out.parent.glob(".out.partial/done_chunks/*.json"))) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(corpus, tokenizer, out, num_workers=1, shard_bytes=3000, on_progress=stop, **options)
    assert not out.exists()
    own_file(storage.Path(out.parent / ".out.partial"), "train-128-00002-000.npy")
    for name in (
        "train-128-00002-000.npy",
        ".train-128-00002-000.npy.bert_jax-0123456789abcdef.partial",
    ):
        (out.parent / ".out.partial" / name).write_bytes(b"half of a sh")


@pytest.mark.parametrize("workers", [1, 2])
def test_it_goes_on_where_it_was_killed(tmp_path, corpus, tiny_tokenizer, workers, monkeypatch):
    expected = prepare(corpus, tiny_tokenizer, tmp_path / "whole", num_workers=1, shard_bytes=3000)
    chunks = sum(len(instances.shards) for instances in expected.sets)
    interrupted(corpus, tiny_tokenizer, tmp_path / "out")
    done, tokenized = [], chunk_shards._tokenized
    monkeypatch.setattr(chunk_shards, "_tokenized", lambda *given: done.append(1) or tokenized(*given))
    assert prepare(corpus, tiny_tokenizer, tmp_path / "out", num_workers=workers, shard_bytes=3000) == expected
    assert workers > 1 or len(done) == chunks - 2 > 2
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"out", "whole"}


@pytest.mark.parametrize("change", [{"seed": 1}, {"max_seq_length": 64}, {"objective": "mlm"}])
def test_what_was_made_in_another_way_is_made_anew(tmp_path, corpus, tiny_tokenizer, change):
    interrupted(corpus, tiny_tokenizer, tmp_path / "out")
    for name in ("out", "whole"):
        prepare(corpus, tiny_tokenizer, tmp_path / name, num_workers=1, shard_bytes=3000, **change)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_changed_package_takes_over_no_chunk_from_before(tmp_path, corpus, tiny_tokenizer, monkeypatch):
    interrupted(corpus, tiny_tokenizer, tmp_path / "out")
    monkeypatch.setattr(program_cache, "fingerprint_of_sources", lambda: "of another version")
    done, tokenized = [], chunk_shards._tokenized
    monkeypatch.setattr(chunk_shards, "_tokenized", lambda *given: done.append(1) or tokenized(*given))
    manifest = prepare(corpus, tiny_tokenizer, tmp_path / "out", num_workers=1, shard_bytes=3000)
    assert len(done) == sum(len(instances.shards) for instances in manifest.sets)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"fingerprint": 1'])
def test_a_damaged_result_of_a_chunk_is_made_again(tmp_path, corpus, tiny_tokenizer, content):
    expected = prepare(corpus, tiny_tokenizer, tmp_path / "whole", num_workers=1, shard_bytes=3000)
    interrupted(corpus, tiny_tokenizer, tmp_path / "out")
    results = sorted((tmp_path / ".out.partial" / RECORDS_DIR).glob("*.json"))
    assert results
    results[0].write_bytes(content)
    assert prepare(corpus, tiny_tokenizer, tmp_path / "out", num_workers=1, shard_bytes=3000) == expected
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_two_at_once_are_one_too_many(tmp_path, corpus, tiny_tokenizer):
    with storage.directory_resumably(tmp_path / "out"), pytest.raises(InputError, match="another process is writing"):
        prepare(corpus, tiny_tokenizer, tmp_path / "out")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_breaks_off_leaves_nothing_behind(tmp_path, corpus, tiny_tokenizer, workers):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(Path(corpus).read_bytes() + b"\n\nbad \xff\n")
    with pytest.raises(InputError, match=r"bad\.txt after byte \d+: line .*0xff"):
        prepare(str(bad), tiny_tokenizer, tmp_path / "out", shard_bytes=2000, num_workers=workers)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.txt"]


def test_a_full_disk_is_said_and_leaves_nothing_behind(tmp_path, corpus):
    # A limit on the size of files stands in for a disk that fills up; it needs a process of its own.
    script = f"""
import resource
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.tokenization import train_wordpiece
tokenizer = train_wordpiece(["the cat sat on the mat"], 50)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    prepare({corpus!r}, tokenizer, {str(tmp_path / "out")!r}, dupe_factor=50, num_workers=1)
except OSError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "File too large" in found.stdout and f"{tmp_path}/out/train-128-00000-000.npy" in found.stdout
    assert not list(tmp_path.iterdir())


def test_corpora_that_are_too_small_and_directories_in_use(tmp_path, corpus, tiny_tokenizer):
    one = Corpus("one", lambda: iter([Document("a", ("The cat sat. It ran.",))]))
    with pytest.raises(InputError, match="one: expected documents to hold out, found only one text"):
        prepare(one, tiny_tokenizer, tmp_path / "out")
    assert prepare(one, tiny_tokenizer, tmp_path / "out", validation_fraction=0).sets[0].examples > 0
    with pytest.raises(InputError, match="new or empty directory"):
        prepare(corpus, tiny_tokenizer, tmp_path / "out")
    empty = Corpus("none", lambda: iter([Document("a", ("\u200b",)), Document("b", ("\u200b",))]))
    with pytest.raises(InputError, match="none: expected documents with text"):
        prepare(empty, tiny_tokenizer, tmp_path / "other")


def test_single_sentences_are_warned_about(tmp_path, tiny_tokenizer, caplog):
    prepare(numbered_corpus(10, sentences=1), tiny_tokenizer, tmp_path / "out")
    assert "files:PATH" in caplog.text
    caplog.clear()
    demo = Corpus("python-docs", lambda: iter(numbered_corpus(10, sentences=1)))
    prepare(demo, tiny_tokenizer, tmp_path / "demo")
    assert not caplog.text


def test_manifests_that_do_not_fit(tmp_path, corpus, tiny_tokenizer):
    out = tmp_path / "out"
    prepare(corpus, tiny_tokenizer, out, num_workers=1)
    shard = out / "train-128-00000-000.npy"
    data, manifest = shard.read_bytes(), (out / "manifest.json").read_text()
    shard.write_bytes(data[:-100])
    with pytest.raises(InputError, match=f"npy: expected {len(data)} bytes, found {len(data) - 100}"):
        Manifest.read(out)
    shard.unlink()
    with pytest.raises(InputError, match="no such file, though"):
        Manifest.read(out)
    for text, message in (
        ("{", "manifest.json: expected JSON, found Expecting property name"),
        ("[" * 100_000, "manifest.json: expected JSON, found .* nested too deeply"),
        ("[]", "expected a manifest"),
        (manifest.replace('"version": 3', '"version": 7'), "found .* 7"),
        (json.dumps({**json.loads(manifest), "extra": 1}), "expected a manifest"),
        (manifest.replace('"max_seq_length": 128', '"max_seq_length": {}'), "max_seq_length: expected int, found {}"),
        (manifest.replace('"name": "train-128-00000-000.npy"', '"name": 7'), "name: expected str, found 7"),
        (re.sub(r'"documents": {[^}]*}', '"documents": {"train": -1}', manifest), "documents: expected numbers of at"),
        (re.sub(r'"shards": .*]', '"shards": []}]', manifest, flags=re.DOTALL), "a set without rows"),
        (manifest.replace('"width": ', '"width": 1'), f"00000-000.npy has {len(data)} bytes, its rows"),
    ):
        (out / "manifest.json").write_text(text)
        with pytest.raises(InputError, match=message):
            Manifest.read(out)
    with pytest.raises(InputError, match="bert-jax prepare"):
        Manifest.read(tmp_path)


def test_chunks_are_in_the_order_of_the_corpus_whatever_their_number():
    def prepared(*names):
        return Prepared([ChunkResult("train", name, 1, 1, 1, [], TextCounts()) for name in names], [])

    total = Prepared.total([prepared("100000-000"), prepared("99999-1000"), prepared("99999-999", "00002-000")])
    assert [chunk.name for chunk in total.chunks] == ["00002-000", "99999-999", "99999-1000", "100000-000"]
