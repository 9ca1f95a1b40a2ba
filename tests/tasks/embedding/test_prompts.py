"""Prompts of queries and documents in training: what is typed in, what is pooled, and what the finished model has."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import evaluation, jobs, recipes
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.modeling import Bert, Compute
from bert_jax.tasks.embedding.prompts import role_prompts, with_recipe_prompts
from bert_jax.training.loop import train

WORDS = ("the", "cat", "dog", "a", "red", "house", "runs", "is", "to", "river", "sat", "one", "blue", "tree")
QUERY, DOCUMENT = "the dog: ", "one two "
PREFIXES = {"data.query_prefix": QUERY, "data.document_prefix": DOCUMENT}
NAMES = ("query", "positive", "negative")


def table(count, seed=0):
    rng = np.random.default_rng(seed)
    rows = [{name: " ".join(rng.choice(WORDS, rng.integers(2, 7))) for name in NAMES} for _ in range(count)]
    return [row | {"label": i % 2} for i, row in enumerate(rows)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """Models to start from, a table, and the same table with the prompts typed in."""
    root = tmp_path_factory.mktemp("prompts")
    write_small(root / "encoder", initializer_range=0.3)
    write_small(root / "masked", "masked_lm", initializer_range=0.3)
    rows = table(24)
    write(root / "train.jsonl", rows)
    prompts = dict(zip(NAMES, (QUERY, DOCUMENT, DOCUMENT), strict=True))
    typed = [row | {name: text + row[name] for name, text in prompts.items()} for row in rows]
    write(root / "typed.jsonl", typed)
    write(root / "queries.jsonl", [row | {"query": QUERY + row["query"]} for row in rows])
    return root


TASKS = {
    "sentence_embedding": ("encoder", {"data.pair_column": "positive", "data.negative_column": "negative"}),
    "sparse_embedding": ("masked", {"data.pair_column": "positive", "data.negative_column": "negative"}),
    "multi_vector": ("encoder", {"data.pair_column": "positive", "data.negative_column": "negative"}),
    "reranking": ("encoder", {"data.pair_column": "positive"}),
}


def recipe(place, task, **changes):
    c = recipes.RECIPES[task]()
    start, columns = TASKS[task]
    settings = {"init_from": str(place / start), "data.train": str(place / "train.jsonl"), "global_batch_size": 8,
                "data.text_column": "query", "data.max_seq_length": 16, "data.length_buckets": (16,), "num_steps": 4,
                "num_epochs": 0.0, "optimizer.learning_rate": 2e-3, "data.validation_split": 0.25}  # fmt: skip
    c.update_from_flattened_dict(settings | columns | changes)
    return c


def job(place, task, **changes):
    return jobs.build(recipes.resolve(recipe(place, task, **changes)))


def saved(made, directory):
    """Write the model of a job before its first step; return its parameters."""
    params = jax.device_get(jax.jit(made.init_params)(jax.random.key(0)))
    made.save(directory, jax.tree.map(np.asarray, params | made.pretrained))
    return params | made.pretrained


def settings_of(directory):
    return json.loads((directory / "config_sentence_transformers.json").read_text())


@pytest.mark.parametrize("task", TASKS)
def test_training_reads_what_it_would_if_prompts_were_typed_in(place, task):
    """Batches and tasks are equal, so all that follows is, bitwise; a reranker has no prompt before documents."""
    typed = "queries.jsonl" if task == "reranking" else "typed.jsonl"
    prefixes = {"data.query_prefix": QUERY} if task == "reranking" else PREFIXES
    made = job(place, task, **prefixes)
    other = job(place, task, **{"data.train": str(place / typed)})
    assert made.task == other.task
    batches = ((each.train_source.batch(1), each.eval_source.batch(0)) for each in (made, other))
    for a, b in zip(*batches, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
    plain = job(place, task).train_source.batch(0)
    assert any(not np.array_equal(plain[name], a) for name, a in made.train_source.batch(0).items())


@pytest.mark.parametrize("pooled", [pytest.param(True, marks=pytest.mark.slow), False])
def test_the_finished_model_has_the_prompts(place, tmp_path, pooled):
    """Evaluation in training, our inference and sentence-transformers' agree, also where prompts of 3 and of 2 tokens
    are not pooled."""
    made = job(place, "sentence_embedding", **PREFIXES, **{"data.pool_prompts": pooled})
    params, directory = saved(made, tmp_path / "model"), tmp_path / "model"
    assert settings_of(directory)["prompts"] == {"query": QUERY, "document": DOCUMENT}
    assert settings_of(directory)["default_prompt_name"] is None
    model, batch = from_pretrained(directory), made.eval_source.batch(0)
    assert model.settings.include_prompt == pooled and ("pooling_mask" in batch) != pooled
    real = batch["example_weights"] > 0
    found = np.asarray(jax.jit(made.task.predict)(params, batch)["embeddings"])[real]
    tokens = [model.tokenizer.decode(row, skip_special_tokens=True) for row in batch["input_ids"][real][:, 0]]
    rows = {row["query"]: row for row in table(24)}
    chosen = [rows[text.removeprefix("the dog : ")] for text in tokens]
    ours = [model.encode_query([row["query"] for row in chosen])]
    ours += [model.encode_document([row[name] for row in chosen]) for name in NAMES[1:]]
    np.testing.assert_allclose(found, np.stack(ours, axis=1), atol=1e-6)
    score = pipeline("search", directory)("red river", corpus=[chosen[0]["positive"]])[0]["score"]
    expected = model.encode_query("red river") @ model.encode_document(chosen[0]["positive"])
    assert score == pytest.approx(float(expected), abs=1e-6)
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(directory), device="cpu")
    np.testing.assert_allclose(theirs.encode_query([row["query"] for row in chosen]), ours[0], atol=1e-5)
    np.testing.assert_allclose(theirs.encode_document([row["positive"] for row in chosen]), ours[1], atol=1e-5)
    assert theirs[1].include_prompt == pooled


def embedded(model, params, ids, mask, **options):
    run = jax.jit(lambda p: model.apply(p, ids, mask, **options).sentence_embedding)
    return np.asarray(run(params))


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls+weightedmean", "cls", "mean", "lasttoken+max"])
def test_a_mask_pools_as_the_config_does(place, pooling):
    """Bitwise, so that vectors of training with two prompts are those of inference with one of them."""
    loaded = load_pretrained(place / "encoder", "sentence_embedding")
    ids = np.random.default_rng(0).integers(5, 40, (3, 9)).astype(np.int32)
    attention = (np.arange(9) < np.array([[9], [6], [3]])).astype(np.int32)
    skips = np.array([3, 0, 2])
    mask = np.where(np.arange(9) < skips[:, None], 0, attention)
    masked = Bert(loaded.config.replace(pooling=pooling), "sentence_embedding", Compute(layers="unroll"))
    # Without the last hidden state, the last of unrolled layers computes only the positions that are read.
    found = embedded(masked, loaded.params, ids, attention, pooling_mask=mask, output_last_hidden_state=False)
    for row, skip in enumerate(skips.tolist()):
        model = dataclasses.replace(masked, config=masked.config.replace(pooling_skip=skip))
        expected = embedded(model, loaded.params, ids, attention)
        np.testing.assert_array_equal(found[row], expected[row])
        states = jnp.asarray(np.random.default_rng(1).normal(size=(3, 9, 32)), jnp.float32)
        earlier = [
            masked.embed_hidden_state(loaded.params, states, attention, mask),
            model.embed_hidden_state(loaded.params, states, attention),
        ]
        np.testing.assert_array_equal(earlier[0][row], earlier[1][row])


@pytest.mark.slow
@pytest.mark.parametrize("task", ["sparse_embedding", "multi_vector"])
def test_other_embeddings_have_the_prompts(place, tmp_path, task):
    saved(job(place, task, **PREFIXES), tmp_path / "model")
    model, texts = from_pretrained(tmp_path / "model"), ["a cat sat", "the river is blue"]
    assert role_prompts(model.settings) == (QUERY, DOCUMENT)
    library = pytest.importorskip("sentence_transformers")
    kind = {"sparse_embedding": "SparseEncoder", "multi_vector": "MultiVectorEncoder"}[task]
    theirs = getattr(library, kind)(str(tmp_path / "model"), device="cpu")
    for name in ("encode_query", "encode_document"):
        ours, expected = getattr(model, name)(texts), getattr(theirs, name)(texts)
        if task == "sparse_embedding":
            np.testing.assert_allclose(ours.toarray(), expected.to_dense().numpy(), atol=1e-5)
        else:
            for a, b in zip(ours, expected, strict=True):
                np.testing.assert_allclose(a, np.asarray(b), atol=1e-5)


@pytest.mark.slow
def test_a_reranker_has_the_prompt(place, tmp_path):
    long = {"data.max_seq_length": 24, "data.length_buckets": (24,)}
    made = job(place, "reranking", **{"data.query_prefix": QUERY}, **long)
    params = saved(made, tmp_path / "model")
    assert settings_of(tmp_path / "model")["default_prompt_name"] == "query"
    pairs = [(row["query"], row["positive"]) for row in table(24)]
    ours, batch = pipeline("rerank", tmp_path / "model"), made.train_source.batch(0)
    assert np.abs(ours.predict(pairs) - ours.predict(pairs, prompt="")).max() > 1e-4
    logits = np.asarray(jax.jit(made.task.predict)(params, batch)["logits"])[:, 0]
    rows = [row for row in table(24) if made.tokenizer(QUERY + row["query"], row["positive"])["input_ids"][0].tolist()
            in [ids[ids > 0].tolist() for ids in batch["input_ids"][:, 0]]]  # fmt: skip
    scores = ours.predict([(row["query"], row["positive"]) for row in rows])
    np.testing.assert_allclose(np.sort(scores), np.sort(1 / (1 + np.exp(-logits))), atol=1e-6)
    theirs = pytest.importorskip("sentence_transformers").CrossEncoder(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(theirs.predict(pairs), ours.predict(pairs), atol=1e-5)
    again = job(place, "reranking", init_from=str(tmp_path / "model"), keep_head=True, **long)
    for name, array in again.train_source.batch(0).items():
        np.testing.assert_array_equal(array, batch[name])


def with_prompts(directory, prompts, default=""):
    """Write prompts into the files of a model of sentence embeddings."""
    path = directory / "config_sentence_transformers.json"
    described = json.loads(path.read_text()) | {"prompts": prompts, "default_prompt_name": default or None}
    path.write_text(json.dumps(described))


def texts_of(made, source="train_source"):
    """The texts of the first row of a batch, as the model reads them."""
    row = getattr(made, source).batch(0)["input_ids"][0]
    return [made.tokenizer.decode(ids, skip_special_tokens=True) for ids in row]


def test_without_keys_the_prompts_are_those_of_the_model(place, tmp_path, write_small):
    """What `search` puts before texts; before texts that are compared as equals, the default prompt or none."""
    directory = write_small(tmp_path / "model", "sentence_embedding", initializer_range=0.3)
    start = {"init_from": str(directory)}
    with_prompts(directory, {"query": "the dog: ", "passage": "one two "})
    made = job(place, "sentence_embedding", **start)
    assert [text.split()[0] for text in texts_of(made)] == ["the", "one", "one"]
    assert texts_of(made)[0].startswith("the dog : ") and "prompts: 'the dog: ' for queries" in made.notes[-1]
    symmetric = {"data.loss": "cosine", "data.label_column": "label", "data.negative_column": ""}
    assert not texts_of(job(place, "sentence_embedding", **start, **symmetric))[0].startswith("the dog :")
    labelled = job(place, "sentence_embedding", **start, **{"data.label_column": "label"})
    assert texts_of(labelled)[0].startswith("the dog :")
    assert not texts_of(labelled, "eval_source")[0].startswith("the dog :")
    with_prompts(directory, {"query": "the dog: ", "passage": "one two ", "both": "blue: "}, "both")
    assert all(text.startswith("blue : ") for text in texts_of(job(place, "sentence_embedding", **start)))


def test_the_prompt_of_a_key_is_that_of_its_role_alone():
    data = recipes.sentence_embedding().data
    of_model = TextSettings(prompts=(("passage", "p: "), ("other", "o: ")), default_prompt="other")
    assert with_recipe_prompts(of_model, data) == of_model
    data.query_prefix = "q: "
    settings = with_recipe_prompts(of_model, data)
    assert dict(settings.prompts) == {"passage": "p: ", "other": "o: ", "query": "q: ", "document": "p: "}
    assert settings.default_prompt == "" and role_prompts(settings) == ("q: ", "p: ")
    data.query_prefix, data.document_prefix, data.pool_prompts = None, "", False
    settings = with_recipe_prompts(of_model, data)
    assert role_prompts(settings) == ("o: ", "") and not settings.include_prompt
    assert [settings.prompt_of_task(role) for role in ("query", "document")] == ["o: ", ""]


@pytest.mark.slow
def test_a_guide_and_a_teacher_read_their_own_prompts(place, tmp_path, write_small):
    """They do not pool them, and have another vocabulary size of prompts than the model to train."""
    other = write_small(tmp_path / "other", "sentence_embedding", seed=3, hidden_size=16, initializer_range=0.3)
    with_prompts(other, {"query": "is a cat: ", "document": "blue "})
    pooling = other / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"include_prompt": False}))
    model, rows = from_pretrained(other), {row["query"]: row for row in table(24)}
    guide = {"data.guide": str(other), "data.guide_cache": str(tmp_path / "cache")}
    teacher = {"distillation.teacher": str(other), "distillation.cache": str(tmp_path / "cache"), "data.loss": "none",
               "distillation.weights.embeddings": 1.0, "data.train_columns": NAMES, "data.negative_column": "",
               "data.validation_split": 0.0}  # fmt: skip
    for keys, name in ((guide, "guide_embeddings"), (teacher, "teacher_outputs")):
        made = job(place, "sentence_embedding", **PREFIXES, **{"data.pool_prompts": False}, **keys)
        batch = made.train_source.batch(0)
        query = made.tokenizer.decode(batch["input_ids"][0, 0], skip_special_tokens=True).removeprefix("the dog : ")
        expected = [model.encode_query(query), *model.encode_document([rows[query][each] for each in NAMES[1:]])]
        np.testing.assert_allclose(batch[name][0], expected, atol=1e-5)
        assert batch["pooling_mask"][0, :, :5].tolist() == [[0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]


@pytest.mark.parametrize("name", ["query_prefix", "document_prefix"])
def test_texts_without_a_role_have_no_prompts(place, name):
    with pytest.raises(InputError, match=rf"data\.{name}: expected no value for loss 'simcse', whose .*, found 'a '"):
        job(place, "sentence_embedding", **{"data.validation_split": 0.0, "data.loss": "simcse", f"data.{name}": "a "})


@pytest.mark.slow
def test_a_teacher_in_each_step_must_have_the_prompts(place, tmp_path, write_small):
    teacher = write_small(tmp_path / "teacher", "sentence_embedding", seed=3)
    keys = {"distillation.teacher": str(teacher), "distillation.weights.embeddings": 1.0}
    keys |= PREFIXES | {"data.pool_prompts": False}
    with pytest.raises(InputError, match=r"expected the student's prompts \('the dog: ', 'one two '\), as both read"):
        job(place, "sentence_embedding", **keys)
    with_prompts(teacher, {"query": QUERY, "document": DOCUMENT})
    results = train(recipe(place, "sentence_embedding", **keys), tmp_path / "run", progress=False)
    assert np.isfinite(results["eval/mrr"])


@pytest.mark.slow
def test_evaluate_puts_the_prompts_that_training_did(place, tmp_path):
    labelled = {"data.label_column": "label", "data.dev": str(place / "train.jsonl"), "data.validation_split": 0.0}
    keys = PREFIXES | {"data.pool_prompts": False, "data.loss": "cosine", "data.negative_column": ""} | labelled
    results = train(recipe(place, "sentence_embedding", **keys), tmp_path / "run", progress=False)
    model = tmp_path / "run" / "model"
    scores = evaluation.evaluate(model, str(place / "train.jsonl"))
    assert scores["spearman"] == pytest.approx(results["eval/spearman"], abs=1e-6)
    assert evaluation.evaluate(model, str(place / "train.jsonl"), prompt="")["spearman"] != scores["spearman"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["sentence_embedding", "sparse_embedding", "reranking"])
def test_a_resumed_run_has_the_same_bits(place, tmp_path, task):
    """With typed prompts, the run has the same bits too."""
    keys = PREFIXES if task != "reranking" else {"data.query_prefix": QUERY}
    typed = {"data.train": str(place / ("queries.jsonl" if task == "reranking" else "typed.jsonl"))}
    each = {"checkpoint_every": 2, "keep_checkpoints": 3}
    unpooled = {"data.pool_prompts": False} if task == "sentence_embedding" else {}
    train(recipe(place, task, **keys, **each, **unpooled), tmp_path / "run", progress=False)
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "checkpoints" / "4")
    shutil.rmtree(tmp_path / "again" / "model")
    train(recipe(place, task, **keys, **each, **unpooled), tmp_path / "again", progress=False)
    others = [tmp_path / "again"]
    if not unpooled:
        train(recipe(place, task, **typed), tmp_path / "typed", progress=False)
        others.append(tmp_path / "typed")
    ours = load_pretrained(tmp_path / "run" / "model").params
    for other in others:
        theirs = load_pretrained(other / "model").params
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
