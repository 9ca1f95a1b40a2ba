"""Preparing a corpus into an object store: the files of a local directory, and none taken for whole before it is."""

import hashlib
from pathlib import Path

import pytest
from object_stores import Killed, store  # noqa: F401 (a fixture)
from prepared_corpora import write_corpus

from bert_jax.data.pretraining import chunk_shards
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError

URL, NAME = "gs://bucket/out", "bucket/out"
OPTIONS = {"num_workers": 1, "shard_bytes": 3000, "dupe_factor": 1, "validation_fraction": 0.2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return str(write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.txt", documents=12))


def contents(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def assert_whole_where_readable(store):  # noqa: F811
    """A directory with a manifest has the very shards that it lists. Returns whether there is one."""
    try:
        manifest = Manifest.read(URL)
    except InputError as error:
        assert "found no manifest.json" in str(error)
        return False
    for shard in (shard for instances in manifest.sets for shard in instances.shards):
        assert hashlib.sha256(store.objects[f"{NAME}/{shard.name}"]).hexdigest() == shard.sha256
    return True


def test_a_store_gets_the_files_of_a_local_directory(tmp_path, corpus, tiny_tokenizer, store):  # noqa: F811
    ours, theirs = (prepare(corpus, tiny_tokenizer, out, **OPTIONS) for out in (URL, tmp_path / "out"))
    assert ours == theirs and sum(len(s.shards) for s in ours.sets) > 2
    assert store.below(NAME) == contents(tmp_path / "out")
    assert assert_whole_where_readable(store)
    with pytest.raises(InputError, match="new or empty directory"):
        prepare(corpus, tiny_tokenizer, URL, **OPTIONS)


def test_killed_anywhere_it_resumes(corpus, tiny_tokenizer, store, monkeypatch):  # noqa: F811
    prepare(corpus, tiny_tokenizer, URL, **OPTIONS)
    expected, changes = store.below(NAME), store.changes
    made, tokenized = [], chunk_shards._tokenized
    monkeypatch.setattr(chunk_shards, "_tokenized", lambda *given: made.append(1) or tokenized(*given))
    chunks = sum(name.endswith(".npy") for name in expected)
    readable = []
    for dies_at in range(1, changes + 1):
        for other in (0, 1):  # the run that was killed had this seed
            store.objects.clear()
            store.changes, store.dies_at = 0, dies_at
            with pytest.raises(Killed):
                prepare(corpus, tiny_tokenizer, URL, seed=other, **OPTIONS)
            readable.append(assert_whole_where_readable(store))
            done = sum("/done_chunks/" in name and name.endswith(".json") for name in store.objects)
            made.clear()
            # The next run is killed, too: before it has made anything, or among the shards of the run before.
            store.changes, store.dies_at = 0, changes // 2 if other else 4
            with pytest.raises(Killed):
                prepare(corpus, tiny_tokenizer, URL, **OPTIONS)
            assert_whole_where_readable(store)
            store.dies_at = None
            prepare(corpus, tiny_tokenizer, URL, **OPTIONS)
            assert store.below(NAME) == expected
            assert other or len(made) == chunks - done
    assert any(readable) and not all(readable)


def test_what_fails_leaves_nothing_behind(tmp_path, corpus, tiny_tokenizer, store):  # noqa: F811
    (tmp_path / "bad.txt").write_bytes(Path(corpus).read_bytes() + b"\n\nbad \xff\n")
    with pytest.raises(InputError, match=r"bad\.txt after byte \d+: line .*0xff"):
        prepare(str(tmp_path / "bad.txt"), tiny_tokenizer, URL, **OPTIONS)
    assert store.changes > 3 and not store.objects
