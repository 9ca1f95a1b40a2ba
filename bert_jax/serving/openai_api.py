"""OpenAI's API: `/v1/embeddings` and `/v1/models`."""

import base64
from typing import Any, Literal

import msgspec
import numpy as np

from bert_jax.serving.answers import TaskOutputs, TextRequest, TextRoute
from bert_jax.serving.bodies import json_list
from bert_jax.serving.body_fields import Dimensions, InputType, ModelName, TextsOrIds, split_ids
from bert_jax.serving.endpoint import Call
from bert_jax.serving.tasks import ServedTask


class EmbeddingsRequest(msgspec.Struct):
    """The body of `/v1/embeddings`: OpenAI's fields, and `prompt_name` and `input_type` as in `/embed`."""

    input: TextsOrIds
    model: ModelName = None
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Dimensions = None
    prompt_name: str | None = None
    input_type: InputType = None


def _read_embeddings(call: Call, body: EmbeddingsRequest) -> TextRequest:
    return TextRequest(
        model=call.service.model(body.model, ServedTask.EMBED),
        truncate=call.service.settings.auto_truncate,
        prompt_name=body.prompt_name,
        input_type=body.input_type,
        dimensions=body.dimensions,
        **split_ids(body.input, "input"),
    )


def _write_embeddings(
    call: Call, body: EmbeddingsRequest, request: TextRequest, outputs: TaskOutputs
) -> dict[str, Any]:
    vectors = outputs["embedding"]
    encode = _base64 if body.encoding_format == "base64" else np.asarray
    data = ({"object": "embedding", "index": i, "embedding": encode(vector)} for i, vector in enumerate(vectors))
    return {
        "object": "list",
        "data": json_list(data, vectors.shape[1]),
        "model": request.model.name,
        "usage": {"prompt_tokens": call.tokens, "total_tokens": call.tokens},
    }


def _base64(vector: np.ndarray) -> str:
    """Return the little-endian float32 numbers of a vector in base64, as OpenAI's clients read them."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


EMBEDDINGS = TextRoute(
    EmbeddingsRequest,
    lambda model: model.task is ServedTask.EMBED,
    _read_embeddings,
    _write_embeddings,
    lambda model: {"model": model.name, "input": ["a cat on a mat", "a kitten on a rug"]},
)


async def answer_models(call: Call) -> dict[str, Any]:
    """Answer `GET /v1/models`."""
    data = [
        {"id": model.name, "object": "model", "created": 0, "owned_by": "bert_jax", "task": model.task.value}
        for model in call.service.models.values()
    ]
    return {"object": "list", "data": data}
