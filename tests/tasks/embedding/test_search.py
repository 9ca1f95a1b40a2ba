"""Similarity, search and re-ranking: against brute force, in parts, with ties, and on the command line."""

import gzip
import json

import jax
import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import corpus_chunks, pipeline
from bert_jax.modeling import Bert
from bert_jax.tasks.embedding.search import pipeline as search

CORPUS = [
    "the cat sat",
    "a dog sleeps on the tree",
    "",
    "the cat sat",
    "red fish",
    "one old house by the river",
    "a bird",
]
QUERIES = ["the cat sat", "two fish", "the house"]


@pytest.fixture(scope="module")
def models(tmp_path_factory, tiny_tokenizer):
    """Random models: of embeddings, and cross-encoders by their number of outputs."""
    root = tmp_path_factory.mktemp("models")
    config = BertConfig(vocab_size=tiny_tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1,
                        num_attention_heads=2, intermediate_size=32, max_position_embeddings=24)  # fmt: skip

    def save(name, head, **changes):
        made = config.replace(**changes)
        draw = np.random.default_rng(0).normal
        params = jax.tree.map(lambda leaf: draw(0, 0.3, leaf.shape), Bert(made, head).abstract_params())
        save_pretrained(root / name, made, head, params, tiny_tokenizer)
        return str(root / name)

    return {"embedding": save("embedding", "sentence_embedding", normalize_embeddings=False)} | {
        outputs: save(str(outputs), "sequence_classification", num_labels=outputs) for outputs in (1, 2, 3)
    }


@pytest.fixture(scope="module")
def searcher(models):
    return pipeline("search", models["embedding"], batch_size=2)


def brute_force(models, queries, corpus, top_k):
    embed = pipeline("sentence-embedding", models["embedding"])
    vectors = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (embed(queries), embed(corpus))]
    scores = vectors[0] @ vectors[1].T
    order = np.argsort(-np.round(scores, 5), axis=1, kind="stable")[:, :top_k]
    return order.tolist(), np.take_along_axis(scores, order, 1)


@pytest.mark.parametrize("chunk", [1, 3, 4096])
@pytest.mark.parametrize("top_k", [1, 3, 50])
def test_search_is_brute_force(models, searcher, monkeypatch, chunk, top_k):
    monkeypatch.setattr(corpus_chunks, "CORPUS_CHUNK", chunk)
    order, scores = brute_force(models, QUERIES, CORPUS, top_k)
    assert searcher.index(CORPUS) == len(CORPUS)
    for found in (searcher(QUERIES, top_k=top_k), searcher(QUERIES, corpus=iter(CORPUS), top_k=top_k)):
        for answers, row, values in zip(found, order, scores, strict=True):
            np.testing.assert_allclose([answer["score"] for answer in answers], values, atol=1e-5)
            assert all(answer["text"] == CORPUS[answer["corpus_id"]] for answer in answers)
            assert sorted(a["corpus_id"] for a in answers) == sorted(row) or top_k == 1
    assert found[0][0]["text"] == "the cat sat" and found[0][0]["score"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_of_equals_the_earlier_comes_first(searcher, monkeypatch, chunk):
    """Whole numbers, so that scores are equal to the last bit."""
    monkeypatch.setattr(corpus_chunks, "CORPUS_CHUNK", chunk)
    signs = np.random.default_rng(0).choice([-0.5, 0.5], (20, 4)).astype(np.float32)
    vectors = {f"text {i}": sign for i, sign in enumerate(signs)}
    monkeypatch.setattr(search.Search, "_embed", lambda self, texts, *_, **__: np.stack([vectors[t] for t in texts]))
    expected = np.argsort(-(signs[:5] @ signs.T), axis=1, kind="stable")
    searcher.index(vectors)
    for top_k in (1, 4, 20):
        found = searcher([f"text {i}" for i in range(5)], top_k=top_k)
        assert [[answer["corpus_id"] for answer in row] for row in found] == expected[:, :top_k].tolist()


def test_a_corpus_is_not_held_to_be_searched_once(searcher, monkeypatch):
    monkeypatch.setattr(corpus_chunks, "CORPUS_CHUNK", 8)
    alive, most = 0, 0

    class Text(str):
        def __del__(self):
            nonlocal alive
            alive -= 1

    def corpus():
        nonlocal alive, most
        for i in range(80):
            alive += 1
            most = max(most, alive)
            yield Text(f"cat {i}")

    assert len(searcher("a cat", corpus=corpus(), top_k=2)) == 2
    assert most <= 2 * 8 + 2 * 2 + 2


def test_one_query_is_a_list_of_answers(searcher):
    found = searcher("red fish", corpus=CORPUS, top_k=2)
    assert [set(answer) for answer in found] == [{"corpus_id", "score", "text"}] * 2
    assert found == searcher(["red fish"], corpus=CORPUS, top_k=2)[0] and found[0]["corpus_id"] == 4
    json.dumps(found)


def test_similarity(models):
    alike, embed = (pipeline(task, models["embedding"]) for task in ("similarity", "sentence-embedding"))
    vectors = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (embed(QUERIES), embed(CORPUS))]
    expected = vectors[0] @ vectors[1].T
    np.testing.assert_allclose(alike(QUERIES, CORPUS), expected, atol=1e-5)
    np.testing.assert_allclose(alike(QUERIES[1], CORPUS), expected[1], atol=1e-5)
    np.testing.assert_allclose(alike(QUERIES, CORPUS[2]), expected[:, 2], atol=1e-5)
    one = alike(QUERIES[1], CORPUS[4])
    assert isinstance(one, float) and one == pytest.approx(expected[1, 4], abs=1e-5)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("chunk", [2, 4096])
def test_rerank_orders_by_the_score_of_each_pair(models, monkeypatch, outputs, chunk):
    monkeypatch.setattr(corpus_chunks, "CORPUS_CHUNK", chunk)
    documents = list(dict.fromkeys(CORPUS))
    classify = pipeline("text-classification", models[outputs])
    pairs = [{"text": "two fish", "text_pair": text} for text in documents]
    scores = [{row["label"]: row["score"] for row in rows}[f"LABEL_{outputs - 1}"] for rows in
              (classify(pair, top_k=None) for pair in pairs)]  # fmt: skip
    rerank = pipeline("rerank", models[outputs])
    found = rerank("two fish", documents)
    assert [answer["corpus_id"] for answer in found] == np.argsort(-np.array(scores)).tolist()
    np.testing.assert_allclose([answer["score"] for answer in found], sorted(scores, reverse=True), atol=1e-5)
    assert [a["corpus_id"] for a in rerank("two fish", iter(documents), top_k=2)] == [a["corpus_id"] for a in found[:2]]
    assert all(answer["text"] == documents[answer["corpus_id"]] for answer in found)


def test_rerank_cuts_long_documents(models):
    assert len(pipeline("rerank", models[1])("a cat", ["the dog " * 50, "a cat"])) == 2


def test_what_does_not_fit(models, searcher):
    fresh = pipeline("search", models["embedding"])
    with pytest.raises(InputError, match="expected a corpus, given here or to index"):
        fresh("a cat")
    with pytest.raises(InputError, match="corpus: expected at least one text"):
        fresh.index([])
    with pytest.raises(InputError, match="corpus: expected a list of texts, found one text"):
        fresh("a cat", corpus="a cat")
    with pytest.raises(InputError, match="corpus: text 1: expected a string, found int"):
        fresh("a cat", corpus=["a", 3])
    with pytest.raises(InputError, match="top_k: expected a positive integer, found 0"):
        searcher("a cat", corpus=CORPUS, top_k=0)
    with pytest.raises(InputError, match="expected a model with one output or two, found 3"):
        pipeline("rerank", models[3])("a cat", CORPUS)
    with pytest.raises(InputError, match="needs a trained sequence_classification head"):
        pipeline("rerank", models["embedding"])


# The command line


def run(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_search_on_the_command_line(models, capsys, tmp_path):
    (tmp_path / "corpus.txt.gz").write_bytes(gzip.compress("\r\n".join(CORPUS).encode()))
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in CORPUS))
    expected = pipeline("search", models["embedding"])(QUERIES[:2], corpus=CORPUS, top_k=2)
    base = ("search", models["embedding"], "--top-k", 2, "--json")
    for corpus in (("corpus.txt.gz",), ("corpus.jsonl", "--text-column", "body")):
        status, out, _ = run(capsys, *base, "--corpus", tmp_path / corpus[0], *corpus[1:], *QUERIES[:2])
        lines = [json.loads(line) for line in out.splitlines()]
        assert status == 0 and [line["query"] for line in lines] == QUERIES[:2]
        for line, answers in zip(lines, expected, strict=True):
            assert [a["corpus_id"] for a in line["answers"]] == [a["corpus_id"] for a in answers]
    _, table, _ = run(capsys, *base[:-1], QUERIES[0], "--corpus", tmp_path / "corpus.txt.gz")
    assert "1.0000" in table and "the cat sat" in table and "a bird" not in table


def test_rerank_and_similarity_on_the_command_line(models, capsys, tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS) + "\n")
    _, out, _ = run(capsys, "rerank", models[2], "--corpus", tmp_path / "corpus.txt", "two fish", "--json")
    found = json.loads(out)
    assert found["query"] == "two fish" and len(found["answers"]) == len(CORPUS)
    _, both, _ = run(capsys, "rerank", models[2], "a cat", "--corpus", tmp_path / "corpus.txt", "two fish", "--json")
    assert [json.loads(line)["query"] for line in both.splitlines()] == ["a cat", "two fish"]
    assert both.splitlines()[1] == out.rstrip()
    _, out, _ = run(capsys, "similarity", models["embedding"], "a cat", "a dog")
    assert float(out) == pytest.approx(pipeline("similarity", models["embedding"])("a cat", "a dog"), abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("search", "embedding", "q", "--corpus", "nowhere.txt"), "nowhere.txt: no such file"),
        (("search", "embedding", "q", "--corpus", "empty.txt"), "empty.txt: expected rows, found an empty file"),
        (("search", "embedding", "q", "--corpus", "latin.txt"), "latin.txt: line 2: expected UTF-8 text, found byte"),
        (("search", "embedding", "q", "--corpus", "latin.txt", "--top-k", 0), "--top-k: expected a positive integer"),
        (("search", "embedding", "--corpus", "latin.txt"), "required: QUERY"),
        (("rerank", "embedding", "q", "--corpus", "latin.txt"), "rerank needs a trained sequence_classification head"),
        (("rerank", 1, "q", "--corpus", "latin.txt", "--text-column", "a"), "expected a file named"),
    ],
)
def test_refused_in_one_line(models, capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes(b"one\nna\xefve\n")
    verb, model, *rest = arguments
    status, out, err = run(capsys, verb, models[model], *rest)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1
