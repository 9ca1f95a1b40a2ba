"""OpenAI's API: `/v1/embeddings` and `/v1/models`."""

import base64
from typing import Any

import numpy as np

from bert_jax.serving import answers, fields
from bert_jax.serving.endpoint import Call
from bert_jax.serving.tasks import ServedTask


async def answer_embeddings(call: Call) -> dict[str, Any]:
    """Answer `POST /v1/embeddings`; `prompt_name`, as of TEI, is an addition to OpenAI's fields."""

    def read(body: dict[str, Any]) -> tuple[dict[str, Any], str]:
        texts, ids, _ = fields.texts_or_ids(body.get("input"), "input")
        encoding = fields.choice(body, "encoding_format", ("float", "base64"), "float")
        dimensions = fields.integer(body, "dimensions", 1, 1 << 20)
        model = call.service.model(body.get("model"), ServedTask.EMBED)
        prompt = fields.string(body, "prompt_name")
        request = {"model": model, "texts": texts, "ids": ids, "prompt_name": prompt, "dimensions": dimensions}
        return request, encoding

    request, encoding = await call.request(read)
    vectors = await answers.embed(call, **request, truncate=call.service.settings.auto_truncate)

    def encode() -> list[dict[str, Any]]:
        return [
            {"object": "embedding", "index": number, "embedding": _base64(vector) if encoding == "base64" else vector}
            for number, vector in enumerate(vectors)
        ]

    data = await call.compute(vectors.size, encode)
    usage = {"prompt_tokens": call.tokens, "total_tokens": call.tokens}
    return {"object": "list", "data": data, "model": request["model"].name, "usage": usage}


def _base64(vector: np.ndarray) -> str:
    """Return the little-endian float32 numbers of a vector in base64, as OpenAI's clients read them."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


async def answer_models(call: Call) -> dict[str, Any]:
    """Answer `GET /v1/models`."""
    data = [
        {"id": model.name, "object": "model", "created": 0, "owned_by": "bert_jax", "task": model.task.value}
        for model in call.service.models.values()
    ]
    return {"object": "list", "data": data}
