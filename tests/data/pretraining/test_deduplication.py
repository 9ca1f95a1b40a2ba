"""Documents that repeat an earlier one are left out, counted and listed, wherever the run was killed."""

import gzip
import json
from pathlib import Path

import pytest
from prepared_corpora import write_corpus

from bert_jax import storage
from bert_jax.cli import main
from bert_jax.data.corpora.readers import Document
from bert_jax.data.corpora.sources import Corpus
from bert_jax.data.pretraining.deduplication import REMOVED_FILE
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.own_files import own_file
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A corpus, and one in which documents 3, 5 and 6 of it come again, some with other white space."""
    folder = tmp_path_factory.mktemp("corpora")
    documents = write_corpus(folder / "once.txt", documents=30).read_text().strip().split("\n\n")
    again = [
        *documents[:10],
        documents[3],
        *documents[10:],
        "  " + documents[5].replace("\n", "  \n"),
        documents[3],
        documents[6],
    ]
    (folder / "again.txt").write_text("\n\n".join(again) + "\n")
    for name in ("once", "again"):  # a compressed file is cut by its text, any other by its bytes
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress((folder / f"{name}.txt").read_bytes()))
    return folder


def contents(directory):
    return {p.name: p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def options(workers=1):
    return {"max_seq_length": 32, "num_workers": workers, "shard_bytes": 3000, "validation_fraction": 0.1}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_examples_are_those_of_the_corpus_without_repeats(corpora, tiny_tokenizer, tmp_path, workers):
    once = prepare(str(corpora / "once.txt.gz"), tiny_tokenizer, tmp_path / "once", **options())
    again = prepare(
        str(corpora / "again.txt.gz"), tiny_tokenizer, tmp_path / "again", deduplicate="exact", **options(workers)
    )
    assert (again.sets, again.documents, again.removed) == (once.sets, once.documents, 4)
    assert Manifest.read(tmp_path / "again").removed == 4 and Manifest.read(tmp_path / "once").removed == 0
    name = f"{corpora / 'again.txt.gz'}#"
    expected = [
        {"document": f"{name}{n}", "first": f"{name}{m}", "kind": "exact"}
        for n, m in ((10, 3), (31, 5), (32, 3), (33, 6))
    ]
    assert removed(tmp_path / "again") == expected
    assert not (tmp_path / "once" / REMOVED_FILE).exists()


def removed(directory):
    return [json.loads(line) for line in (directory / REMOVED_FILE).read_text().splitlines()]


def test_across_ranges_of_a_file_and_small_files(corpora, tiny_tokenizer, tmp_path):
    for n, text in enumerate((corpora / "again.txt").read_text().split("\n\n")):
        (tmp_path / "small" / f"{n:02}.txt").parent.mkdir(exist_ok=True)
        (tmp_path / "small" / f"{n:02}.txt").write_text(text + "\n")
    for name, corpus in (("ranges", corpora / "again.txt"), ("files", tmp_path / "small")):
        manifest = prepare(str(corpus), tiny_tokenizer, tmp_path / name, deduplicate="exact", **options())
        assert sum(manifest.documents.values()) == 30 and manifest.removed == 4
        assert len({shard.name[9:14] for instances in manifest.sets for shard in instances.shards}) > 3  # units
    found = [(Path(line["document"]).name, Path(line["first"]).name) for line in removed(tmp_path / "files")]
    assert found == [(f"{n:02}.txt#0", f"{m:02}.txt#0") for n, m in ((10, 3), (31, 5), (32, 3), (33, 6))]


def test_text_that_changes_meanwhile_is_noticed(corpora, tiny_tokenizer, tmp_path):
    documents = [Document(str(n), (f"The cat sat {n}.",)) for n in range(8)]
    passes = iter([documents, documents[:-1]])
    with pytest.raises(InputError, match="expected the text that was searched for repeated documents"):
        prepare(
            Corpus("odd", lambda: iter(next(passes))),
            tiny_tokenizer,
            tmp_path / "out",
            deduplicate="exact",
            **options(),
        )


def test_it_goes_on_where_it_was_killed(corpora, tiny_tokenizer, tmp_path):
    def killed(progress):
        raise KeyboardInterrupt

    again = str(corpora / "again.txt")
    for name in ("deduplicated", "plain"):
        with pytest.raises(KeyboardInterrupt):
            prepare(again, tiny_tokenizer, tmp_path / name, deduplicate="exact", on_progress=killed, **options())
        own_file(storage.Path(tmp_path / f".{name}.partial"), REMOVED_FILE).write_text(
            "of a run that ended after its documents"
        )
        prepare(
            again, tiny_tokenizer, tmp_path / name, deduplicate="exact" if name == "deduplicated" else "", **options()
        )
        prepare(
            again,
            tiny_tokenizer,
            tmp_path / f"{name}2",
            deduplicate="exact" if name == "deduplicated" else "",
            **options(),
        )
        assert contents(tmp_path / name) == contents(tmp_path / f"{name}2")
    assert REMOVED_FILE in contents(tmp_path / "deduplicated") and REMOVED_FILE not in contents(tmp_path / "plain")


def test_the_verb_says_how_many(corpora, tiny_tokenizer, tmp_path, capsys):
    tiny_tokenizer.save(tmp_path / "tokenizer")
    words = ["prepare", corpora / "again.txt", "--tokenizer", tmp_path / "tokenizer", "--out", tmp_path / "out"]
    assert main([*map(str, words), "--deduplicate", "--num-workers", "1"]) == 0
    assert "out: 4 documents that repeat an earlier one left out (removed.jsonl)" in capsys.readouterr().out
