"""The routes of a real server, as the clients of each API see them."""

import base64
import json
import re

import httpx
import jsonschema
import numpy as np
import openai
import pytest
from served import StandIn, running, stand_in_model

from bert_jax import pipeline
from bert_jax.serving.app import APIS

TEXTS = ["the cat sat on the tree", "a dog", "two big birds sat under it, and a red house"]


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server.address) as client:
        yield client


def post(client, path, status=200, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_openai_s_client(server, models):
    """Its embeddings, which it fetches in base64, are those of the pipeline."""
    client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == list(models)
    found = client.embeddings.create(model="embedder", input=TEXTS)
    vectors = np.array([item.embedding for item in found.data])
    expected = pipeline("embed", models["embedder"])(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert [item.index for item in found.data] == [0, 1, 2] and found.model == "embedder"
    tokenizer = pipeline("embed", models["embedder"]).tokenizer
    assert found.usage.prompt_tokens == found.usage.total_tokens == tokenizer(TEXTS)["attention_mask"].sum()
    plain = client.embeddings.create(model="embedder", input=TEXTS[0], encoding_format="float")
    np.testing.assert_allclose(plain.data[0].embedding, expected[0], atol=1e-6)
    ids = tokenizer.encode(TEXTS[0])
    for given in (ids, [ids]):
        of_ids = client.embeddings.create(model="embedder", input=given)
        np.testing.assert_allclose(of_ids.data[0].embedding, expected[0], atol=1e-6)
    short = client.embeddings.create(model="embedder", input=TEXTS, dimensions=8)
    cut = expected[:, :8] / np.linalg.norm(expected[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose([item.embedding for item in short.data], cut, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ({"model": "embeder", "input": "a"}, openai.NotFoundError, "did you mean 'embedder'"),
        ({"model": "classes", "input": "a"}, openai.BadRequestError, "expected a model for embed, found one for class"),
        (
            {"model": "embedder", "input": []},
            openai.BadRequestError,
            "input: expected a string, .* found an empty list",
        ),
        ({"model": "embedder", "input": "a", "dimensions": 999}, openai.BadRequestError, "at most 32, found 999"),
        ({"model": "embedder", "input": "a dog " * 40}, openai.BadRequestError, "expected at most 32 tokens, found 82"),
        ({"model": "embedder", "input": [[1, 10_000]]}, openai.BadRequestError, "token ids 0 to .*found 10000"),
        ({"model": "embedder", "input": "a", "encoding_format": "hex"}, openai.BadRequestError, "one of base64, float"),
    ],
)
def test_errors_of_openai_s_client(server, body, error, message):
    client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)
    with pytest.raises(error, match=message) as found:
        client.embeddings.create(**body)
    assert found.value.body["message"] and "\n" not in found.value.body["message"]


# The responses of text-embeddings-inference, by its published OpenAPI schema (docs/openapi.json, version 1.7).
NUMBER = {"type": "number"}
PREDICTION = {"type": "object", "required": ["score", "label"],
              "properties": {"score": NUMBER, "label": {"type": "string"}}}  # fmt: skip
COUNT = {"type": "integer", "minimum": 0}
RANK = {"type": "object", "required": ["index", "score"],
        "properties": {"index": COUNT, "score": NUMBER, "text": {"type": "string"}}}  # fmt: skip
ERROR_TYPES = ["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer"]
TEI = {
    "EmbedResponse": {"type": "array", "items": {"type": "array", "items": NUMBER}},
    "PredictResponse": {"oneOf": [{"type": "array", "items": PREDICTION},
                                  {"type": "array", "items": {"type": "array", "items": PREDICTION}}]},
    "RerankResponse": {"type": "array", "items": RANK},
    "ErrorResponse": {"type": "object", "required": ["error", "error_type"],
                      "properties": {"error": {"type": "string"}, "error_type": {"enum": ERROR_TYPES}}},
    "Info": {
        "type": "object",
        "required": ["model_id", "model_dtype", "model_type", "max_concurrent_requests", "max_input_length",
                     "max_batch_tokens", "max_client_batch_size", "auto_truncate", "tokenization_workers", "version"],
        "properties": {
            "model_id": {"type": "string"}, "model_dtype": {"type": "string"}, "version": {"type": "string"},
            "model_type": {"type": "object", "required": ["embedding"], "properties": {
                "embedding": {"type": "object", "required": ["pooling"]}}},
            "max_concurrent_requests": COUNT, "max_input_length": COUNT, "max_batch_tokens": COUNT,
            "max_client_batch_size": COUNT, "tokenization_workers": COUNT, "auto_truncate": {"type": "boolean"},
        },
    },
}  # fmt: skip


def fits(value, name):
    jsonschema.validate(value, TEI[name])
    return value


def test_tei_embed(client, models):
    expected = pipeline("embed", models["embedder"])(TEXTS)
    np.testing.assert_allclose(fits(post(client, "/embed", inputs=TEXTS), "EmbedResponse"), expected, atol=1e-6)
    raw = np.array(post(client, "/embed", inputs=TEXTS, normalize=False))
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1)
    np.testing.assert_allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), expected, atol=1e-6)
    long = "a dog " * 40
    cut = post(client, "/embed", inputs=long, truncate=True, truncation_direction="Right")
    np.testing.assert_allclose(cut[0], pipeline("embed", models["embedder"])(long), atol=1e-6)
    assert fits(post(client, "/embed", 422, inputs=long), "ErrorResponse")["error_type"] == "Tokenizer"
    assert fits(post(client, "/embed", 422, inputs=5), "ErrorResponse")["error_type"] == "Validation"
    assert fits(post(client, "/embed", 424, inputs="a", model="masks"), "ErrorResponse")["error_type"] == "Backend"
    assert fits(post(client, "/embed", 422, inputs="a", prompt_name="x"), "ErrorResponse")["error"].startswith("prompt")


def test_tei_predict(client, models):
    expected = pipeline("classify", models["classes"])
    for given, as_pipeline in (("a dog", "a dog"), (["a dog", "the cat"], {"text": "a dog", "text_pair": "the cat"})):
        found = fits(post(client, "/predict", inputs=given, model="classes"), "PredictResponse")
        for one, other in zip(found, expected(as_pipeline, top_k=None), strict=True):
            assert one["label"] == other["label"] and one["score"] == pytest.approx(other["score"], abs=1e-6)
    batch = post(client, "/predict", inputs=[["a dog"], ["a dog", "the cat"]], model="classes")
    assert [item["label"] for item in batch[1]] == [item["label"] for item in found]
    assert sum(item["score"] for item in batch[0]) == pytest.approx(1, abs=1e-6)
    raw = post(client, "/predict", inputs="a dog", model="classes", raw_scores=True)
    shares = np.exp([item["score"] for item in raw])
    np.testing.assert_allclose(shares / shares.sum(), [item["score"] for item in batch[0]], atol=1e-6)


def test_token_ids_are_refused_unless_the_server_was_told_to_take_them(tiny_tokenizer):
    with running([stand_in_model(tiny_tokenizer, StandIn())]) as address:
        for path, body in (("/v1/embeddings", {"input": [[5, 6]]}), ("/v1/embeddings", {"input": [5, 6]}),
                           ("/embed", {"inputs": [[5, 6], [7]]})):  # fmt: skip
            answer = httpx.post(f"{address}{path}", json=body)
            assert answer.status_code in (400, 422) and "check_embedding_ctx_length=False" in answer.text
        assert httpx.post(f"{address}/embed", json={"inputs": "a cat"}).status_code == 200


def test_rerank_in_both_shapes(client, models):
    query, documents = "how do cats sleep?", ["a cat sat", "the red house", "two birds"]
    expected = pipeline("rerank", models["reranker"])(query, documents)
    found = fits(post(client, "/rerank", query=query, texts=documents, return_text=True), "RerankResponse")
    assert [(rank["index"], rank["text"]) for rank in found] == [(e["corpus_id"], e["text"]) for e in expected]
    np.testing.assert_allclose([rank["score"] for rank in found], [e["score"] for e in expected], atol=1e-6)
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        answer = post(client, path, model="reranker", query=query, documents=[documents[0], {"text": documents[1]}],
                      top_n=1, return_documents=True)  # fmt: skip
        (best,) = answer["results"]
        assert best["document"]["text"] == documents[best["index"]]
        assert best["relevance_score"] == pytest.approx(
            found[[r["index"] for r in found].index(best["index"])]["score"]
        )
        assert answer["usage"]["total_tokens"] > 0
    first = post(client, "/rerank", query=query, texts=documents)
    assert [rank["index"] for rank in first] == [rank["index"] for rank in found]
    assert "expected the field texts or" in fits(post(client, "/rerank", 422, query="a"), "ErrorResponse")["error"]
    assert "one output or two" in post(client, "/rerank", 424, query="a", texts=["b"], model="classes")["message"]


def test_info_and_health(client):
    info = client.get("/info").json()
    jsonschema.validate(info, TEI["Info"])
    assert info["max_input_length"] == 32 and info["models"][0]["model_id"] == info["model_id"]
    assert client.get("/health").status_code == client.get("/v2/health/ready").status_code == 200


def infer(client, model, data, status=200, **more):
    tensor = {"name": "text", "shape": [len(data)], "datatype": "BYTES", "data": data}
    answer = post(client, f"/v2/models/{model}/infer", status, inputs=[tensor], **more)
    if status != 200:
        return answer
    assert answer["model_name"] == model
    described = {output["name"]: output for output in client.get(f"/v2/models/{model}").json()["outputs"]}
    for output in answer["outputs"]:
        assert len(output["data"]) == np.prod(output["shape"])
        assert output["datatype"] == described[output["name"]]["datatype"]
        assert len(output["shape"]) == len(described[output["name"]]["shape"])
    return {output["name"]: np.array(output["data"]).reshape(output["shape"]) for output in answer["outputs"]}


def test_open_inference_of_masks(client, models):
    texts = ["the [MASK] sat", "a [MASK] and a [MASK]"]
    found = infer(client, "masks", texts, parameters={"top_k": 2})
    assert found["text_index"].tolist() == [0, 1, 1]
    expected = pipeline("fill-mask", models["masks"])(texts, top_k=2)
    for row, answers in zip(range(3), [expected[0], *expected[1]], strict=True):
        assert found["token"][row].tolist() == [answer["token"] for answer in answers]
        assert found["sequence"][row].tolist() == [answer["sequence"] for answer in answers]
        np.testing.assert_allclose(found["score"][row], [answer["score"] for answer in answers], atol=1e-6)
    assert "expected a [MASK]" in infer(client, "masks", ["no mask"], 400)["error"]


def test_open_inference_of_tags(client, models):
    found = infer(client, "tags", TEXTS)
    expected = pipeline("ner", models["tags"])(TEXTS, aggregation_strategy="first")
    flat = [(i, e["entity_group"], e["start"], e["end"], e["word"]) for i, es in enumerate(expected) for e in es]
    names = ("text_index", "label", "start", "end", "word")
    assert list(zip(*(found[name].tolist() for name in names), strict=True)) == flat and flat


def test_open_inference_of_classes_and_vectors(client, models):
    found = infer(client, "classes", TEXTS, outputs=[{"name": "label"}])
    assert found.keys() == {"label"}
    assert found["label"].tolist() == [answer["label"] for answer in pipeline("classify", models["classes"])(TEXTS)]
    vectors = infer(client, "embedder", TEXTS)["embedding"]
    np.testing.assert_allclose(vectors, pipeline("embed", models["embedder"])(TEXTS), atol=1e-6)
    metadata = client.get("/v2/models/classes/versions/1").json()
    assert metadata["parameters"]["labels"] == ["bad", "good", "mixed"]
    assert infer(client, "classes", [], 400)["error"].startswith("expected at least one text")
    assert "expected one of scores, label" in infer(client, "classes", TEXTS, 400, outputs=[{"name": "x"}])["error"]
    bad = {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["one"]}
    error = post(client, "/v2/models/classes/infer", 400, inputs=[bad])["error"]
    assert error == "inputs[0].data: expected 2 strings, as in shape, found 1"
    assert post(client, "/v2/models/absent/infer", 404, inputs=[bad])["error"].startswith("model 'absent' is not known")


def test_every_example_of_the_openapi_page(client):
    """Each is answered with 200, and request and response fit their schemas."""
    described = client.get("/openapi.json").json()
    schemas = {"components": described["components"]}
    tried = set()
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            example = None
            if method == "post":
                content = route["requestBody"]["content"]["application/json"]
                example = content["example"]
                jsonschema.validate(example, content["schema"] | schemas)
            answer = client.request(method.upper(), path, json=example)
            assert answer.status_code == 200, (path, answer.text)
            schema = route["responses"]["200"]["content"]["application/json"]["schema"]
            jsonschema.validate(answer.json(), schema | schemas)
            tried.add((method.upper(), re.sub("/v2/models/[^/]+", "/v2/models/{name}", path)))
    assert tried == {(api.method, api.path) for api in APIS if "{version}" not in api.path}


def test_paths_and_methods_that_are_not_there(client):
    assert fits(client.get("/nope").json(), "ErrorResponse")
    assert client.get("/v1/nope").json()["error"]["type"] == "not_found_error"
    answer = client.get("/embed")
    assert answer.status_code == 405 and answer.headers["allow"] == "POST"


def test_the_page_loads_nothing_from_elsewhere(client):
    page = client.get("/")
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    assert not re.findall(r"https?://", page.text)


def test_metrics_and_logs(client, server):
    post(client, "/embed", inputs=["a dog", "the cat"])
    text = client.get("/metrics").text
    assert re.search(r'bert_jax_requests_total{route="/embed",status="200"} [1-9]', text)
    assert re.search(r'bert_jax_tokens_total{model="embedder"} [1-9]', text)
    assert "bert_jax_ready 1.0" in text
    line = server.events("request")[-1]
    assert line["route"] == "/embed" and line["texts"] == 2 and line["tokens"] > 4 and line["model"] == "embedder"
    assert "the cat" not in json.dumps(line)


def test_base64_is_little_endian_float32(client):
    both = [post(client, "/v1/embeddings", input="a dog", encoding_format=name) for name in ("float", "base64")]
    numbers, text = (answer["data"][0]["embedding"] for answer in both)
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(text), "<f4"), np.array(numbers, np.float32))
