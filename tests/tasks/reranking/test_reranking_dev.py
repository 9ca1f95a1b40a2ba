"""Retrieval sets evaluate rerankers during training, as `evaluate-search --reranker` evaluates the finished model."""

import json

import jax
import numpy as np
import pytest

from bert_jax import jobs, recipes, sharding
from bert_jax.data.retrieval_sets import read_run
from bert_jax.errors import InputError
from bert_jax.training.eval_loop import EvalLoop
from bert_jax.training.program import make_program

evaluation = pytest.importorskip("bert_jax.tasks.embedding.search.evaluation")
pytest.importorskip("pytrec_eval", reason="needs pytrec-eval-terrier: pip install 'bert-jax[retrieval]'")

WORDS = ["cat", "dog", "tree", "house", "bird", "red", "big", "young", "the", "a"]


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def root(tmp_path_factory, write_small):
    """A retrieval set, a run of a first stage, training rows, and the models of both stages."""
    root, rng = tmp_path_factory.mktemp("reranking_dev"), np.random.default_rng(0)

    def words(most):
        return " ".join(rng.choice(WORDS, rng.integers(2, most)))

    (root / "set/qrels").mkdir(parents=True)
    lines(root / "set/corpus.jsonl", [{"_id": f"d{i}", "text": words(12)} for i in range(40)])
    lines(root / "set/queries.jsonl", [{"_id": f"q{i}", "text": words(5)} for i in range(6)])
    rows = [f"q{i}\td{j}\t{rng.integers(0, 3)}\n" for i in range(6) for j in rng.permutation(40)[:8]]
    (root / "set/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    lines(root / "train.jsonl", [{"query": words(5), "passage": words(9), "label": i % 2} for i in range(16)])
    write_small(root / "encoder", "sequence_classification", initializer_range=0.5, num_labels=1, pooler=True)
    first = write_small(root / "first", "sentence_embedding", initializer_range=0.5)
    evaluation.evaluate_search(first, root / "set", top_k=12, run_file=root / "run.txt")
    return root


def small_recipe(root, **changes):
    c = recipes.RECIPES["reranking"]()
    c.update_from_flattened_dict({
        "init_from": str(root / "encoder"), "keep_head": True, "data.train": str(root / "train.jsonl"),
        "data.dev": str(root / "set"), "data.dev_run": str(root / "run.txt"), "data.max_seq_length": 16,
        "data.dev_candidates": 10, "global_batch_size": 8, "num_epochs": 0.0, "num_steps": 2,
    })  # fmt: skip
    c.update_from_flattened_dict(changes)
    return recipes.resolve(c)


def test_scores_are_those_of_the_saved_model(root, tmp_path):
    recipe = small_recipe(root)
    job, mesh = jobs.build(recipe), sharding.make_mesh(devices=jax.devices()[:1])
    ((name, held_out),) = job.evaluations
    assert name == "" and job.notes[-1].startswith("set: 6 queries and 60 candidates, with ")
    program = make_program(recipe, job.task, job.init_params, job.num_steps, mesh)
    with jax.set_mesh(mesh):
        params = job.init_params(jax.random.key(0)) | job.pretrained
        found = EvalLoop(held_out, mesh, program.shardings).scores(params)
    job.save(tmp_path / "model", jax.tree.map(np.asarray, params))
    options = {"top_k": 12, "reranker": tmp_path / "model", "rerank_top_k": 10}
    expected = evaluation.evaluate_search(root / "first", root / "set", **options)
    assert found == pytest.approx({name: expected[name] for name in found}) and list(found) == list(expected)[:4]
    assert expected != pytest.approx(evaluation.evaluate_search(root / "first", root / "set", top_k=12))


def test_a_query_without_candidates_counts_as_not_found(root, tmp_path):
    kept = [line for line in (root / "run.txt").read_text().splitlines() if not line.startswith("q0 ")]
    (tmp_path / "run.txt").write_text("\n".join(kept))
    job = jobs.build(small_recipe(root, **{"data.dev_run": str(tmp_path / "run.txt")}))
    assert job.notes[-1] == "set: 1 queries have no candidates, so their metrics are 0"
    source = job.evaluations[0][1].source
    batches = [source.batch(i) for i in range(source.num_batches)]
    ones = source.score(({"logits": np.ones((len(b["labels"]), 1))}, b) for b in batches)
    assert 0 < ones["recall@100"] < 1


def test_runs_that_do_not_fit(root, tmp_path):
    bad = tmp_path / "bad.txt"
    for content, message in (
        ("q0 Q0 d1 1 0.5\n", r"bad\.txt: line 1: expected query, Q0, document, rank, score and tag"),
        ("q0 Q0 d1 1 0.5 a\nq0 Q0 d1 2 0.4 a\n", "expected each document of query 'q0' once"),
        ("q0 Q0 other 1 0.5 a\n", r"expected documents of .*set, found 'other'"),
        ("other Q0 d1 1 0.5 a\n", "expected documents for the queries of"),
    ):
        bad.write_text(content)
        with pytest.raises(InputError, match=message):
            jobs.build(small_recipe(root, **{"data.dev_run": str(bad)}))
    with pytest.raises(InputError, match=r"config\.data\.dev_run: expected a run with candidates for each of the 1"):
        jobs.build(small_recipe(root, **{"data.dev_run": ""}))
    bad.write_text("q Q0 b 2 0.5 a\nq Q0 a 1 0.5 a\n\n")
    assert read_run(bad) == {"q": {"a": 0.5, "b": 0.5}} and list(read_run(bad)["q"]) == ["a", "b"]
