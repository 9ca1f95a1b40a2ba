"""The parts of a corpus yield each of its documents once and in order, wherever files are cut."""

import functools
import json
import pickle
import random

import pytest

from bert_jax.data.corpora import readers, sources
from bert_jax.data.corpora.sources import open_corpus
from bert_jax.errors import InputError


def texts_of(corpus, most_bytes):
    """The texts of all parts, each read after a trip through pickle, as in another process."""
    parts = [pickle.loads(pickle.dumps(part)) for part in corpus.parts(most_bytes)]
    assert sum(part.num_bytes for part in parts) == corpus.num_bytes
    for part in parts:
        ends = [document.end for document in part.read()]
        assert ends == sorted(ends) and all(end > 0 for end in ends)
    return [document.texts for part in parts for document in part.read()], len(parts)


def random_text(rng):
    """Lines of letters, blank lines in runs, titles and sections, some with other ends of lines."""
    lines = []
    for _ in range(rng.randint(5, 60)):
        kind = rng.random()
        if kind < 0.3:
            lines += rng.randint(1, 4) * [rng.choice(["", "  ", "\t"])]
        elif kind < 0.4:
            lines.append(rng.choice([" = Title = ", " = = Section = = "]))
        else:
            lines.append("é b" * rng.randint(1, 30))
    return rng.choice(["\n", "\r\n"]).join(lines) + rng.choice(["", "\n", "\n\n\n"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["text", "sentences", "wikitext"])
def test_text_files(tmp_path, kind, monkeypatch):
    lines = functools.partial(readers.text_lines, max_bytes=50)
    monkeypatch.setattr(readers, "text_lines", lines)  # so that some lines come in pieces
    monkeypatch.setattr(readers, "MAX_DOCUMENT_BYTES", 300)
    rng, cut = random.Random(kind), 0
    for number in range(12):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(f" = First = \nBegin.\n{random_text(rng)}".encode())
        corpus = open_corpus(f"{kind}:{path}")
        whole = [document.texts for document in corpus]
        for most_bytes in (1, 7, 50, 200, 10_000):
            found, parts = texts_of(corpus, most_bytes)
            assert found == whole, (number, most_bytes)
            cut += parts
    assert cut > 5_000


def test_a_document_over_many_parts(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one line.\n" * 500 + "\nanother.\n")
    found, parts = texts_of(open_corpus(str(path)), 100)
    assert found == [("one line.",) * 500, ("another.",)] and parts > 40


def test_files_that_cannot_be_cut(tmp_path):
    (tmp_path / "a.txt").write_text("one.\n\ntwo.\n" * 50)
    (tmp_path / "b.json").write_text(json.dumps([{"text": "x" * 40}] * 20))
    (tmp_path / "c.txt").write_text("small.\n")
    for spec, expected in ((f"files:{tmp_path / 'a.txt'}", 1), (str(tmp_path / "b.json"), 1), (str(tmp_path), 8)):
        found, parts = texts_of(open_corpus(spec), 100)
        assert found == [document.texts for document in open_corpus(spec)] and parts == expected
    names = [part.name for part in open_corpus(str(tmp_path)).parts(100)]
    assert names[:2] == [f"{tmp_path / 'a.txt'}", f"{tmp_path / 'a.txt'} after byte 91"]


def test_json_lines(tmp_path):
    rng, path = random.Random(0), tmp_path / "a.jsonl"
    rows = [json.dumps({"text": f"{n} " + "é" * rng.randint(0, 40)}, ensure_ascii=False) for n in range(80)]
    path.write_text("\n".join(row + rng.choice(["", "\n", "\r"]) for row in rows), newline="")
    corpus = open_corpus(str(path))
    whole = [document.texts for document in corpus]
    assert len(whole) == 80
    for most_bytes in (1, 30, 100, 1000):
        assert texts_of(corpus, most_bytes)[0] == whole
    path.write_text("\n".join([*rows, "{"]))
    with pytest.raises(InputError, match=r"a\.jsonl after byte \d+: line \d: expected a JSON object"):
        texts_of(open_corpus(str(path)), 500)


def test_parquet(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"n": range(100), "text": [f"text {n}. " * 9 for n in range(100)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=9, compression="none")
    corpus = open_corpus(str(tmp_path / "a.parquet"))
    whole = list(corpus)
    assert len(whole) == 100
    for most_bytes in (10, 700, 3000, 10**6):
        found = [document for part in corpus.parts(most_bytes) for document in part.read()]
        assert [(d.name, d.texts) for d in found] == [(d.name, d.texts) for d in whole]
    assert len(corpus.parts(700)) > 3


def test_several_corpora_and_one_of_the_caller(tmp_path):
    (tmp_path / "a.txt").write_text("one.\n\ntwo.\n\nthree.\n")
    corpus = open_corpus([str(tmp_path / "a.txt"), str(tmp_path / "a.txt")])
    assert texts_of(corpus, 7)[0] == 2 * [("one.",), ("two.",), ("three.",)]
    [part] = open_corpus("python-docs").parts(1)
    assert part.name == "python-docs" and part.read is open_corpus("python-docs").read


def test_a_sample_is_a_share_of_the_text_and_always_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_SAMPLED_BYTES", 200)
    (tmp_path / "a.txt").write_text("\n\n".join(f"Document {n}." for n in range(1000)))
    corpus = open_corpus(str(tmp_path / "a.txt"))
    whole, some = list(corpus), list(corpus.sample(0.1))
    texts = [document.texts for document in whole]
    places = [texts.index(document.texts) for document in some]
    assert places == sorted(set(places)) and 80 < len(some) < 120 and places[0] < 200 and places[-1] > 800
    assert list(open_corpus(str(tmp_path / "a.txt")).sample(0.1)) == some
    assert [document.texts for document in corpus.sample(1.0)] == texts
    assert len(list(corpus.sample(1e-9))) < 20
    with pytest.raises(InputError, match="expected a share above 0 and at most 1, found 0"):
        corpus.sample(0.0)


def test_an_empty_range_of_rows_is_one_part():
    assert list(sources._bounds(0, 10)) == [(0, 0)] and list(sources._bounds(21, 10)) == [(0, 7), (7, 14), (14, 21)]
