"""Retrieval sets evaluate models during training as `evaluate-search` evaluates the finished model."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import retrieval_sets
from retrieval_sets import small_recipe, write_pairs, write_set

from bert_jax import jobs, recipes, sharding
from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.data.retrieval_sets import read_retrieval_set, sampled_corpus
from bert_jax.errors import InputError
from bert_jax.inference.similarity import similarities
from bert_jax.jobs.fine_tuning import NOT_EVALUATED
from bert_jax.tasks.embedding.search import dev_evaluation
from bert_jax.tasks.embedding.search.dev_evaluation import _BestDocuments, encode_search_texts
from bert_jax.tasks.embedding.search.evaluation import evaluate_search
from bert_jax.training import train
from bert_jax.training.eval_loop import EvalLoop
from bert_jax.training.program import make_program

TASKS = ("sentence_embedding", "sparse_embedding", "multi_vector")
DEFAULTS = ["ndcg@10", "mrr@10", "map@100", "recall@100"]

pytest.importorskip("pytrec_eval", reason="needs pytrec-eval-terrier: pip install 'bert-jax[retrieval]'")


@pytest.fixture(scope="module")
def root(tmp_path_factory, write_small):
    """Two retrieval sets, training pairs, and a masked LM whose prompts differ for queries and documents."""
    root = tmp_path_factory.mktemp("dev_sets")
    write_set(root / "one", 60, 0)
    write_set(root / "two", 40, 1)
    write_pairs(root / "pairs.jsonl")
    write_small(root / "encoder", "masked_lm", initializer_range=0.5)
    return root


@pytest.fixture(scope="module")
def prompted(root, write_small):
    """The same with prompts, in the layout of sentence-transformers; tokens of prompts are not pooled."""
    folder = root / "prompted"
    write_small(folder, "sentence_embedding", initializer_range=0.5)
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    settings["prompts"] = {"query": "red bird ", "passage": "the tree "}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    pooling = json.loads((folder / "1_Pooling/config.json").read_text())
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling | {"include_prompt": False}))
    return folder


def scores_of(recipe, folder):
    """The scores of the initial model in the loop of a run, and the folder to which it is saved."""
    recipe = recipes.resolve(recipe)
    job, mesh = jobs.build(recipe), sharding.make_mesh(devices=jax.devices()[:1])
    ((name, evaluation),) = job.evaluations
    assert name == "" and NOT_EVALUATED not in job.notes
    program = make_program(recipe, job.task, job.init_params, job.num_steps, mesh)
    with jax.set_mesh(mesh):
        params = job.init_params(jax.random.key(0)) | (job.pretrained or {})
        scores = EvalLoop(evaluation, mesh, program.shardings).scores(params)
    job.save(folder, jax.tree.map(np.asarray, params))
    return scores, folder


@pytest.mark.parametrize("task", [*(pytest.param(task, marks=pytest.mark.slow) for task in TASKS[:2]), TASKS[2]])
def test_scores_are_those_of_the_saved_model(task, root, tmp_path, monkeypatch):
    monkeypatch.setattr(dev_evaluation, "_COMPARED", 7)  # several parts of queries and documents
    found, folder = scores_of(small_recipe(task, root), tmp_path / "model")
    sets = {name: evaluate_search(folder, root / name) for name in ("one", "two")}
    for metric in DEFAULTS:
        assert [found[f"{name}/{metric}"] for name in sets] == pytest.approx([row[metric] for row in sets.values()])
        assert found[metric] == pytest.approx(np.mean([row[metric] for row in sets.values()]))
    assert len(found) == 12 and 0 < found["ndcg@10"] < 1


def test_prompts_and_cut_vectors_are_those_of_search(root, prompted, tmp_path):
    changes = {"init_from": str(prompted), "data.dev": str(root / "one"), "data.metrics": ("ndcg@5", "precision@3")}
    found, folder = scores_of(small_recipe("sentence_embedding", root, **changes), tmp_path / "model")
    expected = evaluate_search(folder, root / "one", metric_names=("ndcg@5", "precision@3"))
    assert list(found) == ["ndcg@5", "precision@3"]
    assert found == pytest.approx({name: expected[name] for name in found})
    assert found != pytest.approx(
        evaluate_search(folder, root / "one", metric_names=tuple(found), prompt="", corpus_prompt=""), abs=1e-3
    )


def test_the_best_documents_do_not_depend_on_their_order():
    rng = np.random.default_rng(0)
    queries, documents = (rng.integers(-2, 3, (n, 4)).astype(np.float32) for n in (5, 300))  # many ties
    scores = similarities("dot", queries, documents)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :20]
    for parts in (1, 4):
        best = _BestDocuments(queries, 5, "dot", 20)
        for numbers in np.array_split(rng.permutation(300), parts):
            best.add(documents[numbers], numbers.tolist())
        ranked, numbers = best.sorted()
        np.testing.assert_array_equal(numbers, expected)
        np.testing.assert_array_equal(ranked, np.take_along_axis(scores, expected, 1))


def test_a_sample_has_all_judged_documents_and_is_the_same_each_time(root):
    dataset = read_retrieval_set(root / "one")
    judged = {name for row in dataset.judgements.values() for name in row}
    every = sampled_corpus(dataset)
    assert every.total == len(every.ids) == 60
    for count in (5, 50, 100):
        sample = sampled_corpus(dataset, count, seed=3)
        assert judged <= {*sample.ids} and len(sample.ids) == min(60, max(count, len(judged)))
        assert sample == sampled_corpus(dataset, count, seed=3) and sample.total == 60
        assert [*sample.ids] == [name for name in every.ids if name in {*sample.ids}]
    assert sampled_corpus(dataset, 50, seed=3) != sampled_corpus(dataset, 50, seed=4)


def test_notes_say_what_is_evaluated(root, tmp_path):
    folder = write_set(tmp_path / "odd", 40, 2)
    with (folder / "qrels/test.tsv").open("a") as file:
        file.write("q1\tgone\t1\nlast\td1\t0\n")
    with (folder / "queries.jsonl").open("a") as file:
        file.write('{"_id": "last", "text": "a cat"}\n')
    c = small_recipe("sentence_embedding", root, **{"data.dev": str(folder), "data.dev_documents": 3})
    notes = [note for note in jobs.build(recipes.resolve(c)).notes if note.startswith("odd: ")]
    assert notes[0].startswith("odd: 10 queries and ") and "documents of 40 (all judged ones, and a sample" in notes[0]
    assert [note.split()[1] for note in notes[1:]] == ["1", "1"]
    c.data.dev_documents = 0
    notes = [note for note in jobs.build(recipes.resolve(c)).notes if note.startswith("odd: ")]
    assert notes[0] == "odd: 10 queries and 40 documents"
    assert [note.split()[1] for note in notes[1:]] == ["1", "1", "1"]  # same id, missing, without a relevant document


def test_a_table_and_retrieval_sets_evaluate_together(root, tmp_path):
    changes = {"data.dev": f"{root / 'pairs.jsonl'}, {root / 'one'}", "data.metrics": ("mrr", "ndcg@10")}
    job = jobs.build(recipes.resolve(small_recipe("sentence_embedding", root, **changes)))
    (own, table), (name, retrieval) = job.evaluations
    assert own == name == "" and table.task.metrics == ("mrr",)
    assert retrieval.source.metric_names == ("ndcg@10",) and [*retrieval.source.sets] == ["one"]
    record = job.data()["dev"]
    assert record["rows"] == 32 + 9 + 60
    alone = jobs.build(recipes.resolve(small_recipe("sentence_embedding", root, **{"data.dev": str(root / "one")})))
    assert alone.data()["dev"]["rows"] == 69 and alone.data()["dev"]["labels"] != record["labels"]
    other = write_set(tmp_path / "one", 60, 0)
    moved = jobs.build(recipes.resolve(small_recipe("sentence_embedding", root, **{"data.dev": str(other)})))
    assert moved.data()["dev"] == alone.data()["dev"]
    lines = (other / "qrels/test.tsv").read_text().splitlines()
    (other / "qrels/test.tsv").write_text("\n".join([*lines[:-1], lines[-1][:-1] + "7"]) + "\n")
    changed = jobs.build(recipes.resolve(small_recipe("sentence_embedding", root, **{"data.dev": str(other)})))
    assert (
        changed.data()["dev"]["texts"] == alone.data()["dev"]["texts"] and changed.data()["dev"] != alone.data()["dev"]
    )


def test_metrics_of_search_need_no_data_where_nothing_is_evaluated(root):
    """As in a plan, which reads no evaluation data."""
    changes = {"data.dev": "", "data.metrics": ("ndcg@10", "mrr")}
    job = jobs.build(recipes.resolve(small_recipe("sentence_embedding", root, **changes)))
    assert job.evaluations == () and job.task.metrics == ("mrr",) and NOT_EVALUATED in job.notes


def test_what_does_not_fit_is_said(root, tmp_path):
    pairs, one = root / "pairs.jsonl", root / "one"
    write_set(tmp_path / "one", 20, 2)
    for changes, message in (
        ({"data.dev": f"{pairs},{pairs}"}, "config.data.dev: expected one table, and directories of retrieval sets"),
        ({"data.dev": f"{one},{tmp_path / 'one'}"}, "config.data.dev: expected directories of different names"),
        (
            {"data.dev": str(one), "data.metrics": ("mrr",)},
            "expected metrics of search, such as ndcg@10, as data.dev has",
        ),
        (
            {"data.dev": str(one), "data.metrics": ("ndcg@x",)},
            "config.data.metrics: expected ndcg@K, .* found 'ndcg@x'",
        ),
        ({"data.dev": str(pairs), "data.metrics": ("ndcg@10",)}, "'ndcg@10' is not a metric of"),
        ({"data.dev": str(one), "data.dev_split": "dev"}, r"one: expected qrels/dev\.tsv"),
        ({"data.dev": str(tmp_path)}, r"expected qrels/test\.tsv"),
    ):
        with pytest.raises(InputError, match=message):
            jobs.build(recipes.resolve(small_recipe("sentence_embedding", root, **changes)))


def test_texts_of_late_interaction_are_filled_up(root, tiny_tokenizer):
    from bert_jax.conversion.multi_vector_settings import MultiVectorSettings, QueryExpansion
    from bert_jax.conversion.text_settings import TextSettings

    for attended in (False, True):
        of_tokens = MultiVectorSettings(expansion=QueryExpansion(8, attended=attended))
        settings = TextSettings(max_length=16, multi_vector=of_tokens)
        texts = encode_search_texts(
            tiny_tokenizer, ["a cat", "the dog sat"], settings, BertConfig.named("tiny"), "multi_vector", "query"
        )
        batch = texts.pad(np.array([1, -1]), 8, tiny_tokenizer.pad_id)
        assert texts.lengths.tolist() == [8, 8] and batch["query_scored"].sum(1).tolist() == [8, 0]
        assert (batch["input_ids"][0] == tiny_tokenizer.mask_id).sum() == 3
        assert batch["attention_mask"].sum(1).tolist() == [8 if attended else 5, 0]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_end_of_training_is_evaluate_search_on_any_number_of_devices(task, root, tmp_path, on_eight_devices):
    settings = {"best_metric": "ndcg@10", "eval_every": 2}
    found = train(small_recipe(task, root, **settings), tmp_path / "run", progress=False)
    sets = [evaluate_search(tmp_path / "run/model", root / name) for name in ("one", "two")]
    last = train(small_recipe(task, root), tmp_path / "last", progress=False)
    spread = on_eight_devices(Path(retrieval_sets.__file__), task, str(root), str(tmp_path / "eight"))
    for metric in DEFAULTS:
        assert found[f"eval/{metric}"] == pytest.approx(np.mean([row[metric] for row in sets]), abs=1e-12)
        assert spread[f"eval/{metric}"] == pytest.approx(last[f"eval/{metric}"], abs=1e-12)


@pytest.mark.slow
def test_a_run_stops_early_by_a_metric_of_search_and_resumes(root, tmp_path, capsys):
    settings = {"best_metric": "one/ndcg@10", "eval_every": 1, "stop_after": 1, "num_steps": 30,
                "optimizer.learning_rate": 0.5}  # fmt: skip
    results = train(small_recipe("sentence_embedding", root, **settings), tmp_path / "run", progress=False)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    values = [line["eval/one/ndcg@10"] for line in lines if "eval/one/ndcg@10" in line]
    assert len(values) < 30 and values[-1] < max(values) == results["eval/one/ndcg@10"]
    folder = write_set(tmp_path / "one", 60, 3)
    (tmp_path / "run/model").rename(tmp_path / "model")
    moved = settings | {"data.dev": f"{folder},{root / 'two'}"}
    with pytest.raises(InputError, match="dev: the run began with other texts"):
        train(small_recipe("sentence_embedding", root, **moved), tmp_path / "run", progress=False)


def test_the_command_line_takes_several_sets(root, tmp_path, capsys):
    words = ["config", "sentence_embedding", f"--config.data.dev={root / 'one'},{root / 'two'}"]
    assert main(words) == 0 and f"{root / 'one'},{root / 'two'}" in capsys.readouterr().out
