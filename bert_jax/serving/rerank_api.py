"""`/rerank` in the shape of text-embeddings-inference (`texts`), and in that of Cohere and Jina (`documents`)."""

import uuid
from typing import Any

import numpy as np

from bert_jax.serving import answers, fields
from bert_jax.serving.endpoint import Call
from bert_jax.serving.refusals import Reason, Refusal
from bert_jax.serving.tasks import ServedTask


async def answer_rerank(call: Call) -> Any:
    """Answer `POST /rerank`; the field `texts` or `documents` says in which shape."""
    body = call.body
    if ("texts" in body) == ("documents" in body):
        raise Refusal(Reason.INVALID, "expected the field texts or the field documents, found both or none")
    return await (_tei(call) if "texts" in body else _cohere(call))


async def _tei(call: Call) -> list[dict[str, Any]]:
    body = call.body
    texts, with_text = fields.texts(body["texts"], "texts"), fields.flag(body, "return_text", False)
    raw = fields.flag(body, "raw_scores", False)
    truncate = fields.flag(body, "truncate", call.service.settings.auto_truncate)
    model = call.service.model(body.get("model"), ServedTask.CLASSIFY)
    scores = await answers.relevance(call, model, _query(body), texts, truncate=truncate, raw=raw)
    found = [{"index": i, "score": scores[i]} for i in np.argsort(-scores, kind="stable").tolist()]
    return [rank | {"text": texts[rank["index"]]} for rank in found] if with_text else found


async def _cohere(call: Call) -> dict[str, Any]:
    body = call.body
    documents = _documents(body["documents"])
    top_n = fields.integer(body, "top_n", 1, 1 << 30)
    with_documents = fields.flag(body, "return_documents", False)
    model = call.service.model(body.get("model"), ServedTask.CLASSIFY)
    scores = await answers.relevance(call, model, _query(body), documents, truncate=True)  # as both APIs do
    results: list[dict[str, Any]] = []
    for i in np.argsort(-scores, kind="stable")[:top_n].tolist():
        document = {"document": {"text": documents[i]}} if with_documents else {}
        results.append({"index": i, "relevance_score": scores[i], **document})
    tokens = {"input_tokens": call.tokens}
    return {
        "id": str(uuid.uuid4()),
        "object": "list",
        "model": model.name,
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
