"""Search is scored on retrieval sets of BEIR's layout, as trec_eval scores it."""

import gzip
import json
import math

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.data.retrieval_sets import read_retrieval_set
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.tasks.embedding.search.evaluation import evaluate_search, rank

WORDS = ["cat", "dog", "tree", "house", "bird", "red", "big", "young", "the", "a"]
COUNTS = ["queries", "queries_without_relevant", "documents", "missing_documents"]
PYTREC_EVAL = "needs pytrec-eval-terrier: pip install 'bert-jax[retrieval]'"


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(2, 9))) for _ in range(60)]
    return {f"d{i}": {"_id": f"d{i}", "title": text.split()[0], "text": text} for i, text in enumerate(texts)}


@pytest.fixture(scope="module")
def queries():
    rng = np.random.default_rng(1)
    return {f"q{i}": {"_id": f"q{i}", "text": " ".join(rng.choice(WORDS, 3))} for i in range(9)} | {
        "d7": {"_id": "d7", "text": "the red bird"},
        "unjudged": {"_id": "unjudged", "text": "a tree"},
    }


@pytest.fixture(scope="module")
def judgements(queries):
    rng = np.random.default_rng(2)
    return {
        query: {f"d{i}": int(rng.integers(0, 3)) for i in rng.permutation(60)[:8]}
        for query in queries
        if query != "unjudged"
    }


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def folder(tmp_path, corpus, queries, judgements):
    write_lines(tmp_path / "set/corpus.jsonl", corpus.values())
    write_lines(tmp_path / "set/queries.jsonl", queries.values())
    lines = [f"{query}\t{document}\t{score}\n" for query, row in judgements.items() for document, score in row.items()]
    (tmp_path / "set/qrels").mkdir()
    (tmp_path / "set/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return tmp_path / "set"


@pytest.fixture(scope="module")
def model(tmp_path_factory, write_small):
    return write_small(tmp_path_factory.mktemp("search") / "model", "sentence_embedding", initializer_range=0.5)


def brute_force(model, corpus, queries, judgements, keep_same_id=False):
    """The documents of each query, best first, by all cosines."""
    embed = pipeline("sentence-embedding", str(model))
    documents = embed([f"{row['title']} {row['text']}" for row in corpus.values()])
    vectors = embed([queries[query]["text"] for query in judgements])
    found = {}
    for query, row in zip(judgements, vectors @ documents.T, strict=True):
        names = [list(corpus)[i] for i in np.argsort(-row, kind="stable")]
        found[query] = [name for name in names if keep_same_id or name != query]
    return found


def by_hand(orders, judgements):
    """nDCG@10, MRR@10, MAP@100 and recall@100 as the definitions say."""
    scores = []
    for query, order in orders.items():
        gains = [judgements[query].get(name, 0) for name in order]
        ideal = sorted(judgements[query].values(), reverse=True)
        discounted = [sum(gain / math.log2(i + 2) for i, gain in enumerate(row[:10])) for row in (gains, ideal)]
        relevant = sum(gain > 0 for gain in judgements[query].values())
        first = next((i for i, gain in enumerate(gains[:10]) if gain), None)
        hits = np.cumsum([gain > 0 for gain in gains[:100]])
        precision = sum(hits[i] / (i + 1) for i, gain in enumerate(gains[:100]) if gain)
        scores.append([discounted[0] / discounted[1], 0 if first is None else 1 / (first + 1), precision / relevant,
                       sum(gain > 0 for gain in gains[:100]) / relevant])  # fmt: skip
    return np.mean(scores, axis=0)


@pytest.mark.parametrize("keep_same_id", [False, True])
def test_metrics_are_those_of_the_definitions(folder, model, corpus, queries, judgements, keep_same_id):
    pytest.importorskip("pytrec_eval", reason=PYTREC_EVAL)
    found = evaluate_search(model, folder, keep_same_id=keep_same_id)
    expected = by_hand(brute_force(model, corpus, queries, judgements, keep_same_id), judgements)
    assert list(found) == ["ndcg@10", "mrr@10", "map@100", "recall@100", *COUNTS]
    assert list(found.values())[:4] == pytest.approx(expected, abs=1e-6)
    assert [found[name] for name in COUNTS] == [10, 0, 60, 0]


def test_a_document_with_the_id_of_its_query_counts_where_it_is_relevant(tmp_path, model, caplog):
    pytest.importorskip("pytrec_eval", reason=PYTREC_EVAL)
    texts = ["the cat sat", "rain falls", "a red house", "birds sing"]
    for name in ("corpus", "queries"):
        write_lines(tmp_path / f"{name}.jsonl", [{"_id": str(i), "text": text} for i, text in enumerate(texts)])
    (tmp_path / "qrels").mkdir()

    def ndcg(*judgements, **options):
        lines = "".join(f"{query}\t{document}\t{score}\n" for query, document, score in judgements)
        (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
        return evaluate_search(model, tmp_path, **options)["ndcg@10"]

    assert ndcg(*((i, i, 1) for i in range(4))) == 1.0 and not caplog.messages
    own = [(0, 1, 1), (1, 1, 1), (2, 3, 1), (3, 3, 0), (3, 2, 1)]  # relevant for one of four
    kept, left_out = ndcg(*own, keep_same_id=True), ndcg(*own)
    assert caplog.messages == [f"{tmp_path}: left out the document with the query's id for 3 queries, as BEIR does"]
    assert left_out > kept


def test_missing_documents_and_queries_without_a_relevant_one_are_counted(folder, model, caplog):
    pytest.importorskip("pytrec_eval", reason=PYTREC_EVAL)
    before = evaluate_search(model, folder)
    with (folder / "qrels/test.tsv").open("a") as file:
        file.write("unjudged\td1\t0\nq0\tgone\t1\nq1\tgone\t2\nq2\talso gone\t0\n")
    scores = evaluate_search(model, folder)
    assert [scores[name] for name in COUNTS] == [11, 1, 60, 1]
    assert scores["recall@100"] < before["recall@100"] and scores["map@100"] < before["map@100"]
    assert "1 relevant documents, such as 'gone', are not in the corpus" in caplog.text
    assert "1 queries have no relevant document" in caplog.text


@pytest.mark.parametrize("head", ["sparse_embedding", "multi_vector"])
def test_models_of_other_embeddings(folder, write_small, tmp_path, corpus, queries, judgements, head):
    pytest.importorskip("pytrec_eval", reason=PYTREC_EVAL)
    path = write_small(tmp_path / head, head, initializer_range=0.5)
    model, ranked = from_pretrained(path), {}
    documents = model.encode_document([f"{row['title']} {row['text']}" for row in corpus.values()])
    scores = model.similarity(model.encode_query([queries[query]["text"] for query in judgements]), documents)
    for query, row in zip(judgements, scores, strict=True):
        names = [list(corpus)[i] for i in np.argsort(-row, kind="stable")]
        ranked[query] = [name for name in names if name != query]
    found = evaluate_search(path, folder)
    assert list(found.values())[:4] == pytest.approx(by_hand(ranked, judgements), abs=1e-6)


def test_the_verb_with_a_reranker_and_a_run_file(folder, model, write_small, tmp_path, capsys, judgements):
    pytest.importorskip("pytrec_eval", reason=PYTREC_EVAL)
    cross = write_small(tmp_path / "cross", "sequence_classification", initializer_range=0.5)
    run = tmp_path / "run.txt"
    given = ["evaluate-search", str(model), "--data", str(folder), "--metrics", "ndcg@3,precision@5", "--top-k", "20"]
    assert main([*given, "--json", "--reranker", str(cross), "--rerank-top-k", "6", "--run-file", str(run)]) == 0
    found = json.loads(capsys.readouterr().out)
    lines = [line.split() for line in run.read_text().splitlines()]
    assert len(lines) == 10 * 6 and {line[1] for line in lines} == {"Q0"}
    reranker, given_set = pipeline("rerank", str(cross)), read_retrieval_set(folder)
    texts = dict(given_set.documents())
    first = [line for line in lines if line[0] == "q0"]
    answers = reranker(given_set.queries["q0"], [texts[line[2]] for line in first])
    assert [answer["corpus_id"] for answer in answers] == list(range(6))
    assert [float(line[4]) for line in first] == pytest.approx([answer["score"] for answer in answers])
    relevant = [sum(judgements[line[0]].get(line[2], 0) > 0 for line in lines[i : i + 5]) / 5 for i in range(0, 60, 6)]
    assert found["precision@5"] == pytest.approx(np.mean(relevant))
    assert main([*given, "--report", str(tmp_path / "page.html")]) == 0 and "precision@5" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert "Queries that fail" in page and "the red bird" in page and "not ranked" in page
    assert main([*given, "--report", str(tmp_path / "page.pdf")]) == 2


@pytest.mark.parametrize("name", ["q 1", "q\nq1 Q0 d1 1 9 forged", "q\u00a01", "d 7"])
def test_an_id_adds_no_fields_or_lines_to_a_run(folder, model, tmp_path, corpus, queries, judgements, name):
    """White space separates the fields of a TREC run."""
    pytest.importorskip("pytrec_eval", reason=PYTREC_EVAL)
    other = tmp_path / "other"
    documents = {**corpus, name: {"_id": name, "title": "", "text": "cat"}} if name[0] == "d" else corpus
    asked = {**queries, name: {"_id": name, "text": "cat"}} if name[0] == "q" else queries
    judged = {**judgements, name: {"d1": 1}} if name[0] == "q" else judgements
    write_lines(other / "corpus.jsonl", documents.values())
    write_lines(other / "queries.jsonl", asked.values())
    rows = [{"query-id": query, "corpus-id": found} for query, row in judged.items() for found in row]
    write_lines(other / "qrels" / "test.jsonl", rows)
    with pytest.raises(InputError, match=r"run\.txt: expected ids without white space for a TREC run, found"):
        evaluate_search(model, other, run_file=tmp_path / "run.txt")
    assert not (tmp_path / "run.txt").exists()


def test_search_over_several_chunks_is_search_over_one(folder, model, monkeypatch):
    search, given = pipeline("search", str(model)), read_retrieval_set(folder)
    whole = rank(search, given, 15).rankings
    monkeypatch.setattr("bert_jax.inference.corpus_chunks.CORPUS_CHUNK", 7)
    parts = rank(search, given, 15).rankings
    assert {query: list(row) for query, row in parts.items()} == {query: list(row) for query, row in whole.items()}
    assert "d7" not in whole["d7"] and all(len(row) == 15 for row in whole.values())


def test_parquet_files_of_the_hub_and_compressed_lines(folder, tmp_path, corpus, queries, judgements):
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    other = tmp_path / "other"
    write_lines(other / "corpus.jsonl.gz", corpus.values())
    rows = [{"query-id": query, "corpus-id": name} for query, row in judgements.items() for name in row]
    for part, found in (("queries", list(queries.values())), ("qrels", rows)):
        (other / part).mkdir()
        for number, half in enumerate((found[::2], found[1::2])):
            parquet.write_table(arrow.Table.from_pylist(half), other / part / f"train-0000{number}-of-00002.parquet")
    one, two = read_retrieval_set(folder), read_retrieval_set(other)
    assert dict(one.documents()) == dict(two.documents())
    assert one.queries == two.queries
    assert {query: dict.fromkeys(row, 1) for query, row in judgements.items()} == two.judgements


BROKEN = {
    "expected corpus.jsonl or corpus.parquet or corpus/*.parquet, found neither": ("corpus.jsonl", None),
    "expected an id in _id, found None": ("corpus.jsonl", '{"text": "a"}\n'),
    "expected a unique _id, found 'd1' again": ("corpus.jsonl", '{"_id": "d1", "text": "a"}\n' * 2),
    "expected texts in text and title, found None and ''": ("corpus.jsonl", '{"_id": "d1"}\n'),
    "expected a text of each query that qrels/test names, found none for 'd7'": (
        "queries.jsonl",
        "".join(f'{{"_id": "q{i}", "text": "cat"}}\n' for i in range(9)),
    ),
    "line 2: expected a whole number in score, found 'much'": (
        "qrels/test.tsv",
        "query-id\tcorpus-id\tscore\nq0\td1\tmuch\n",
    ),
    "expected qrels/test.tsv or qrels/test.jsonl or qrels/test.parquet or qrels/*.parquet": ("qrels/test.tsv", None),
}


@pytest.mark.parametrize("message", BROKEN)
def test_what_is_broken_is_said_in_a_line(folder, message):
    name, content = BROKEN[message]
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(InputError) as error:
        list(read_retrieval_set(folder).documents())
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["ndcg", "ndcg@0", "f1@10", "ndcg@ten"])
def test_metrics_that_do_not_exist(folder, model, name):
    with pytest.raises(InputError, match="expected ndcg@K, map@K, recall@K, precision@K, mrr@K with a positive K"):
        evaluate_search(model, folder, metric_names=(name,))
