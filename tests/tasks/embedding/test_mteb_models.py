"""Models as those of mteb: small local tasks, run by mteb, give the scores of our own evaluation."""

import json
import sys

import numpy as np
import pytest

from bert_jax import evaluation
from bert_jax.data.finetuning.columns import Columns
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.tasks.embedding.mteb_models import MtebCrossEncoder, MtebEncoder, MtebSearch

WORDS = "cat dog bird fish house tree river stone red green blue old runs sat sleeps eats one two three time"


def texts(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS.split(), rng.integers(2, 7))) for _ in range(count)]


FIRST, SECOND = texts(40, 0), texts(40, 1)
SCORES = np.random.default_rng(2).uniform(0, 5, 40).round(3).tolist()


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("mteb")
    write_small(root / "embedding", "sentence_embedding", initializer_range=0.5)
    write_small(root / "reranker", "sequence_classification", initializer_range=0.5, num_labels=1, pooler=True)
    return root


class Named:
    """The metadata of a task."""

    def __init__(self, name="NFCorpus", kind="Retrieval"):
        self.name, self.type = name, kind


def batches(listed, size=7):
    return [{"text": listed[i : i + size]} for i in range(0, len(listed), size)]


def test_embeddings_are_those_of_the_pipeline(place):
    model = MtebEncoder(place / "embedding", batch_size=16)
    found = model.encode(batches(FIRST), task_metadata=Named(), batch_size=4)
    np.testing.assert_allclose(found, pipeline("sentence-embedding", place / "embedding")(FIRST), atol=1e-6)


def test_the_most_specific_prompt_is_used(place):
    prompts = {"NFCorpus-query": "one ", "NFCorpus": "two ", "Retrieval-document": "red ", "query": "blue "}
    model, plain = (MtebEncoder(place / "embedding", prompts=given) for given in (prompts, None))

    def embed(name, kind, prompt_type):
        return model.encode([{"text": ["the cat"]}], task_metadata=Named(name, kind), prompt_type=prompt_type)[0]

    for arguments, prompt in (
        (("NFCorpus", "Retrieval", "query"), "one "),
        (("NFCorpus", "Retrieval", "document"), "two "),
        (("SciFact", "Retrieval", "document"), "red "),
        (("SciFact", "Retrieval", "query"), "blue "),
        (("STS12", "STS", None), ""),
    ):
        expected = plain.encode([{"text": [f"{prompt}the cat"]}], task_metadata=Named())[0]
        np.testing.assert_allclose(embed(*arguments), expected, atol=1e-5)


def test_search_with_prompts_and_candidates(place):
    """mteb's data sets have columns by name, and rows in order."""

    class Rows(list):
        def __getitem__(self, name):
            return [row[name] for row in self]

    model = MtebSearch(place / "embedding", prompts={"NFCorpus-query": "one ", "document": "red "})
    model.index(Rows({"id": f"d{i}", "title": "tree", "text": text} for i, text in enumerate(SECOND)),
                task_metadata=Named())  # fmt: skip
    queries = Rows({"id": f"q{i}", "text": text} for i, text in enumerate(FIRST[:5]))
    found = model.search(queries, task_metadata=Named(), top_k=7)
    search = pipeline("search", place / "embedding")
    texts = [f"tree {text}" for text in SECOND]
    expected = search(FIRST[:5], texts, top_k=7, prompt="one ", corpus_prompt="red ")
    assert [list(row) for row in found.values()] == [[f"d{each['corpus_id']}" for each in row] for row in expected]
    candidates = {"q1": ["d3", "d9", "d5"], "q2": []}
    ranked = model.search(queries, task_metadata=Named(), top_k=2, top_ranked=candidates)
    (best,) = search(FIRST[1:2], [texts[i] for i in (3, 9, 5)], top_k=2, prompt="one ", corpus_prompt="red ")
    assert list(ranked) == ["q1"] and list(ranked["q1"]) == [candidates["q1"][each["corpus_id"]] for each in best]


def test_scores_of_a_cross_encoder(place):
    model = MtebCrossEncoder(place / "reranker")
    found = model.predict(batches(FIRST), batches(SECOND), task_metadata=Named())
    pairs = list(zip(FIRST, SECOND, strict=True))
    np.testing.assert_allclose(found, pipeline("rerank", place / "reranker").predict(pairs), atol=1e-6)


def test_without_mteb(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb.models", None)
    with pytest.raises(InputError, match=r"expected the package mteb: pip install .*\[mteb\]'; found"):
        MtebEncoder(place / "embedding").mteb_model_meta  # noqa: B018


# What mteb itself runs


@pytest.fixture(scope="module")
def mteb():
    return pytest.importorskip("mteb")


def similarity_task(mteb):
    from datasets import Dataset
    from mteb.tasks import STS12STS

    class Local(STS12STS):
        def load_data(self, *args, **kwargs):
            rows = {"sentence1": FIRST, "sentence2": SECOND, "score": SCORES}
            self.dataset, self.data_loaded = {"test": Dataset.from_dict(rows)}, True

    return Local()


def retrieval_task(mteb):
    from mteb.tasks import NFCorpus

    class Local(NFCorpus):
        def load_data(self, *args, **kwargs):
            self.queries = {"test": {f"q{i}": text for i, text in enumerate(FIRST[:10])}}
            self.corpus = {"test": {f"d{i}": {"title": "", "text": text} for i, text in enumerate(SECOND)}}
            self.relevant_docs = {"test": {f"q{i}": {f"d{i}": 1, f"d{2 * i + 3}": 1} for i in range(10)}}
            self.convert_v1_dataset_format_to_v2(None)
            self.data_loaded = True

    return Local()


def scores_of(mteb, model, task):
    (result,) = mteb.evaluate(model, task, cache=None, show_progress_bar=False, co2_tracker=False).task_results
    return result.scores["test"][0]


def test_mteb_scores_similarity_as_we_do(mteb, place, tmp_path):
    found = scores_of(mteb, MtebEncoder(place / "embedding"), similarity_task(mteb))
    rows = [
        {"sentence1": a, "sentence2": b, "score": s} for a, b, s in zip(FIRST, SECOND, SCORES, strict=True)
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ours = evaluation.evaluate(
        place / "embedding", str(tmp_path / "rows.jsonl"), Columns("sentence1", "sentence2", "score")
    )
    assert found["cosine_spearman"] == pytest.approx(ours["spearman"], abs=1e-6)
    assert found["spearman"] == pytest.approx(ours["spearman"], abs=1e-6)


def test_mteb_scores_retrieval_as_it_does_sentence_transformers(mteb, place):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(place / "embedding"), device="cpu")
    expected = scores_of(mteb, theirs, retrieval_task(mteb))
    found = scores_of(mteb, MtebEncoder(place / "embedding"), retrieval_task(mteb))
    for name in ("ndcg_at_10", "map_at_10", "recall_at_10", "mrr_at_10"):
        assert found[name] == pytest.approx(expected[name], abs=1e-5) and found[name] > 0


@pytest.mark.parametrize("head", ["sentence_embedding", "sparse_embedding", "multi_vector"])
def test_mteb_searches_with_embeddings_of_each_kind(mteb, head, write_small, tmp_path):
    from bert_jax.tasks.embedding.search.evaluation import evaluate_search

    path = write_small(tmp_path / "model", head, initializer_range=0.5)
    found = scores_of(mteb, MtebSearch(path), retrieval_task(mteb))
    (tmp_path / "set/qrels").mkdir(parents=True)
    judged = "".join(f"q{i}\td{j}\t1\n" for i in range(10) for j in (i, 2 * i + 3))
    (tmp_path / "set/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    for name, side, count in (("queries", FIRST, 10), ("corpus", SECOND, 40)):
        rows = [json.dumps({"_id": f"{name[0].replace('c', 'd')}{i}", "text": side[i]}) for i in range(count)]
        (tmp_path / f"set/{name}.jsonl").write_text("\n".join(rows))
    expected = evaluate_search(path, tmp_path / "set", metric_names=("ndcg@10", "map@10", "recall@10"))
    for name in ("ndcg", "map", "recall"):
        assert found[f"{name}_at_10"] == pytest.approx(expected[f"{name}@10"], abs=1e-5)  # mteb rounds
    assert MtebSearch(path).mteb_model_meta.model_type[0] in ("dense", "sparse", "late-interaction")


def test_the_metadata(mteb, place):
    from mteb.models import CrossEncoderProtocol, EncoderProtocol, SearchProtocol

    assert isinstance(MtebSearch(place / "embedding"), SearchProtocol)

    encoder, reranker = MtebEncoder(place / "embedding"), MtebCrossEncoder(place / "reranker", revision="3")
    assert isinstance(encoder, EncoderProtocol) and isinstance(reranker, CrossEncoderProtocol)
    meta = encoder.mteb_model_meta
    assert (meta.name, meta.embed_dim, meta.max_tokens) == ("bert_jax/embedding", 32, 32)
    assert meta.similarity_fn_name.value == "cosine" and reranker.mteb_model_meta.revision == "3"
