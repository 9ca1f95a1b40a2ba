"""Sparse embeddings whose queries need no encoder, against a Router with a SparseStaticEmbedding."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.conversion.huggingface import convert, load_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.modeling import Bert
from bert_jax.tasks.embedding.sparse.static_queries import inverse_document_frequencies, weigh_tokens
from bert_jax.tasks.embedding.sparse.task import SparseEmbeddingTask
from bert_jax.tokenization import load_tokenizer
from bert_jax.training import train

TEXTS = ["the cat sat on a mat", "Red RIVER the the", "a river of stone " * 9, "x", "", "[MASK] the"]
PROMPTS = {"query": "the dog: ", "document": "one two "}


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory, write_small):
    return write_small(tmp_path_factory.mktemp("masked_lm") / "model", "masked_lm", initializer_range=0.5)


@pytest.fixture(scope="module")
def library():
    pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    return pytest.importorskip("sentence_transformers", reason="the oracle; installed on Python 3.11 only")


def saved(library, masked_lm, path, default="document", frozen=True, activation="log1p_relu", **options):
    """An inference-free SparseEncoder as sentence-transformers writes it, and the library's own model of it."""
    import torch
    from sentence_transformers.sparse_encoder import modules

    encoder = modules.MLMTransformer(str(masked_lm))
    size = len(encoder.tokenizer.get_vocab())
    weights = torch.tensor(np.random.default_rng(0).uniform(-3, 3, size).astype(np.float32))
    weights[5:9] = 0
    table = modules.SparseStaticEmbedding(encoder.tokenizer, weights, frozen=frozen)
    router = modules.Router.for_query_document(
        [table], [encoder, modules.SpladePooling("max", activation)], default_route=default
    )
    library.SparseEncoder(modules=[router], device="cpu", **options).save(str(path))
    return path, library.SparseEncoder(str(path), device="cpu")


def dense(vectors):
    return vectors.toarray() if hasattr(vectors, "toarray") else vectors.to_dense().numpy()


def check(model, theirs, **options):
    for name in ("encode_query", "encode_document", "encode"):
        expected = dense(getattr(theirs, name)(TEXTS, **options))
        found = getattr(model, name)(TEXTS, **options)
        assert np.abs(dense(found) - expected).max() < 1e-5 * expected.max(), name
    return dense(model.encode_query(TEXTS, **options))


@pytest.mark.oracle
@pytest.mark.parametrize("default", ["document", pytest.param("query", marks=pytest.mark.slow)])
def test_vectors_are_those_of_sentence_transformers_in_both_directions(library, masked_lm, tmp_path, default):
    path, theirs = saved(library, masked_lm, tmp_path / "model", default, default == "document", prompts=PROMPTS)
    model = from_pretrained(path)
    assert model.head == "sparse_embedding" and model.missing == ()
    assert model.config.query_weights == ("frozen" if default == "document" else "trainable")
    vectors = check(model, theirs)
    np.testing.assert_array_equal(vectors, dense(theirs.encode_query(TEXTS)))  # weights of the file, not computed
    check(model, theirs, max_active_dims=2)
    convert(path, tmp_path / "converted", load_tokenizer)
    model.save_pretrained(tmp_path / "again")
    before = load_pretrained(path)
    for written in ("converted", "again"):
        after = load_pretrained(tmp_path / written)
        assert after.config == before.config and after.settings == before.settings and not after.unused
        again = library.SparseEncoder(str(tmp_path / written), device="cpu")
        check(model, again)
        assert again[0].sub_modules["query"][0].frozen is (default == "document")
        assert again[0].default_route == default
    search = pipeline("search", path)
    best = search("the cat", ["a dog", "the cat sat", "of stone"], top_k=3)
    scores = theirs.similarity(theirs.encode_query("the cat"), theirs.encode_document([b["text"] for b in best]))
    np.testing.assert_allclose([b["score"] for b in best], np.asarray(scores).ravel(), rtol=1e-5, atol=1e-4)
    with pytest.raises(InputError, match="expected at most 32 tokens, found 1803"):
        pipeline("embed", path)("the cat " * 900, False, task="query")


def test_weights_of_a_json_file_and_what_is_refused(library, masked_lm, tmp_path):
    path, _ = saved(library, masked_lm, tmp_path / "model")
    folder = path / "query_0_SparseStaticEmbedding"
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps({"frozen": True, "path": str(folder / "idf.json")}))
    (folder / "idf.json").write_text(json.dumps({"the": 0.5, "cat": 2.0}))
    theirs = library.SparseEncoder(str(path), device="cpu")
    np.testing.assert_array_equal(dense(from_pretrained(path).encode_query(TEXTS)), dense(theirs.encode_query(TEXTS)))
    for content, message in (
        ({"nosuchtoken": 1}, "expected tokens of the model's vocabulary, found 'nosuchtoken'"),
        ({"the": "x"}, "'the': expected a weight, found 'x'"),
    ):
        (folder / "idf.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=message):
            load_pretrained(path)
    (folder / "idf.json").unlink()
    with pytest.raises(InputError, match=r"path: expected idf.json in .*, found none"):
        load_pretrained(path)
    router = json.loads((path / "router_config.json").read_text())
    for change, message in (
        ({"structure": {"query": router["structure"]["query"]}}, "expected a route document, found query"),
        ({"structure": {"query": ["../x"]}, "types": {"../x": "y"}}, "leads out of the directory"),
        ({"structure": {"query": ["other"]}}, "expected lists of modules that types names"),
        ({"structure": router["structure"] | {"query": router["structure"]["document"][1:]}},
         "expected a SparseStaticEmbedding as the route of queries, found SpladePooling"),
        ({"parameters": {"route_mappings": {"query": "x"}}}, "route_mappings: expected .task, modality. and a route"),
        ({"parameters": {"default_route": "x"}}, "default_route: expected the route of queries or of documents"),
    ):  # fmt: skip
        (path / "router_config.json").write_text(json.dumps(router | change))
        with pytest.raises(InputError, match=message):
            load_pretrained(path)
    mapped = {"route_mappings": {"('query', None)": "query", "(None, 'text')": "document"}}
    (path / "router_config.json").write_text(json.dumps(router | {"parameters": mapped}))
    (folder / "idf.json").write_text(json.dumps({"the": 0.5, "cat": 2.0}))
    theirs = library.SparseEncoder(str(path), device="cpu")
    assert (dense(from_pretrained(path).encode_query(TEXTS)) == dense(theirs.encode_query(TEXTS))).all()
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"] = None
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match="expected the tokenizer of the documents, found another one"):
        load_pretrained(path)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, masked_lm):
    place = tmp_path_factory.mktemp("queries")
    words = ["cat", "dog", "bird", "fish", "house", "tree", "river", "stone"]
    rows = [{"query": f"the {w}", "document": f"a big {w} sat on a {w}"} for w in words * 4]
    (place / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    c = recipes.sparse_embedding()
    c.update_from_flattened_dict({
        "init_from": str(masked_lm), "data.train": str(place / "train.jsonl"), "data.validation_split": 0.25,
        "data.text_column": "query", "data.pair_column": "document", "data.max_seq_length": 16,
        "global_batch_size": 8, "num_steps": 3, "optimizer.learning_rate": 3e-3, "data.length_buckets": (16,),
        "data.query_weights": "frozen", "data.query_idf": "documents",
    })  # fmt: skip
    return c


def weights_of(path):
    return np.asarray(load_pretrained(path).params["query_weights"]["weight"])


@pytest.mark.parametrize("kind", [pytest.param("frozen", marks=pytest.mark.slow), "trainable"])
def test_training_from_frequencies(library, recipe, tmp_path, kind):
    c = recipe.copy_and_resolve_references()
    c.data.query_weights = kind
    first = jobs.build(recipes.resolve(c)).pretrained["query_weights"]["weight"]
    train(c, tmp_path / "run", progress=False)
    model = from_pretrained(tmp_path / "run" / "model")
    tokenizer, trained = model.tokenizer, weights_of(tmp_path / "run" / "model")
    assert first[tokenizer.token_to_id("cat")] == pytest.approx(np.log1p(7.5 / 1.5))  # in one of 8 documents
    assert first[tokenizer.token_to_id("sat")] == pytest.approx(np.log1p(0.5 / 8.5)) and first[tokenizer.cls_id] == 0
    assert (trained == first).all() == (kind == "frozen")
    theirs = library.SparseEncoder(str(tmp_path / "run" / "model"), device="cpu")
    check(model, theirs)
    assert model.settings.query_length == theirs[0].sub_modules["query"][0].max_seq_length == 16


@pytest.mark.slow
@pytest.mark.oracle
def test_the_loss_and_its_gradient_are_those_of_sentence_transformers(library, masked_lm, tmp_path):
    import torch
    from sentence_transformers.sparse_encoder import losses

    path, theirs = saved(library, masked_lm, tmp_path / "model", frozen=False)
    loaded = load_pretrained(path)
    task = SparseEmbeddingTask(Bert(loaded.config, loaded.head), query_flops=0.02, document_flops=0.03)
    queries, documents = ["the cat the cat", "red river"], ["a cat sat", "the river of stone"]
    loss = losses.SpladeLoss(
        theirs, losses.SparseMultipleNegativesRankingLoss(theirs, scale=1.0), document_regularizer_weight=0.03,
        query_regularizer_weight=0.02,
    )  # fmt: skip
    theirs.eval()  # without dropout; in place operations are for inference only
    theirs[0].sub_modules["document"][1].train()
    features = [theirs.preprocess(texts, task=task) for texts, task in ((queries, "query"), (documents, "document"))]
    features = [{**each, "task": name} for each, name in zip(features, ("query", "document"), strict=True)]
    parts = loss(features, None)
    expected = sum(parts.values()) if isinstance(parts, dict) else parts
    expected.backward()
    batch = {"labels": np.ones((2, 1), np.float32), "example_weights": np.ones(2, np.float32)}
    for ours, each in zip((("query_ids", "query_mask"), ("input_ids", "attention_mask")), features, strict=True):
        for name, array in zip(ours, (each["input_ids"], each["attention_mask"]), strict=True):
            batch[name] = array.numpy().astype(np.int32)
    batch["query_scored"] = batch["query_mask"]
    batch |= {name: batch[name][:, None] for name in ("input_ids", "attention_mask")}

    def total(params):
        return task.loss(params, batch, None, task.weights(batch))[0]

    found, gradients = jax.value_and_grad(total)(loaded.params)
    assert float(found) == pytest.approx(expected.item(), rel=1e-5)
    ours = np.asarray(gradients["query_weights"]["weight"])
    table = theirs[0].sub_modules["query"][0].weight
    np.testing.assert_allclose(ours, table.grad.numpy(), rtol=1e-4, atol=1e-6 * float(torch.abs(table.grad).max()))


def test_recipes_that_do_not_fit(recipe):
    c = recipe.copy_and_resolve_references()
    c.data.query_weights = ""
    with pytest.raises(InputError, match=r"query_idf: expected none without config.data.query_weights, found 'docum"):
        jobs.build(recipes.resolve(c))


def test_weights_count_a_token_once(masked_lm):
    ids, mask = np.array([[3, 3, 5, 1], [2, 0, 0, 0]]), np.array([[1, 1, 1, 0], [1, 0, 0, 0]])
    weights = np.arange(1, 8, dtype=np.float32)
    expected = [[0, 0, 0, 4, 0, 6, 0], [0, 0, 3, 0, 0, 0, 0]]
    np.testing.assert_array_equal(weigh_tokens(weights, ids, mask), expected)
    tokenizer = load_tokenizer(masked_lm)
    idf = inverse_document_frequencies([[7, 7], [7, 9], [7, 9]], tokenizer, tokenizer.vocab_size)
    np.testing.assert_allclose(idf[[7, 9]], np.log1p([0.5 / 2.5, 1.5 / 1.5]), rtol=1e-6)


@pytest.mark.slow
def test_one_and_eight_devices_have_the_same_loss(on_eight_devices):
    loss, reads, others, apart = on_eight_devices(Path(__file__).parent / "query_weight_meshes.py")
    assert reads > 0
    np.testing.assert_allclose(others, loss, rtol=1e-5)
    assert max(apart) < 1e-3
