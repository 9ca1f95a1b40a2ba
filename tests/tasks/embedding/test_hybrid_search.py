"""Hybrid search: several searchers, fusion and a reranker, in memory, from an index, and on the command line."""

import json

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.tasks.embedding.search.fusion import Candidates, Fusion, fuse

pytest.importorskip("bm25s", reason="needs bm25s: pip install 'bert-jax[retrieval]'")

from bert_jax.tasks.embedding.search.bm25 import BM25Search, BM25Settings
from bert_jax.tasks.embedding.search.evaluation import evaluate_search
from bert_jax.tasks.embedding.search.hybrid import HybridSearch

WORDS = ["cat", "dog", "tree", "house", "bird", "red", "big", "young", "the", "a"]
RNG = np.random.default_rng(0)
CORPUS = [" ".join(RNG.choice(WORDS, RNG.integers(1, 9))) for _ in range(40)] + ["the cat", "the cat", "river"]
QUERIES = ["the cat", "a red house", "a young bird", "zebra"]


@pytest.fixture(scope="module")
def models(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("models")
    cross = write_small(root / "cross", "sequence_classification", initializer_range=0.5, num_labels=1)
    return {"dense": str(write_small(root / "dense", "sentence_embedding", initializer_range=0.5)), "cross": str(cross)}


@pytest.fixture(scope="module")
def searchers(models):
    return {"bm25": BM25Search(), "dense": pipeline("search", models["dense"])}


def candidates(searcher, query, corpus, count):
    scores, numbers = searcher.nearest([query], corpus, count)
    kept = scores[0] > (0 if searcher.head == "bm25" else -np.inf)
    return Candidates(numbers[0][kept].tolist(), scores[0][kept].tolist())


@pytest.mark.parametrize("fusion", [Fusion(candidates=7), Fusion("weighted", (0.3, 0.7), candidates=50)])
def test_candidates_of_each_searcher_are_merged(searchers, fusion, tmp_path):
    search = HybridSearch(searchers, fusion)
    expected = []
    for query in QUERIES:
        steps = {name: candidates(each, query, CORPUS, fusion.candidates) for name, each in searchers.items()}
        expected.append((steps, fuse(fusion, [*steps.values()])))
    assert not expected[-1][0]["bm25"].numbers  # no text has a zebra
    answers = search(QUERIES, iter(CORPUS), 5)
    for (steps, merged), row in zip(expected, answers, strict=True):
        assert [answer["corpus_id"] for answer in row] == merged.numbers[:5]
        assert [answer["score"] for answer in row] == pytest.approx(merged.scores[:5], abs=1e-5)
        for answer in row:
            number = answer["corpus_id"]
            assert answer["text"] == CORPUS[number]
            ranks = {name: each.numbers.index(number) + 1 for name, each in steps.items() if number in each.numbers}
            assert {name: step["rank"] for name, step in answer["steps"].items()} == ranks
            for name, step in answer["steps"].items():
                assert step["score"] == pytest.approx(steps[name].scores[step["rank"] - 1])
    expected_numbers = [[answer["corpus_id"] for answer in row] for row in answers]
    assert [answer["corpus_id"] for answer in search(QUERIES[0], CORPUS, 5)] == expected_numbers[0]
    assert search.index(iter(CORPUS)) == len(CORPUS)
    assert [[answer["corpus_id"] for answer in row] for row in search(QUERIES, top_k=5)] == expected_numbers
    scores, numbers = search.nearest(QUERIES, None, 500)
    assert scores.shape == numbers.shape == (len(QUERIES), len(CORPUS))
    for (_, merged), row, best in zip(expected, scores, numbers, strict=True):
        count = len(merged.numbers)
        assert best.tolist() == merged.numbers + [-1] * (len(CORPUS) - count)
        np.testing.assert_allclose(row[:count], merged.scores, atol=1e-5)
        assert (row[count:] == -np.inf).all()


def test_an_index_of_several_searchers(searchers, tmp_path):
    search = HybridSearch(searchers)
    assert search.write_index(iter(CORPUS), tmp_path / "index", truncate_dim=8) == len(CORPUS)
    assert search.open_index(tmp_path / "index") == len(CORPUS)
    expected = search(QUERIES, CORPUS, truncate_dim=8)
    for row, other in zip(search(QUERIES), expected, strict=True):
        assert [answer["corpus_id"] for answer in row] == [answer["corpus_id"] for answer in other]
        assert [answer["text"] for answer in row] == [answer["text"] for answer in other]
    with pytest.raises(InputError, match="truncate_dim: expected none with an index, which has its own, found 8"):
        search(QUERIES, truncate_dim=8)
    assert searchers["bm25"]._corpus is None and searchers["dense"]._corpus is None  # those of others are left alone
    alone = HybridSearch({"bm25": BM25Search()})
    for place in ("index", "index/bm25"):  # each folder is an index
        assert alone.open_index(tmp_path / place) == len(CORPUS)
        assert [a["corpus_id"] for a in alone("the cat", top_k=3)] == candidates(alone.searchers["bm25"], "the cat",
                                                                                 CORPUS, 3).numbers  # fmt: skip
    assert searchers["dense"].open_index(tmp_path / "index" / "dense") == len(CORPUS)
    with pytest.raises(InputError, match="expected an index of the searchers bm25, splade, found one of bm25, dense"):
        HybridSearch({"bm25": BM25Search(), "splade": searchers["dense"]}).open_index(tmp_path / "index")
    with pytest.raises(InputError, match="expected an index of the searchers bm25, dense, found one of bm25"):
        search.open_index(tmp_path / "index" / "bm25")
    with pytest.raises(InputError, match="expected an index of kind sentence_embedding, found hybrid_search"):
        searchers["dense"].open_index(tmp_path / "index")
    about = tmp_path / "index" / "index.json"
    for change, message in (({"texts": 3}, "expected 3 texts in bm25, not 43"), ({"searchers": [3]}, "expected names")):
        before = about.read_text()
        about.write_text(json.dumps(json.loads(before) | change))
        with pytest.raises(InputError, match=message):
            search.open_index(tmp_path / "index")
        about.write_text(before)


def test_the_first_merged_texts_are_reranked(searchers, models):
    reranker = pipeline("rerank", models["cross"])
    search = HybridSearch(searchers, Fusion(), reranker, rerank_top_k=6)
    plain = HybridSearch(searchers)
    for query, answers in zip(QUERIES, search(QUERIES, CORPUS, 4), strict=True):
        merged = plain(query, CORPUS, 6)
        expected = reranker(query, [answer["text"] for answer in merged], 4)
        numbers = [merged[each["corpus_id"]]["corpus_id"] for each in expected]
        assert [answer["corpus_id"] for answer in answers] == numbers
        assert [answer["score"] for answer in answers] == pytest.approx([each["score"] for each in expected])
        ranks = {answer["corpus_id"]: rank for rank, answer in enumerate(merged, 1)}
        assert [answer["steps"]["fusion"]["rank"] for answer in answers] == [ranks[number] for number in numbers]
    alone = HybridSearch({"bm25": searchers["bm25"]}, None, reranker, 6)
    assert alone("zebra", CORPUS) == [] and len(alone("the cat", CORPUS)) == 6
    assert set(alone("the cat", CORPUS)[0]["steps"]) == {"bm25"}


@pytest.mark.slow
def test_every_kind_of_searcher(models, write_small, tmp_path):
    for name, head in (("sparse", "sparse_embedding"), ("colbert", "multi_vector")):
        models = models | {name: str(write_small(tmp_path / name, head, initializer_range=0.5))}
    entries = ["bm25", "sparse", models["dense"], models["colbert"]]
    search = HybridSearch.open(models["sparse"], entries, fusion=Fusion(candidates=5), bm25=BM25Settings(k1=2.0),
                               reranker=models["cross"])  # fmt: skip
    assert [*search.searchers] == ["bm25", "sparse", "dense", "colbert"]
    options = {"max_active_dims": 20, "precision": "float16", "approximate": False, "prompt": "a "}
    search.write_index(CORPUS, tmp_path / "index", **options)
    assert json.loads((tmp_path / "index/colbert/index.json").read_text())["precision"] == "float16"
    assert json.loads((tmp_path / "index/sparse/index.json").read_text())["size"] == 20
    search.open_index(tmp_path / "index")
    for answers in search(QUERIES[:3], top_k=5):
        assert all(answer["text"] == CORPUS[answer["corpus_id"]] for answer in answers) and len(answers) == 5
    with pytest.raises(
        InputError, match="dense needs a model with a sentence_embedding head, found a sparse_embedding"
    ):
        HybridSearch.open(models["sparse"], ["bm25", "dense"])


def test_two_runs_are_named_by_their_folders(models, tmp_path):
    """Every run writes its model to `WORKDIR/model`."""
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "model").symlink_to(models["dense"])
    runs = [str(tmp_path / run / "model") for run in ("first", "second")]
    search = HybridSearch.open(models["dense"], ["bm25", "dense", *runs])
    assert [*search.searchers] == ["bm25", "dense", "first-model", "second-model"]
    search.write_index(CORPUS, tmp_path / "index")
    assert (tmp_path / "index/first-model/index.json").is_file()
    assert [*HybridSearch.open(None, ["bm25", runs[0]]).searchers] == ["bm25", "model"]
    with pytest.raises(InputError, match="expected different names, found first-model twice"):
        HybridSearch.open(None, [runs[0], runs[0]])


@pytest.mark.parametrize(
    ("model", "searchers", "options", "message"),
    [
        ("dense", ["bm52", "dense"], {}, "expected names of searchers and model directories, found 'bm52'"),
        ("dense", [], {}, "searchers: expected at least one, found none"),
        ("dense", "bm25,dense", {}, "searchers: expected a list of names, found 'bm25,dense'"),
        ("dense", ["dense", "dense"], {}, "expected different names, found dense twice"),
        (None, ["bm25", "dense"], {}, "searchers: expected a model for dense, found none"),
        ("dense", ["bm25"], {}, "model: expected none for the searchers bm25 .*, found .*dense"),
        ("dense", ["dense"], {"bm25": BM25Settings()}, "settings of bm25: expected bm25 among the searchers"),
        (None, ["bm25"], {"fusion": Fusion()}, "fusion: expected several searchers, found bm25"),
        ("dense", ["bm25", "dense"], {"fusion": Fusion(weights=(1.0,))}, "weights: expected 2, one for each of bm25"),
        (None, ["bm25"], {"rerank_top_k": 0}, "rerank_top_k: expected a positive integer, found 0"),
    ],
)
def test_searchers_that_do_not_fit(models, model, searchers, options, message):
    with pytest.raises(InputError, match=message):
        HybridSearch.open(model and models[model], searchers, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s("a"), "expected a corpus, given here or to index"),
        (lambda s: s("a", ["a"], 0), "top_k: expected a positive integer, found 0"),
        (lambda s: s("a", ["a"], prompt="x"), "prompt: expected a searcher with this option, found bm25"),
        (lambda s: s("a", ["a"], promt="x"), "option 'promt' is not known; did you mean 'prompt'"),
        (lambda s: s("a", "a"), "corpus: expected a list of texts, found one text"),
        (lambda s: s("a", ["a", 3]), "corpus: text 1: expected a string, found int"),
        (lambda s: s.index([]), "corpus: expected at least one text"),
        (lambda s: s.write_index(["a"], "x", approximate=True), "approximate: expected a searcher with this option"),
        (lambda s: HybridSearch({}), "searchers: expected at least one"),
        (lambda s: HybridSearch({"../x": s}), "searchers: expected the name of a folder, and not '../x'"),
        (lambda s: HybridSearch({"fusion": s}), "searchers: expected the name of a folder, and not 'fusion'"),
    ],
)
def test_calls_that_do_not_fit(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        call(HybridSearch({"bm25": BM25Search()}))
    assert not [*tmp_path.iterdir()]


# The command line


def run(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_verbs(models, searchers, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS) + "\n")
    combined = ("--with", "bm25,dense", "--top-k", 3)
    expected = HybridSearch(searchers, Fusion(candidates=5))(QUERIES, CORPUS, 3)
    status, out, _ = run(capsys, "search", models["dense"], *QUERIES, "--corpus", "corpus.txt", *combined, "--json",
                         "--candidates", 5)  # fmt: skip
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and [line["query"] for line in lines] == QUERIES
    for line, answers in zip(lines, expected, strict=True):
        assert [each["corpus_id"] for each in line["answers"]] == [answer["corpus_id"] for answer in answers]
        assert [each["steps"] for each in line["answers"]] == [
            {name: pytest.approx(step, rel=1e-5) for name, step in answer["steps"].items()} for answer in answers
        ]
    status, out, _ = run(capsys, "index", models["dense"], "--corpus", "corpus.txt", "--with", "bm25,dense", "--out",
                         "index", "--stemmer", "english", "--bm25-k1", "1.5")  # fmt: skip
    assert (status, out) == (0, f"index: index of {len(CORPUS)} texts\n")
    about = json.loads((tmp_path / "index/bm25/index.json").read_text())
    assert (about["stemmer"], about["k1"], about["b"]) == ("english", 1.5, 0.75)
    status, out, _ = run(capsys, "search", models["dense"], "cats", "--index", "index", "--top-k", 1)
    assert status == 0 and "bm25 (rank)" in out and "dense (rank)" in out and " (8) " in out
    status, out, _ = run(capsys, "search", models["dense"], "a zebra", "--index", "index", "--with", "dense")
    assert status == 0 and "dense (rank)" in out and "bm25" not in out
    status, out, _ = run(capsys, "search", "bm25", "cats", "zebras", "--index", "index", "--top-k", 1, "--json",
                         "--reranker", models["cross"])  # fmt: skip
    cats, zebras = (json.loads(line)["answers"] for line in out.splitlines())
    assert status == 0 and "cat" in cats[0]["text"] and set(cats[0]["steps"]) == {"bm25"} and zebras == []


def test_hybrid_search_is_evaluated(models, capsys, tmp_path):
    pytest.importorskip("pytrec_eval", reason="needs pytrec-eval-terrier: pip install 'bert-jax[retrieval]'")
    (tmp_path / "qrels").mkdir()
    rows = {"corpus": CORPUS, "queries": QUERIES}
    for name, texts in rows.items():
        lines = [json.dumps({"_id": f"{name}{i}", "text": text}) for i, text in enumerate(texts)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    judged = "".join(f"queries{i}\tcorpus{RNG.integers(0, 40)}\t1\n" for i in range(len(QUERIES)))
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    given = ("evaluate-search", models["dense"], "--data", tmp_path, "--with", "bm25,dense", "--metrics", "mrr@50")
    status, out, err = run(capsys, *given, "--fusion", "weighted", "--weights", "0.3,0.7", "--json", "--run-file",
                         tmp_path / "run.txt")  # fmt: skip
    assert status == 0, err
    search = HybridSearch.open(models["dense"], ["bm25", "dense"], fusion=Fusion("weighted", (0.3, 0.7)))
    ranks = []
    for (i, query), line in zip(enumerate(QUERIES), judged.splitlines(), strict=True):
        answers = search(query, CORPUS, 50)
        at_least = {f"corpus{each['corpus_id']}": np.float32(each["score"]) for each in answers}
        order = sorted(at_least, key=lambda name: (at_least[name], name), reverse=True)  # that of trec_eval
        ranks.append(order.index(line.split("\t")[1]) + 1)
        lines = [
            row.split() for row in (tmp_path / "run.txt").read_text().splitlines() if row.startswith(f"queries{i} ")
        ]
        assert [row[2] for row in lines] == [f"corpus{each['corpus_id']}" for each in answers]
    assert json.loads(out)["mrr@50"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    status, out, _ = run(capsys, "evaluate-search", "bm25", "--data", tmp_path, "--json")
    assert status == 0 and 0 < json.loads(out)["recall@100"] < 1  # no text has a zebra
    with pytest.raises(InputError, match="kind: expected none with searchers, which name the kind, found sparse"):
        evaluate_search(models["dense"], tmp_path, searchers=["bm25", "dense"], kind="sparse")
    with pytest.raises(InputError, match="fusion: expected searchers, found Fusion"):
        evaluate_search(models["dense"], tmp_path, fusion=Fusion())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fusion", "rrf"), "--fusion: expected --with, or bm25 in place of MODEL, found neither"),
        (("--stemmer", "english"), "--stemmer: expected --with, or bm25 in place of MODEL, found neither"),
        (("--rerank-top-k", 3), "--rerank-top-k: expected --reranker, found none"),
        (("--with", "bm25,dense", "--kind", "sparse"), "--kind: expected none with --with or bm25"),
        (("--with", "bm25,dense", "--rerank-top-k", 3), "--rerank-top-k: expected --reranker, found none"),
        (("--with", "bm25,dense", "--weights", "1,x"), "argument --weights: expected numbers, found '1,x'"),
        (("--with", "bm25,dense", "--weights", "1,2,3"), "weights: expected 2, one for each of bm25, dense, found 3"),
        (("--with", "bm25,dense", "--max-active-dims", 3), "max_active_dims: expected a searcher with this option"),
        (("--with", "bm52"), "searchers: expected names of searchers and model directories, found 'bm52'"),
        (("--with", "bm25,dense", "--reranker", "dense"), "needs a trained sequence_classification head"),
    ],
)
def test_refused_in_one_line(models, capsys, tmp_path, arguments, message):
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS) + "\n")
    given = [models.get(word, word) if i and word == "dense" else word for i, word in enumerate(arguments)]
    status, out, err = run(capsys, "search", models["dense"], "q", "--corpus", tmp_path / "corpus.txt", *given)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1
