"""A directory that is prepared, and prepared again after a kill, keeps the files of others, in a bucket too."""

import pytest
from prepared_corpora import write_corpus

from bert_jax import storage
from bert_jax.data.pretraining import steps
from bert_jax.data.pretraining.chunks import RECORDS_DIR
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError
from bert_jax.storage import claims

_OF_OTHERS = (
    "thesis.txt", "part-00001.npy", "train-128-77777-000.npy", "validation-128-00000.array_record", "x.done.json",
    ".thesis.txt.0123abcd.partial", ".train-128-00000-000.npy.0123abcd.partial", "x.orbax-checkpoint-tmp",
    "tokenizer/thesis.txt", f"{RECORDS_DIR}/thesis.txt", f"{RECORDS_DIR}/train-thesis.json", "skipped.txt",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _short_beats(monkeypatch):
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(claims, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(claims, "_SETTLE_SECONDS", 0.01)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return str(write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.txt", documents=12))


@pytest.fixture(params=["local", "gs"])
def home(request, tmp_path):
    return storage.Path(f"gs://{request.getfixturevalue('bucket').name}" if request.param == "gs" else tmp_path)


def begun(out):
    """The directory in which `out` is prepared."""
    return out if out.is_remote else out.parent / f".{out.name}.partial"


def contents(directory):
    names = {str(file.relative_to(directory)): file.read_bytes() for file in directory.files_below()}
    return {name: data for name, data in names.items() if claims.LEASES not in name}


def put(directory, names):
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(f"of the user: {name}".encode())
    return {name: f"of the user: {name}".encode() for name in names}


def prepared(corpus, tokenizer, out, **options):
    return prepare(corpus, tokenizer, out, num_workers=1, shard_bytes=3000, dupe_factor=1, **options)


def killed(progress):
    raise KeyboardInterrupt


def test_they_stay_when_it_is_resumed(corpus, tiny_tokenizer, home):
    prepared(corpus, tiny_tokenizer, home / "whole")
    with pytest.raises(KeyboardInterrupt):
        prepared(corpus, tiny_tokenizer, home / "out", on_progress=killed)
    before = put(begun(home / "out"), _OF_OTHERS)
    prepared(corpus, tiny_tokenizer, home / "out")
    assert contents(home / "out") == contents(home / "whole") | before


@pytest.mark.parametrize("name", ["train-128-00002-000.npy", "train-128-00000-001.npy", "removed.jsonl"])
def test_one_in_the_way_is_named_and_not_replaced(corpus, tiny_tokenizer, home, name):
    out, options = home / "out", {"deduplicate": "exact"}
    with pytest.raises(KeyboardInterrupt):
        prepared(corpus, tiny_tokenizer, out, on_progress=killed, **options)
    before = put(begun(out), [name, "thesis.txt"])
    if name == "train-128-00000-001.npy":  # no shard of this corpus
        prepared(corpus, tiny_tokenizer, out, **options)
        assert contents(out).items() >= before.items()
        return
    with pytest.raises(InputError, match=f"{name}: expected no file that prepare did not write, found one"):
        prepared(corpus, tiny_tokenizer, out, **options)
    assert {key: data for key, data in contents(begun(out)).items() if key != ".incomplete"} == before


def test_a_kill_while_the_notes_are_removed_is_no_harm(corpus, tiny_tokenizer, home, monkeypatch):
    prepared(corpus, tiny_tokenizer, home / "whole")
    remove = steps.remove_records

    def killed_after(directory):
        remove(directory)
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "remove_records", killed_after)
    with pytest.raises(KeyboardInterrupt):
        prepared(corpus, tiny_tokenizer, home / "out", seed=1)
    monkeypatch.undo()
    prepared(corpus, tiny_tokenizer, home / "out")
    assert contents(home / "out") == contents(home / "whole")
