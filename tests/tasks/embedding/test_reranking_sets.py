"""Rows of a query, relevant and other documents: models of all kinds rank them as in sentence-transformers."""

import json

import numpy as np
import pytest
from retrieval_sets import words

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained
from bert_jax.metrics.rankings import rankings
from bert_jax.tasks.embedding.search.reranking_sets import evaluate_reranking, read_reranking_set


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return [
        {"query": words(rng, 2, 5), "positive": [words(rng, 2, 9) for _ in range(rng.integers(1, 4))],
         "negative": [words(rng, 2, 9) for _ in range(rng.integers(1, 6))]}
        for _ in range(12)
    ]  # fmt: skip


@pytest.fixture
def data(rows, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"query": "a", "positive": "b", "negative": []}]))
    return path


def test_metrics_with_a_cutoff_beside_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    relevance, scores = rng.integers(0, 2, (6, 30)).astype(float), rng.normal(size=(6, 30))
    relevance[:, 0] = 1
    found = rankings(relevance, scores, ("map", "ndcg@10", "mrr@2"))
    precision = [sklearn.average_precision_score(*row) for row in zip(relevance, scores, strict=True)]
    assert found["map"] == pytest.approx(np.mean(precision))
    assert found["ndcg@10"] == pytest.approx(sklearn.ndcg_score(relevance, scores, k=10))
    first = [np.flatnonzero(row[np.argsort(-score)])[0] for row, score in zip(relevance, scores, strict=True)]
    assert found["mrr@2"] == pytest.approx(np.mean([1 / (i + 1) if i < 2 else 0 for i in first]))
    assert found["map"] != rankings(relevance, scores, ("map@5",))["map@5"]


def test_the_verb_with_a_model_of_embeddings(rows, data, write_small, tmp_path, capsys, caplog):
    path = write_small(tmp_path / "model", "sentence_embedding", initializer_range=0.5)
    assert main(["evaluate-reranking", str(path), "--data", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["map", "mrr@10", "ndcg@10", "queries", "left_out"]
    assert found["queries"] == 12 and found["left_out"] == 1 and "left out 1 rows" in caplog.text
    model = from_pretrained(path)
    reciprocal = []
    for row in rows:
        alike = model.similarity(model.encode([row["query"]]), model.encode([*row["positive"], *row["negative"]]))[0]
        order = np.argsort(-alike)
        reciprocal.append(1 / (1 + min(np.flatnonzero(order < len(row["positive"])))))
    assert found["mrr@10"] == pytest.approx(np.mean(reciprocal))


def test_what_does_not_fit(data, tmp_path, rows):
    path = tmp_path / "bad.jsonl"
    for row, message in (
        ({"query": "a", "positive": "b"}, "line 1: expected a text or a list of texts in 'negative', found None"),
        ({"positive": "b", "negative": "c"}, "line 1: expected a text in 'query', found None"),
        ({"query": "a", "positive": ["b", 3], "negative": "c"}, "line 1: expected a text or a list of texts in 'pos"),
        ({"query": "a", "positive": ["b", " "], "negative": "c"}, r"line 1: .*positive\[1\]"),
        (
            {"query": "a", "positive": [], "negative": "c"},
            "expected rows with relevant and other documents, found none",
        ),
    ):
        path.write_text(json.dumps(row) + "\n")
        with pytest.raises(InputError, match=message):
            evaluate_reranking(tmp_path / "no model", path)
    with pytest.raises(InputError, match="'f1@3' is not a metric of rankings"):
        evaluate_reranking(tmp_path / "no model", data, metric_names=("f1@3",))
    assert len(read_reranking_set(data)) == 13


@pytest.mark.slow
@pytest.mark.parametrize("head", ["sentence_embedding", "sparse_embedding", "multi_vector", "sequence_classification"])
def test_values_are_those_of_sentence_transformers(rows, data, write_small, tmp_path, head):
    st = pytest.importorskip("sentence_transformers")
    fields = {"num_labels": 1, "pooler": True} if head == "sequence_classification" else {}
    path = write_small(tmp_path / "model", head, initializer_range=0.5, **fields)
    found = evaluate_reranking(path, data)
    if head == "sequence_classification":
        from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

        expected = CrossEncoderRerankingEvaluator(rows, at_k=10)(st.CrossEncoder(str(path), device="cpu"))
    else:
        module, model, evaluator = {
            "sentence_embedding": ("sentence_transformer", "SentenceTransformer", "RerankingEvaluator"),
            "sparse_embedding": ("sparse_encoder", "SparseEncoder", "SparseRerankingEvaluator"),
            "multi_vector": ("multi_vector_encoder", "MultiVectorEncoder", "MultiVectorRerankingEvaluator"),
        }[head]
        import importlib

        evaluation = importlib.import_module(f"sentence_transformers.{module}.evaluation")
        expected = getattr(evaluation, evaluator)(rows, at_k=10)(getattr(st, model)(str(path), device="cpu"))
    for name in ("map", "mrr@10", "ndcg@10"):
        assert found[name] == pytest.approx(expected[name], abs=1e-9)


def test_pairs_and_triplets_of_a_finished_model(write_small, tmp_path, capsys):
    path, rng = write_small(tmp_path / "model", "sentence_embedding", initializer_range=0.5), np.random.default_rng(2)
    rows = [[words(rng, 2, 6) for _ in range(3)] for _ in range(20)]
    (tmp_path / "rows.tsv").write_text("a\tb\tc\tsame\n" + "".join("\t".join([*row, "1\n"]) for row in rows))
    vectors = [from_pretrained(path).encode([row[i] for row in rows]).astype(np.float64) for i in range(3)]
    command = ["evaluate", "--model", str(path), "--data", str(tmp_path / "rows.tsv"), "--text-column", "a", "--json",
               "--pair-column", "b", "--similarity", "euclidean"]  # fmt: skip
    assert main([*command, "--negative-column", "c"]) == 0
    near, far = (np.linalg.norm(vectors[0] - other, axis=1) for other in vectors[1:])
    found = json.loads(capsys.readouterr().out)
    assert found == {"triplet_accuracy": np.mean(near < far), "examples": 20}
    assert main([*command, "--label-column", "same", "--metrics", "accuracy,accuracy_threshold"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] == 1 and found["accuracy_threshold"] == pytest.approx(-max(near), rel=1e-5)
    assert main([*command[:-1], "cosines"]) == 2 and "similarity: 'cosines' is not known" in capsys.readouterr().err
