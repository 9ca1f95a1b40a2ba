"""The OpenAPI description of the routes: schemas of bodies, with examples that the served models can answer."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

import bert_jax
from bert_jax.serving.answers import TextRoute
from bert_jax.serving.endpoint import Api
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import error_shape

_STRING, _NUMBER, _COUNT = {"type": "string"}, {"type": "number"}, {"type": "integer", "minimum": 0}
_ERRORS = {
    "413": "a limit on bytes, texts or tokens",
    "429": "overloaded; Retry-After says when to try again",
    "503": "not ready yet",
    "504": "over the time limit",
    "default": "invalid request",
}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_USAGE = _object("prompt_tokens total_tokens", prompt_tokens=_COUNT, total_tokens=_COUNT)
_PREDICTIONS = _list(_object("score label", score=_NUMBER, label=_STRING))
_TENSOR = _object("name shape datatype data", name=_STRING, shape=_list(_COUNT), datatype=_STRING, data=_list({}))
ANSWERS: dict[str, Any] = {
    "EmbeddingsResponse": _object(
        "object data model usage", object=_STRING, model=_STRING, usage=_USAGE,
        data=_list(_object("object index embedding", object=_STRING, index=_COUNT,
                           embedding={"oneOf": [_list(_NUMBER), _STRING]})),
    ),
    "ModelList": _object("object data", object=_STRING, data=_list({"type": "object"})),
    "RerankResponse": {"oneOf": [
        _list(_object("index score", index=_COUNT, score=_NUMBER, text=_STRING)),
        _object("results", results=_list(_object("index relevance_score", index=_COUNT, relevance_score=_NUMBER))),
    ]},
    "EmbedResponse": _list(_list(_NUMBER)),
    "EmbedSparseResponse": _list(_list(_object("index value", index=_COUNT, value=_NUMBER))),
    "PredictResponse": {"oneOf": [_PREDICTIONS, _list(_PREDICTIONS)]},
    "Info": _object("model_id model_dtype model_type max_input_length version", model_id=_STRING, version=_STRING),
    "Health": {"type": "object"},
    "ModelMetadata": _object("name inputs outputs", name=_STRING, inputs=_list({}), outputs=_list({})),
    "InferResponse": _object("model_name outputs", model_name=_STRING, outputs=_list(_TENSOR)),
    "tei_error": _object("error error_type", error=_STRING, error_type=_STRING),
    "rerank_error": _object("error error_type message", error=_STRING, error_type=_STRING, message=_STRING),
    "openai_error": _object("error", error=_object("message type", message=_STRING, type=_STRING)),
    "infer_error": _object("error", error=_STRING),
}  # fmt: skip


def openapi_description(apis: Sequence[Api], models: dict[str, ServedModel]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description; routes that no model answers are left out."""
    bodies = [api.handler.body for api in apis if isinstance(api.handler, TextRoute)]
    schemas = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")[1]
    paths: dict[str, Any] = {}
    for api in apis:
        for path, example in _examples(api, models):
            paths.setdefault(path, {})[api.method.lower()] = _operation(api, example)
    return {
        "openapi": "3.1.0",
        "info": {"title": "bert-jax serve", "version": bert_jax.__version__},
        "paths": paths,
        "components": {
            "schemas": ANSWERS | schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _examples(api: Api, models: dict[str, ServedModel]) -> Iterator[tuple[str, Any]]:
    """Yield (path, example body) of a route: for each model if the path names it, or else for the first that fits."""
    if "{version}" in api.path:
        return
    texts = api.handler if isinstance(api.handler, TextRoute) else None
    fits = [model for model in models.values() if texts is None or texts.fits(model)]
    for model in fits if "{name}" in api.path else fits[:1]:
        yield api.path.replace("{name}", model.name), texts and texts.example(model)


def _operation(api: Api, example: Any) -> dict[str, Any]:
    responses = {"200": {"description": "OK", "content": _content(api.schema)}}
    if not isinstance(api.handler, TextRoute):
        return {"summary": api.summary, "responses": responses}
    error = _content(error_shape(api.path).__name__)
    responses |= {status: {"description": meaning, "content": error} for status, meaning in _ERRORS.items()}
    body = {"required": True, "content": _content(api.handler.body.__name__, example=example)}
    return {"summary": api.summary, "requestBody": body, "responses": responses, "security": [{"key": []}, {}]}


def _content(schema: str, **example: Any) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}, **example}}
