"""The OpenAPI description of the routes, with an example of each that its models can answer."""

from typing import Any

import orjson

import bert_jax
from bert_jax.serving.models import ServedModel
from bert_jax.serving.tasks import ServedTask

_STRING, _NUMBER, _FLAG = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
_STRINGS = {"type": "array", "items": _STRING, "minItems": 1}
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_INPUT = {"oneOf": [_STRING, _STRINGS, _IDS, {"type": "array", "items": _IDS, "minItems": 1}]}
_VECTORS = {"type": "array", "items": {"type": "array", "items": _NUMBER}}
_COUNT = {"type": "integer", "minimum": 1}
_SHAPE = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field of a request that may be null, which means its default."""
    return schema | {"type": [schema["type"], "null"]} | ({"enum": [*schema["enum"], None]} if "enum" in schema else {})


_TEXT_OR_NULL, _FLAG_OR_NULL, _COUNT_OR_NULL = _optional(_STRING), _optional(_FLAG), _optional(_COUNT)
_USAGE = _object("prompt_tokens total_tokens", prompt_tokens=_COUNT, total_tokens=_COUNT)
_PREDICTIONS = {"type": "array", "items": _object("score label", score=_NUMBER, label=_STRING)}
_TENSOR = _object("name shape datatype data", name=_STRING, shape=_SHAPE, datatype=_STRING, data={"type": "array"})
_INPUT_TENSOR = _object(
    "name shape datatype data", name={"enum": ["text", "text_pair"]}, datatype={"const": "BYTES"},
    shape=_SHAPE | {"minItems": 1, "maxItems": 2},
    data={"type": "array", "items": {"oneOf": [_STRING, _STRINGS | {"maxItems": 1}]}},
)  # fmt: skip
_MODEL = {"type": ["string", "null"], "description": "name of a model; default: the first that fits the route"}
_DOCUMENT = {"oneOf": [_STRING, _object("text", text=_STRING)]}
_PAIR = _STRINGS | {"maxItems": 2}
SCHEMAS: dict[str, Any] = {
    "EmbeddingsRequest": _object(
        "input", input=_INPUT, model=_MODEL, dimensions=_COUNT_OR_NULL, prompt_name=_TEXT_OR_NULL,
        encoding_format=_optional({"type": "string", "enum": ["float", "base64"], "default": "float"}),
    ),
    "EmbeddingsResponse": _object(
        "object data model usage", object=_STRING, model=_STRING, usage=_USAGE,
        data={"type": "array", "items": _object(
            "object index embedding", object=_STRING, index={"type": "integer"},
            embedding={"oneOf": [{"type": "array", "items": _NUMBER}, _STRING]})},
    ),
    "ModelList": _object("object data", object=_STRING, data={"type": "array", "items": {"type": "object"}}),
    "RerankRequest": {"oneOf": [
        _object("query texts", query=_STRING, texts=_STRINGS, model=_MODEL, raw_scores=_FLAG_OR_NULL,
                return_text=_FLAG_OR_NULL, truncate=_FLAG_OR_NULL, documents=False),
        _object("query documents", query=_STRING, documents={"type": "array", "items": _DOCUMENT, "minItems": 1},
                model=_MODEL, top_n=_COUNT_OR_NULL, return_documents=_FLAG_OR_NULL, texts=False),
    ]},
    "RerankResponse": {"oneOf": [
        {"type": "array", "items": _object("index score", index={"type": "integer"}, score=_NUMBER, text=_STRING)},
        _object("results", results={"type": "array", "items": _object(
            "index relevance_score", index={"type": "integer"}, relevance_score=_NUMBER)}),
    ]},
    "EmbedRequest": _object(
        "inputs", inputs=_INPUT, model=_MODEL, normalize=_FLAG_OR_NULL | {"default": True}, truncate=_FLAG_OR_NULL,
        prompt_name=_TEXT_OR_NULL, dimensions=_COUNT_OR_NULL,
        truncation_direction={"enum": ["right", "Right", None]},
    ),
    "EmbedResponse": _VECTORS,
    "PredictRequest": _object(
        "inputs", inputs={"oneOf": [_STRING, _STRINGS, {"type": "array", "items": _PAIR, "minItems": 1}]},
        model=_MODEL, raw_scores=_FLAG_OR_NULL, truncate=_FLAG_OR_NULL,
        truncation_direction={"enum": ["right", "Right", None]},
    ),
    "PredictResponse": {"oneOf": [_PREDICTIONS, {"type": "array", "items": _PREDICTIONS}]},
    "Info": _object("model_id model_dtype model_type max_input_length version", model_id=_STRING, version=_STRING),
    "Health": {"type": "object"},
    "ModelMetadata": _object("name inputs outputs", name=_STRING, inputs={"type": "array"}, outputs={"type": "array"}),
    "InferRequest": _object(
        "inputs", id=_TEXT_OR_NULL, inputs={"type": "array", "items": _INPUT_TENSOR, "minItems": 1},
        outputs={"type": ["array", "null"], "items": _object("name", name=_STRING)},
        parameters={"type": ["object", "null"]},
    ),
    "InferResponse": _object("model_name outputs", model_name=_STRING, outputs={"type": "array", "items": _TENSOR}),
    "TeiError": _object("error error_type", error=_STRING, error_type=_STRING),
    "OpenAIError": _object("error", error=_object("message type", message=_STRING, type=_STRING)),
    "InferError": _object("error", error=_STRING),
}  # fmt: skip


def openapi_description(models: dict[str, ServedModel]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description; routes that no model answers are left out."""
    first = {task: next((m for m in models.values() if m.task is task), None) for task in ServedTask}
    reranks = [m for m in models.values() if m.task is ServedTask.CLASSIFY and m.config.num_labels <= 2]
    paths: dict[str, Any] = {
        "/v1/models": _get("List the models", "ModelList"),
        "/info": _get("Describe the models and limits, as text-embeddings-inference does", "Info"),
        "/health": _get("200 when every model is ready, else 503", "Health"),
        "/v2": _get("Open Inference Protocol v2: the server", "Health"),
        "/v2/health/live": _get("Open Inference Protocol v2: liveness", "Health"),
        "/v2/health/ready": _get("Open Inference Protocol v2: readiness", "Health"),
    }
    if (model := first[ServedTask.EMBED]) is not None:
        example: dict[str, Any] = {"model": model.name, "input": ["a cat on a mat", "a kitten on a rug"]}
        paths["/v1/embeddings"] = _post("Embed texts, as OpenAI does", "Embeddings", example, "OpenAIError")
        example = {"inputs": ["a cat on a mat", "a kitten on a rug"], "normalize": True}
        paths["/embed"] = _post("Embed texts, as text-embeddings-inference does", "Embed", example, "TeiError")
    if (model := first[ServedTask.CLASSIFY]) is not None:
        example = {"inputs": "a gripping, funny film", "model": model.name}
        paths["/predict"] = _post("Classify texts or pairs of texts", "Predict", example, "TeiError")
    if reranks:
        documents = ["cats sleep curled up", "taxes are due in May"]
        example = {"model": reranks[0].name, "query": "how do cats sleep?", "texts": documents}
        paths["/rerank"] = _post("Sort texts by relevance, in TEI's shape (`texts`)", "Rerank", example, "TeiError")
        example = {"model": reranks[0].name, "query": "how do cats sleep?", "documents": documents, "top_n": 1}
        for path in ("/v1/rerank", "/v2/rerank"):
            paths[path] = _post("... in the shape of Cohere and Jina (`documents`)", "Rerank", example, "TeiError")
    for model in models.values():
        path = f"/v2/models/{model.name}"
        paths[path] = _get("Open Inference Protocol v2: the tensors of a model", "ModelMetadata")
        paths[f"{path}/ready"] = _get("Open Inference Protocol v2: readiness of a model", "Health")
        paths[f"{path}/infer"] = _post(f"Open Inference Protocol v2: {model.task.value}", "Infer", _tensor(model),
                                       "InferError")  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "bert-jax serve", "version": bert_jax.__version__},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def as_json(models: dict[str, ServedModel]) -> bytes:
    """Return the description as JSON."""
    return orjson.dumps(openapi_description(models))


def _tensor(model: ServedModel) -> dict[str, Any]:
    """Return an example of an Open Inference request."""
    text = "a cat on a mat"
    if model.task is ServedTask.FILL_MASK:
        text = f"a cat on a {model.tokenizer.id_to_token(model.tokenizer.mask_id)}"
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}
    parameters = {"parameters": {"top_k": 3}} if model.task is ServedTask.FILL_MASK else {}
    return {"id": "1", "inputs": [tensor], **parameters}


def _content(schema: str, example: Any = None) -> dict[str, Any]:
    shown = {} if example is None else {"example": example}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}, **shown}}


def _get(summary: str, schema: str) -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": {"200": {"description": "OK", "content": _content(schema)}}}}


def _post(summary: str, name: str, example: dict[str, Any], error: str) -> dict[str, Any]:
    """Describe a route whose schemas are `{name}Request` and `{name}Response`."""
    errors = {
        "413": "a limit on bytes, texts or tokens",
        "429": "overloaded; Retry-After says when to try again",
        "503": "not ready yet",
        "504": "over the time limit",
        "default": "invalid request",
    }
    responses: dict[str, Any] = {"200": {"description": "OK", "content": _content(f"{name}Response")}}
    responses |= {status: {"description": why, "content": _content(error)} for status, why in errors.items()}
    body = {"required": True, "content": _content(f"{name}Request", example)}
    return {"post": {"summary": summary, "requestBody": body, "responses": responses, "security": [{"key": []}, {}]}}
