"""The API of text-embeddings-inference: `/embed`, `/embed_sparse`, `/predict` and `/info`."""

import itertools
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

import bert_jax
from bert_jax.serving.answers import TaskOutputs, TextRequest, TextRoute
from bert_jax.serving.bodies import invalid_field, json_list
from bert_jax.serving.body_fields import Dimensions, InputType, ModelName, TextsOrIds, split_ids
from bert_jax.serving.endpoint import Call
from bert_jax.serving.models import ServedModel
from bert_jax.serving.service import TOKENIZER_THREADS
from bert_jax.serving.tasks import ServedTask

_Direction = Annotated[
    Literal["right", "Right"] | None, msgspec.Meta(description="Right; for Left, edit tokenizer_config.json")
]
_PAIRS = "a string, a pair of strings, or a list of lists of one or two strings"
_Pair = Annotated[list[str], msgspec.Meta(min_length=1, max_length=2)]
_Pairs = Annotated[
    str | Annotated[list[str | _Pair], msgspec.Meta(min_length=1)],
    msgspec.Meta(description=_PAIRS),
]


class EmbedRequest(msgspec.Struct):
    """The body of `/embed`."""

    inputs: TextsOrIds
    model: ModelName = None
    normalize: bool | None = True
    truncate: bool | None = None
    truncation_direction: _Direction = None
    prompt_name: str | None = None
    input_type: InputType = None
    dimensions: Dimensions = None


class EmbedSparseRequest(msgspec.Struct):
    """The body of `/embed_sparse`."""

    inputs: TextsOrIds
    model: ModelName = None
    truncate: bool | None = None
    truncation_direction: _Direction = None
    prompt_name: str | None = None
    input_type: InputType = None
    max_active_dims: Dimensions = None


class PredictRequest(msgspec.Struct):
    """The body of `/predict`."""

    inputs: _Pairs
    model: ModelName = None
    raw_scores: bool | None = None
    truncate: bool | None = None
    truncation_direction: _Direction = None


def _read_embed(call: Call, body: EmbedRequest) -> TextRequest:
    return TextRequest(
        model=call.service.model(body.model, ServedTask.EMBED),
        truncate=call.truncates(body.truncate),
        prompt_name=body.prompt_name,
        input_type=body.input_type,
        normalize=body.normalize is not False,
        dimensions=body.dimensions,
        **split_ids(body.inputs, "inputs"),
    )


def _write_embed(call: Call, body: EmbedRequest, request: TextRequest, outputs: TaskOutputs) -> Any:
    return json_list(outputs["embedding"], outputs["embedding"].shape[1])


def _example_to_embed(model: ServedModel) -> dict[str, Any]:
    return {"inputs": ["a cat on a mat", "a kitten on a rug"], "normalize": True}


EMBED = TextRoute(
    EmbedRequest, lambda model: model.task is ServedTask.EMBED, _read_embed, _write_embed, _example_to_embed
)


def _read_embed_sparse(call: Call, body: EmbedSparseRequest) -> TextRequest:
    return TextRequest(
        model=call.service.model(body.model, ServedTask.EMBED_SPARSE),
        truncate=call.truncates(body.truncate),
        prompt_name=body.prompt_name,
        input_type=body.input_type,
        max_active_dims=body.max_active_dims,
        **split_ids(body.inputs, "inputs"),
    )


def _write_embed_sparse(call: Call, body: EmbedSparseRequest, request: TextRequest, outputs: TaskOutputs) -> Any:
    """Write the weights of each text, by ascending dimension."""
    count = len(request.texts) + len(request.ids)
    bounds = np.searchsorted(outputs["text_index"], np.arange(count + 1)).tolist()
    vectors = (
        [
            {"index": index, "value": value}
            for index, value in zip(outputs["index"][start:end].tolist(), outputs["value"][start:end], strict=True)
        ]
        for start, end in itertools.pairwise(bounds)
    )
    return json_list(vectors, 2 * len(outputs["value"]) // count)


EMBED_SPARSE = TextRoute(
    EmbedSparseRequest,
    lambda model: model.task is ServedTask.EMBED_SPARSE,
    _read_embed_sparse,
    _write_embed_sparse,
    lambda model: {"inputs": ["a cat on a mat", "a kitten on a rug"], "input_type": "document"},
)


def _is_single(inputs: str | list[str | list[str]]) -> bool:
    """Return whether inputs are a text or a pair: a string, or a list of two strings.

    A list of lists is a batch of texts and pairs, and a list of any other number of strings is a batch of texts.
    """
    return isinstance(inputs, str) or (len(inputs) == 2 and isinstance(inputs[0], str))


def _read_predict(call: Call, body: PredictRequest) -> TextRequest:
    if len(set(map(type, body.inputs))) > 1:
        raise invalid_field("inputs", _PAIRS, body.inputs)
    inputs: Any = [body.inputs] if _is_single(body.inputs) else body.inputs
    pairs = [[item] if isinstance(item, str) else item for item in inputs]
    return TextRequest(
        model=call.service.model(body.model, ServedTask.CLASSIFY),
        texts=[pair[0] for pair in pairs],
        seconds=[pair[1] if len(pair) == 2 else None for pair in pairs],
        raw=bool(body.raw_scores),
        truncate=call.truncates(body.truncate),
    )


def _write_predict(call: Call, body: PredictRequest, request: TextRequest, outputs: TaskOutputs) -> Any:
    """Write the classes of each text or pair, the most likely first."""
    scores, names = outputs["scores"], request.model.config.label_names
    ranked = (
        [{"score": row[i], "label": names[i]} for i in np.argsort(-row, kind="stable").tolist()] for row in scores
    )
    return next(ranked) if _is_single(body.inputs) else json_list(ranked, 2 * len(names))


PREDICT = TextRoute(
    PredictRequest,
    lambda model: model.task is ServedTask.CLASSIFY,
    _read_predict,
    _write_predict,
    lambda model: {"inputs": "a gripping, funny film", "model": model.name},
)


async def answer_info(call: Call) -> dict[str, Any]:
    """Answer `GET /info` for the first model; `models` describes all."""
    settings = call.service.settings
    described = [_describe(model) for model in call.service.models.values()]
    shapes = next(iter(call.service.models.values())).backends[0].shapes
    return {
        **described[0],
        "max_concurrent_requests": settings.max_concurrent_requests,
        "max_batch_tokens": max(shape.rows * shape.length for shape in shapes),
        "max_batch_requests": max(shape.rows for shape in shapes),
        "max_client_batch_size": settings.max_texts,
        "auto_truncate": settings.auto_truncate,
        "tokenization_workers": TOKENIZER_THREADS,
        "version": bert_jax.__version__,
        "sha": None,
        "docker_label": None,
        "models": described,
    }


def _describe(model: ServedModel) -> dict[str, Any]:
    names = model.config.label_names
    classes = {"id2label": {str(i): n for i, n in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}
    model_type: dict[ServedTask, dict[str, Any]] = {
        ServedTask.EMBED: {"embedding": {"pooling": model.config.pooling}},
        ServedTask.EMBED_SPARSE: {"embedding": {"pooling": model.config.pooling.partition("_")[0]}},
        ServedTask.CLASSIFY: {"reranker" if model.config.num_labels == 1 else "classifier": classes},
        ServedTask.TAG: {"classifier": classes},
        ServedTask.FILL_MASK: {"masked_lm": {}},
    }
    return {
        "model_id": model.name,
        "model_sha": None,
        "model_dtype": model.dtype,
        "model_type": model_type[model.task],
        "max_input_length": model.max_length,
    }
