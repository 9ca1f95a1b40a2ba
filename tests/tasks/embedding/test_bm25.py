"""BM25 is the formula of Kamphuis et al. 2020, in memory and from an index on disk, and what bm25s computes."""

import collections
import json
import math
import sys

import numpy as np
import pytest

from bert_jax.errors import InputError

bm25s = pytest.importorskip("bm25s", reason="needs bm25s: pip install 'bert-jax[retrieval]'")

from bert_jax.tasks.embedding.search.bm25 import BM25Search, BM25Settings, _words  # noqa: E402

WORDS = ["cat", "dog", "tree", "house", "bird", "red", "big", "the", "a", "river", "ü", "東"]
RNG = np.random.default_rng(0)
TOKENS = [RNG.choice(WORDS, RNG.integers(0, 12)).tolist() for _ in range(60)] + [["the", "cat"], ["the", "cat"], []]
CORPUS = [" ".join(tokens) for tokens in TOKENS]
QUERIES = ["the cat", "Red RIVER red", "a zebra", "", "zebra", "東 ü, big bird!"]
SETTINGS = [BM25Settings(), BM25Settings(k1=0.0), BM25Settings(k1=2.0, b=0.0), BM25Settings(k1=0.9, b=1.0)]


def by_the_formula(query, settings):
    """The score of each text, in float64."""
    mean = sum(map(len, TOKENS)) / len(TOKENS)
    scores = np.zeros(len(TOKENS))
    for word in query:
        texts = sum(word in tokens for tokens in TOKENS)
        idf = math.log(1 + (len(TOKENS) - texts + 0.5) / (texts + 0.5))
        for i, tokens in enumerate(TOKENS):
            if count := collections.Counter(tokens)[word]:
                norm = settings.k1 * (1 - settings.b + settings.b * len(tokens) / mean)
                scores[i] += idf * count / (count + norm)
    return scores


@pytest.mark.parametrize("settings", SETTINGS)
def test_scores_are_those_of_the_formula(settings):
    search = BM25Search(settings)
    assert search.index(iter(CORPUS)) == len(CORPUS)
    scores, numbers = search.nearest(QUERIES, None, 500)
    assert scores.dtype == np.float32 and scores.shape == numbers.shape == (len(QUERIES), len(CORPUS))
    for query, row, best in zip(QUERIES, scores, numbers, strict=True):
        expected = by_the_formula(query.lower().replace(",", "").replace("!", "").split(), settings)
        np.testing.assert_allclose(row, expected[best], rtol=3e-6)
        assert best.tolist() == np.lexsort((np.arange(len(best)), -expected.astype("f4").round(5))).tolist()
    few = search.nearest(QUERIES, CORPUS, 4)
    np.testing.assert_array_equal(few[0], scores[:, :4])
    np.testing.assert_array_equal(few[1], numbers[:, :4])


def test_scores_are_those_of_bm25s(tmp_path):
    theirs = bm25s.BM25(k1=1.2, b=0.75)
    theirs.index(TOKENS, show_progress=False)
    search = BM25Search()
    search.write_index(CORPUS, tmp_path / "index")
    opened = bm25s.BM25.load(tmp_path / "index" / "bm25s")
    assert search.open_index(tmp_path / "index") == len(CORPUS)
    assert isinstance(search._corpus.index.scores["data"], np.memmap)
    for query in QUERIES[:2]:
        words = query.lower().split()
        scores, numbers = search.nearest([query], None, len(CORPUS))
        for each in (theirs, opened):
            np.testing.assert_array_equal(each.get_scores(words)[numbers[0]], scores[0])


def test_an_index_has_its_settings_and_texts(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_jax.inference.corpus_chunks.CORPUS_CHUNK", 9)
    in_memory = BM25Search(BM25Settings(k1=2.0, stemmer="english"))
    texts = [*CORPUS, "Running cats"]
    assert in_memory.write_index(iter(texts), tmp_path / "index") == in_memory.index(texts) == len(texts)
    opened = BM25Search()
    opened.open_index(tmp_path / "index")
    for ours, theirs in zip(opened.nearest(QUERIES), in_memory.nearest(QUERIES), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert opened.nearest(["a runs"])[1][0, 0] == len(texts) - 1
    with pytest.raises(InputError, match=r"expected an index with k1 1\.2, found 2\.0"):
        BM25Search(BM25Settings()).open_index(tmp_path / "index")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat's 3.14 naïve_foo", ["the", "cat", "s", "3", "14", "naïve_foo"]),
        ("ＡＢＣ １２", ["abc", "12"]),  # full width
        ("cafe\u0301", ["café"]),  # composed
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # vowel signs are marks, not letters
        ("東京タワーへ行く", ["東", "京", "タワー", "へ", "行", "く"]),
        ("한국어 문장.", ["한국어", "문장"]),
        ("— … !", []),
    ],
)
def test_words(text, words):
    assert list(_words([text], "")) == [words]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda search: search.nearest(["a"]), "expected a corpus, given here or to index"),
        (lambda search: search.index([]), "corpus: expected at least one text"),
        (lambda search: search.index(["", "--"]), "corpus: expected texts with words, found none in 2 texts"),
        (lambda search: search.index(["a", "\ud800"]), "text 1: expected Unicode text"),
        (lambda search: search.nearest([3], CORPUS), "text 0: expected a string, found int"),
        (lambda search: search.nearest(["a"], CORPUS, 0), "top_k: expected a positive integer, found 0"),
        (lambda _: BM25Settings(k1=-1.0), "k1: expected a number of at least 0, found -1.0"),
        (lambda _: BM25Settings(k1=math.nan), "k1: expected a number of at least 0, found nan"),
        (lambda _: BM25Settings(b=1.5), "b: expected a number from 0 to 1, found 1.5"),
        (lambda _: BM25Search(BM25Settings(stemmer="englsh")),
         "stemmer: expected a language of Snowball, found 'englsh'; did you mean 'english'"),
    ],
)  # fmt: skip
def test_what_does_not_fit(call, message):
    with pytest.raises(InputError, match=message):
        call(BM25Search())


@pytest.mark.parametrize(("package", "settings"), [("bm25s", None), ("Stemmer", BM25Settings(stemmer="german"))])
def test_a_missing_package_is_named(monkeypatch, package, settings):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"expected the package {package}: pip install .*\[retrieval\]"):
        BM25Search(settings)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("index.json", {"texts": 3}),
        ("index.json", {"b": "x"}),
        ("index.json", {"stemmer": 3}),
        ("bm25s/params.index.json", {"num_docs": 2}),
        ("bm25s/params.index.json", {"k3": 3}),
        ("bm25s/vocab.index.json", {"cat": 0}),
        ("bm25s/vocab.index.json", None),
        ("bm25s/data.csc.index.npy", 200),
        ("bm25s/indices.csc.index.npy", 20),
        ("bm25s/indptr.csc.index.npy", 0),
    ],
)
def test_a_damaged_index_is_refused(tmp_path, name, change):
    BM25Search().write_index(CORPUS, tmp_path / "index")
    file = tmp_path / "index" / name
    if isinstance(change, dict):
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
    elif change is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:change])
    with pytest.raises(InputError, match=r"the index is damaged|expected a number|stemmer: expected"):
        BM25Search().open_index(tmp_path / "index")


def test_numbers_of_texts_outside_the_corpus_are_refused(tmp_path):
    BM25Search().write_index(CORPUS, tmp_path / "index")
    file = tmp_path / "index" / "bm25s" / "indices.csc.index.npy"
    np.save(file, np.load(file) + 60)
    search = BM25Search()
    with pytest.raises(InputError, match="the index is damaged"):
        search.open_index(tmp_path / "index")
        search.nearest(["the cat"])
