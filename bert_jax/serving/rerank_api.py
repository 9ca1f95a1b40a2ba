"""`/rerank` in the shape of text-embeddings-inference (`texts`), and in that of Cohere and Jina (`documents`)."""

import uuid
from typing import Any, NamedTuple

import numpy as np

from bert_jax.serving import answers, fields
from bert_jax.serving.endpoint import Call
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import Reason, Refusal
from bert_jax.serving.service import Service
from bert_jax.serving.tasks import ServedTask


class _Request(NamedTuple):
    """What a body asks for; `cohere` is whether it has the shape of Cohere and Jina."""

    cohere: bool
    query: str
    texts: list[str]
    with_text: bool
    raw: bool
    truncate: bool
    top_n: int | None
    model: ServedModel


async def answer_rerank(call: Call) -> Any:
    """Answer `POST /rerank`; the field `texts` or `documents` says in which shape."""
    request = await call.request(lambda body: _read(call.service, body))
    scores = await answers.relevance(
        call, request.model, request.query, request.texts, truncate=request.truncate, raw=request.raw
    )
    order = np.argsort(-scores, kind="stable")[: request.top_n].tolist()
    return _cohere(call, request, scores, order) if request.cohere else _tei(request, scores, order)


def _read(service: Service, body: dict[str, Any]) -> _Request:
    if ("texts" in body) == ("documents" in body):
        raise Refusal(Reason.INVALID, "expected the field texts or the field documents, found both or none")
    if cohere := "documents" in body:
        texts, raw, truncate = _documents(body["documents"]), False, True  # both APIs cut long documents
        top_n = fields.integer(body, "top_n", 1, 1 << 30)
        with_text = fields.flag(body, "return_documents", False)
    else:
        texts, with_text = fields.texts(body["texts"], "texts"), fields.flag(body, "return_text", False)
        raw, top_n = fields.flag(body, "raw_scores", False), None
        truncate = fields.flag(body, "truncate", service.settings.auto_truncate)
    model = service.model(_model_name(service, body), ServedTask.CLASSIFY)
    return _Request(cohere, _query(body), texts, with_text, raw, truncate, top_n, model)


def _model_name(service: Service, body: dict[str, Any]) -> Any:
    """Return the name of the model; if the request has none, that of the first that has one output or two."""
    reranks = (m.name for m in service.models.values() if m.task is ServedTask.CLASSIFY and m.config.num_labels <= 2)
    name = body.get("model")
    return next(reranks, None) if name is None else name


def _tei(request: _Request, scores: np.ndarray, order: list[int]) -> list[dict[str, Any]]:
    found = [{"index": i, "score": scores[i]} for i in order]
    return [rank | {"text": request.texts[rank["index"]]} for rank in found] if request.with_text else found


def _cohere(call: Call, request: _Request, scores: np.ndarray, order: list[int]) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for i in order:
        document = {"document": {"text": request.texts[i]}} if request.with_text else {}
        results.append({"index": i, "relevance_score": scores[i], **document})
    tokens = {"input_tokens": call.tokens}
    return {
        "id": str(uuid.uuid4()),
        "object": "list",
        "model": request.model.name,
        "results": results,
        "usage": {"total_tokens": call.tokens, "prompt_tokens": call.tokens},
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}, "tokens": tokens},
    }


def _query(body: dict[str, Any]) -> str:
    query = fields.string(body, "query")
    if query is None:
        raise fields.wrong("query", "a string", None)
    return query


def _documents(value: Any) -> list[str]:
    """Return documents, which are strings or objects with a field `text`."""
    if isinstance(value, list):
        value = [item["text"] if isinstance(item, dict) and "text" in item else item for item in value]
    return fields.texts(value, "documents")
