"""`/embed_sparse`: the weights of the pipeline and of sentence-transformers, and queries that need no forward pass."""

import dataclasses

import httpx
import jsonschema
import numpy as np
import pytest
from served import StandIn, running, stand_in_model

from bert_jax import from_pretrained, pipeline
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError
from bert_jax.serving.models import open_jax_model
from bert_jax.serving.tasks import ServedTask

TEXTS = ["the cat sat on the tree", "a dog", "two big birds sat under it, and a red house"]
# The answer of text-embeddings-inference, by its published OpenAPI schema.
VALUE = {"type": "object", "required": ["index", "value"], "additionalProperties": False,
         "properties": {"index": {"type": "integer", "minimum": 0}, "value": {"type": "number"}}}  # fmt: skip
ANSWER = {"type": "array", "items": {"type": "array", "items": VALUE}}


def post(address, path, status=200, **body):
    answer = httpx.post(address + path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def dense(answer, size):
    """An answer of the route as an array, after a check of its format."""
    jsonschema.validate(answer, ANSWER)
    vectors = np.zeros((len(answer), size), np.float32)
    for vector, weights in zip(vectors, answer, strict=True):
        indices = [weight["index"] for weight in weights]
        assert indices == sorted(set(indices)) and all(weight["value"] != 0 for weight in weights)
        vector[indices] = [weight["value"] for weight in weights]
    return vectors


def test_weights_are_those_of_the_pipeline(server, models):
    embed = pipeline("embed", models["sparse"])
    expected = embed(TEXTS).toarray()
    size = expected.shape[1]
    found = dense(post(server.address, "/embed_sparse", inputs=TEXTS), size)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (found > 0).any(axis=1).all()
    few = dense(post(server.address, "/embed_sparse", inputs=TEXTS, max_active_dims=3), size)
    np.testing.assert_allclose(few, embed(TEXTS, max_active_dims=3).toarray(), atol=1e-6)
    ids = [embed.tokenizer.encode(text) for text in TEXTS]
    assert (dense(post(server.address, "/embed_sparse", inputs=ids), size) == found).all()
    assert (dense(post(server.address, "/embed_sparse", inputs=TEXTS[1]), size) == found[1]).all()

    tensor = {"name": "text", "shape": [3], "datatype": "BYTES", "data": TEXTS}
    parameters = {"max_active_dims": 3}
    answer = post(server.address, "/v2/models/sparse/infer", inputs=[tensor], parameters=parameters)
    row, column, value = (output["data"] for output in answer["outputs"])
    again = np.zeros_like(few)
    again[row, column] = value
    assert (again == few).all()
    described = httpx.get(f"{server.address}/v2/models/sparse").json()["outputs"]
    assert [output["name"] for output in described] == ["text_index", "index", "value"]
    info = {model["model_id"]: model["model_type"] for model in httpx.get(f"{server.address}/info").json()["models"]}
    assert info["sparse"] == {"embedding": {"pooling": "splade"}}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/embed_sparse", {"model": "embedder"}, 424, "expected a model for sparse-embedding, found one for embed"),
        ("/embed", {"model": "sparse"}, 424, "expected a model for embed, found one for sparse-embedding"),
        ("/embed_sparse", {"max_active_dims": 0}, 422, "max_active_dims: expected an integer from 1 to"),
        ("/embed_sparse", {"input_type": "passage"}, 422, "input_type: expected one of document, query, found 'pass"),
        ("/embed_sparse", {"prompt_name": "query"}, 422, "prompt name 'query' is not known"),
        ("/embed_sparse", {"inputs": "a dog " * 40}, 422, "expected at most 32 tokens, found 82"),
    ],
)
def test_what_is_refused(server, path, body, status, message):
    assert message in post(server.address, path, status, **({"inputs": "a dog"} | body))["error"]


def test_a_server_without_sparse_models_refuses_the_route(tiny_tokenizer):
    with running([stand_in_model(tiny_tokenizer, StandIn())]) as address:
        message = post(address, "/embed_sparse", 424, inputs="a dog")["error"]
        assert message == "expected a model for sparse-embedding, found none"
        assert "/embed_sparse" not in httpx.get(f"{address}/openapi.json").json()["paths"]


def test_the_prompt_of_an_input_type(tiny_tokenizer):
    """In each API; the vectors of the backend have the number of tokens first."""
    prompts = TextSettings(prompts=(("query", "two "), ("passage", "one two ")))
    model = dataclasses.replace(stand_in_model(tiny_tokenizer, StandIn()), settings=prompts)
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a dog"]}
    with running([model]) as address:
        for options, size in (
            ({}, 4),
            ({"input_type": "query"}, 5),
            ({"input_type": "document"}, 6),
            ({"input_type": "document", "prompt_name": "query"}, 5),
        ):
            assert post(address, "/embed", inputs="a dog", normalize=False, **options)[0][0] == size
            assert post(address, "/v1/embeddings", input="a dog", **options)["data"][0]["embedding"][0] == size
            answer = post(address, "/v2/models/sleeper/infer", inputs=[tensor], parameters=options)
            assert answer["outputs"][0]["data"][0] == size


def write_inference_free(path, source, **settings):
    """Write a model of sparse embeddings with weights for the tokens of queries; some are 0 or negative."""
    model = from_pretrained(source)
    weights = np.random.default_rng(0).uniform(-2, 3, model.config.vocab_size).astype(np.float32)
    weights[model.tokenizer.encode("sat on")] = 0
    dataclasses.replace(
        model,
        config=model.config.replace(query_weights="frozen"),
        params={**model.params, "query_weights": {"weight": weights}},
        settings=dataclasses.replace(model.settings, **settings),
    ).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def inference_free(models, tmp_path_factory):
    prompts = (("query", "the dog: "), ("document", "two "))
    path = tmp_path_factory.mktemp("inference_free") / "model"
    return write_inference_free(path, models["sparse"], prompts=prompts, query_length=12)


def test_queries_of_an_inference_free_model(inference_free, monkeypatch):
    """They have the bits of the pipeline without a forward pass; documents go through the encoder."""
    embed = pipeline("embed", inference_free)
    served = open_jax_model(str(inference_free), "free", None, "float32", 16)
    size, (backend,) = served.config.vocab_size, served.backends
    with running([served], max_request_tokens=30) as address:

        def found(**body):
            return dense(post(address, "/embed_sparse", **({"inputs": TEXTS[:2]} | body)), size)

        documents = embed(TEXTS[:2], task="document").toarray()
        np.testing.assert_allclose(found(input_type="document"), documents, atol=1e-6)
        np.testing.assert_allclose(found(), embed(TEXTS[:2]).toarray(), atol=1e-6)

        error = post(address, "/embed_sparse", 413, inputs=["a"] * 10)["error"]
        assert error.startswith("max_active_dims: expected at most 960 weights in an answer, found 1")
        assert [len(each) for each in post(address, "/embed_sparse", inputs=["a"] * 10, max_active_dims=96)] == [
            96
        ] * 10

        def fail(*_):
            raise RuntimeError("expected no forward pass")

        monkeypatch.setattr(backend, "begin", fail)
        post(address, "/embed_sparse", 424, inputs="a dog")
        texts = [*TEXTS[:2], "", "the the the"]
        for options in ({}, {"max_active_dims": 2}, {"prompt_name": "document"}):
            vectors = found(inputs=texts, input_type="query", **options)
            np.testing.assert_array_equal(vectors, embed(texts, task="query", **options).toarray())
        cut = found(inputs=TEXTS[2], input_type="query", truncate=True)
        np.testing.assert_array_equal(cut, embed(TEXTS[2:], task="query").toarray())
        error = post(address, "/embed_sparse", 422, inputs=TEXTS[2], input_type="query")["error"]
        assert error.startswith("text 0: expected at most 12 tokens, found")
        error = post(address, "/embed_sparse", 413, inputs=TEXTS * 3, input_type="query", truncate=True)["error"]
        assert error.startswith("expected at most 30 tokens in a request, found")
        assert 'bert_jax_texts_total{model="free"}' in httpx.get(f"{address}/metrics").text


def test_a_model_whose_texts_are_queries_unless_the_request_says_otherwise(inference_free, models, tmp_path):
    path = write_inference_free(tmp_path / "model", models["sparse"], default_route="query", max_active_dims=4)
    embed = pipeline("embed", path)
    served = open_jax_model(str(path), "free", None, "float32", 16)
    with running([served], max_request_tokens=1, token_ids=True) as address:
        ids = embed.tokenizer.encode("house")
        assert len(ids) == 1
        for inputs in ("house", ids):
            found = dense(post(address, "/embed_sparse", inputs=inputs), served.config.vocab_size)
            np.testing.assert_array_equal(found, embed(["house"]).toarray())


@pytest.mark.slow
def test_an_invariant_answer(models):
    model = open_jax_model(str(models["sparse"]), "sparse", None, "float32", 64, batch_invariant=True)
    (backend,) = model.backends
    rows = model.rows(TEXTS)
    shape = next(shape for shape in backend.shapes if shape.length >= max(row.size for row in rows) and shape.rows > 1)
    together = backend.begin(rows[:2], shape)()
    for row, vector in zip(rows, together, strict=False):
        np.testing.assert_array_equal(backend.begin([row], shape)()[0], vector)


@pytest.mark.slow
def test_the_token_weights_of_bge_m3(models, tmp_path, write_small):
    torch = pytest.importorskip("torch", reason="writes the layer")
    folder = write_small(tmp_path / "m3", "sentence_embedding", initializer_range=0.5, pooling="cls")
    layer = torch.nn.Linear(32, 1)
    torch.nn.init.constant_(layer.bias, 1.0)
    torch.save(layer.state_dict(), folder / "sparse_linear.pt")
    expected = pipeline("sparse-embedding", folder)(TEXTS).toarray()
    served = open_jax_model(str(folder), "m3", ServedTask.EMBED_SPARSE, "float32", 16)
    with running([served]) as address:
        found = dense(post(address, "/embed_sparse", inputs=TEXTS), served.config.vocab_size)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (expected > 0).sum() > 5


@pytest.mark.slow
@pytest.mark.parametrize("batch_invariant", [False, True])
def test_an_exported_model_in_onnxruntime(inference_free, tmp_path, batch_invariant):
    from bert_jax.export.exporting import export_model
    from bert_jax.serving.onnx_backend import open_onnx_model

    export_model(inference_free, tmp_path / "onnx", "onnx")
    served = open_onnx_model(str(tmp_path / "onnx"), "onnx", "onnx/model.onnx", None, None, batch_invariant)
    assert served.task is ServedTask.EMBED_SPARSE
    embed = pipeline("embed", inference_free)
    with running([served]) as address:
        for name in ("query", "document"):
            answer = post(address, "/embed_sparse", inputs=TEXTS[:2], input_type=name)
            expected = embed(TEXTS[:2], task=name).toarray()
            np.testing.assert_allclose(dense(answer, expected.shape[1]), expected, atol=1e-5 * (name == "document"))
    (tmp_path / "onnx" / "modules.json").unlink()
    with pytest.raises(InputError, match="expected the files of a SparseEncoder beside the ONNX file, found none"):
        open_onnx_model(str(tmp_path / "onnx"), "onnx", "onnx/model.onnx", ServedTask.EMBED_SPARSE, None)


@pytest.mark.slow
def test_weights_are_those_of_sentence_transformers(inference_free, models):
    library = pytest.importorskip("sentence_transformers", reason="the oracle; installed on Python 3.11 only")
    served = [open_jax_model(str(path), name, None, "float32", 16)
              for name, path in (("free", inference_free), ("sparse", models["sparse"]))]  # fmt: skip
    with running(served) as address:
        for model in served:
            theirs = library.SparseEncoder(model.path, device="cpu")
            for name, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
                for options in ({}, {"max_active_dims": 5}):
                    body = {"model": model.name, "inputs": TEXTS[:2], "input_type": name, **options}
                    found = dense(post(address, "/embed_sparse", **body), model.config.vocab_size)
                    expected = encode(TEXTS[:2], **options).to_dense().numpy()
                    exact = model.name == "free" and name == "query"
                    np.testing.assert_allclose(found, expected, atol=0 if exact else 1e-5, rtol=0)
