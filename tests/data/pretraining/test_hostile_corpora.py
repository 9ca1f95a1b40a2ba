"""A corpus with files and rows that cannot be read: the first error in one line, or all of them counted and named."""

import gzip
import json

import pytest
from prepared_corpora import write_corpus

from bert_jax.cli import main
from bert_jax.data.lines import MAX_ROW_BYTES
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError

OPTIONS = {"max_seq_length": 32, "dupe_factor": 1, "validation_fraction": 0.1, "shard_bytes": 500_000}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """20 good files, and seven kinds of what cannot be read, in files that sort between them."""
    folder = tmp_path_factory.mktemp("hostile") / "corpus"
    folder.mkdir()
    for number in range(20):
        write_corpus(folder / f"{number:02}.txt", 4, seed=number)
    good = (folder / "03.txt").read_bytes()
    (folder / "03-cut.txt.gz").write_bytes(gzip.compress(good)[:-30])
    (folder / "04-empty.txt").write_bytes(b"")
    (folder / "05-latin.txt").write_bytes("Un caf\u00e9 noir.\n".encode("latin-1"))
    (folder / "06-image.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    rows = [json.dumps({"text": f"The cat {n} sat. It ran."}) for n in range(6)]
    rows[2], rows[4] = '{"text": ', '{"body": "x"}'
    (folder / "07-rows.jsonl").write_text("\n".join(rows))
    (folder / "08-line.jsonl").write_text(rows[0] + "\n" + json.dumps({"text": "a" * MAX_ROW_BYTES}) + "\n" + rows[1])
    (folder / "09-blank.txt").write_text("\n" * 50)
    return folder


EXPECTED = (
    ("03-cut.txt.gz", "expected a whole .gz file"),
    ("04-empty.txt", "expected text, found only blank lines"),
    ("05-latin.txt", "line 1: expected UTF-8 text"),
    ("06-image.txt", "expected "),
    ("07-rows.jsonl", "line 3: expected a JSON object"),
    ("07-rows.jsonl", "line 5: expected a field 'text'"),
    ("08-line.jsonl", "line 2: expected a line of at most"),
    ("09-blank.txt", "expected text, found only blank lines"),
)


def contents(directory):
    return {p.relative_to(directory): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.mark.parametrize("deduplicate", ["", "exact"])
def test_they_are_left_out_counted_and_named(folder, tiny_tokenizer, tmp_path, deduplicate):
    changed = OPTIONS | {"invalid": "skip", "deduplicate": deduplicate}
    for name, workers in (("one", 1), ("two", 2)):
        manifest = prepare(str(folder), tiny_tokenizer, tmp_path / name, num_workers=workers, **changed)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    errors = (tmp_path / "one" / "skipped.txt").read_text().splitlines()
    assert manifest.skipped == Manifest.read(tmp_path / "one").skipped == len(errors) == len(EXPECTED)
    for error, (name, message) in zip(errors, EXPECTED, strict=True):
        assert error.startswith(f"{folder / name}: ") and message in error
    # Four rows of 07, one of 08, which the other repeats, and what the cut file has before the cut.
    documents = sum(manifest.documents.values())
    assert documents >= 80 + 4 + (not deduplicate) and documents + manifest.removed <= 80 + 4 + 1 + 4


def test_the_first_is_an_error(folder, tiny_tokenizer, tmp_path):
    with pytest.raises(InputError, match=r"04-empty\.txt: expected text, found an empty file"):
        prepare(str(folder), tiny_tokenizer, tmp_path / "out", **OPTIONS)
    with pytest.raises(InputError, match=r"03-cut\.txt\.gz: line \d+: expected a whole \.gz file"):
        prepare(f"{folder}/0[0-3]*", tiny_tokenizer, tmp_path / "out", **OPTIONS)
    assert not list(tmp_path.iterdir())


def test_the_verb_says_how_many(folder, tiny_tokenizer, tmp_path, capsys):
    tiny_tokenizer.save(tmp_path / "tokenizer")
    words = ["prepare", folder, "--tokenizer", tmp_path / "tokenizer", "--out", tmp_path / "out"]
    assert main([*map(str, words), "--invalid", "skip", "--num-workers", "1"]) == 0
    assert "out: 8 rows and files that cannot be read left out (skipped.txt)" in capsys.readouterr().out
    with pytest.raises(InputError, match="invalid: expected one of 'strict', 'skip', found 'ignore'"):
        prepare(str(folder), tiny_tokenizer, tmp_path / "other", invalid="ignore")
