"""`/rerank` in the format of text-embeddings-inference (`texts`), and in that of Cohere and Jina (`documents`)."""

import dataclasses
import uuid
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import numpy as np

from bert_jax.inference.scoring import match_output
from bert_jax.serving.answers import TaskOutputs, TextRequest, TextRoute
from bert_jax.serving.body_fields import ModelName, Strings
from bert_jax.serving.endpoint import Call
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import Reason, Refusal
from bert_jax.serving.tasks import ServedTask


class RerankDocument(msgspec.Struct):
    """A document of Cohere's API."""

    text: str


_Documents = Annotated[
    list[str | RerankDocument], msgspec.Meta(min_length=1, description="a list of strings or of documents with a text")
]


class RerankRequest(msgspec.Struct):
    """The body of `/rerank`: `texts` and TEI's options, or `documents` and the options of Cohere and Jina."""

    query: str
    model: ModelName = None
    texts: Strings | None = None
    raw_scores: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None
    documents: _Documents | None = None
    top_n: Annotated[int, msgspec.Meta(ge=1, le=1 << 30)] | None = None
    return_documents: bool | None = None


def _reranks(model: ServedModel) -> bool:
    return model.task is ServedTask.CLASSIFY and model.config.num_labels <= 2


def _read(call: Call, body: RerankRequest) -> TextRequest:
    service = call.service
    if (body.texts is None) == (body.documents is None):
        raise Refusal(Reason.INVALID, "expected the field texts or the field documents, found both or none")
    first = next((model.name for model in service.models.values() if _reranks(model)), None)
    model = service.model(first if body.model is None else body.model, ServedTask.CLASSIFY)
    if (size := model.config.num_labels) > 2:
        raise Refusal(Reason.WRONG_MODEL, f"model {model.name!r}: expected one output or two to rerank, found {size}")
    documents = body.texts or [item if isinstance(item, str) else item.text for item in body.documents or ()]
    return TextRequest(
        model=model,
        texts=[body.query] * len(documents),
        seconds=documents,
        raw=body.texts is not None and bool(body.raw_scores),
        truncate=body.texts is None or call.truncates(body.truncate),  # Cohere and Jina cut long documents
    )


def _write(call: Call, body: RerankRequest, request: TextRequest, outputs: TaskOutputs) -> Any:
    """Write the relevance of documents: the score of the model's only output, or of the matching one of two."""
    scores = outputs["scores"][:, match_output(request.model.config)]
    order = np.argsort(-scores, kind="stable").tolist()
    if body.texts is not None:
        ranks = [{"index": i, "score": scores[i]} for i in order]
        return [rank | {"text": body.texts[rank["index"]]} for rank in ranks] if body.return_text else ranks
    results: list[dict[str, Any]] = []
    for i in order[: body.top_n]:
        document = {"document": {"text": request.seconds[i]}} if body.return_documents else {}
        results.append({"index": i, "relevance_score": scores[i], **document})
    return {
        "id": str(uuid.uuid4()),
        "object": "list",
        "model": request.model.name,
        "results": results,
        "usage": {"total_tokens": call.tokens, "prompt_tokens": call.tokens},
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": call.tokens},
        },
    }


def _example(field: str, **options: Any) -> Callable[[ServedModel], dict[str, Any]]:
    documents = ["cats sleep curled up", "taxes are due in May"]
    return lambda model: {"model": model.name, "query": "how do cats sleep?", field: documents, **options}


RERANK = TextRoute(RerankRequest, _reranks, _read, _write, _example("texts"))
RERANK_DOCUMENTS = dataclasses.replace(RERANK, example=_example("documents", top_n=1))
