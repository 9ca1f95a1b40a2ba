"""The Open Inference Protocol v2 over REST: `/v2`, its health, its models, and `/v2/models/NAME/infer`."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import bert_jax
from bert_jax.serving import answers, fields
from bert_jax.serving.endpoint import Call
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import Reason, Refusal
from bert_jax.serving.tasks import ServedTask

OutputTensor = tuple[str, str, list[int], Any]  # name, datatype, shape, flat data
# Outputs of each task: name, datatype and shape, with -1 for any size.
_OUTPUTS: dict[ServedTask, list[tuple[str, str, list[int]]]] = {
    ServedTask.EMBED: [("embedding", "FP32", [-1, -1])],
    ServedTask.CLASSIFY: [("scores", "FP32", [-1, -1]), ("label", "BYTES", [-1])],
    ServedTask.FILL_MASK: [
        ("text_index", "INT64", [-1]),
        ("token", "INT64", [-1, -1]),
        ("token_str", "BYTES", [-1, -1]),
        ("score", "FP32", [-1, -1]),
        ("sequence", "BYTES", [-1, -1]),
    ],
    ServedTask.TAG: [
        ("text_index", "INT64", [-1]),
        ("label", "BYTES", [-1]),
        ("score", "FP32", [-1]),
        ("start", "INT64", [-1]),
        ("end", "INT64", [-1]),
        ("word", "BYTES", [-1]),
    ],
}


async def answer_server(call: Call) -> dict[str, Any]:
    """Answer `GET /v2`."""
    return {"name": "bert_jax", "version": bert_jax.__version__, "extensions": []}


async def answer_live(call: Call) -> dict[str, Any]:
    """Answer `GET /v2/health/live`."""
    return {"live": True}


async def answer_ready(call: Call) -> dict[str, Any]:
    """Answer `GET /v2/health/ready`, and `GET /v2/models/NAME/ready`."""
    name = call.path.get("name")
    if name is not None:
        _named(call)
    if not call.service.ready:
        raise Refusal(Reason.NOT_READY, "expected a ready server, found one that starts or stops", 1)
    return {"ready": True} if name is None else {"name": name, "ready": True}


async def answer_metadata(call: Call) -> dict[str, Any]:
    """Answer `GET /v2/models/NAME`."""
    model = _named(call)
    labels = {"labels": list(model.config.label_names)} if model.task in (ServedTask.CLASSIFY, ServedTask.TAG) else {}
    names = ["text", "text_pair"] if model.task is ServedTask.CLASSIFY else ["text"]
    return {
        "name": model.name,
        "versions": ["1"],
        "platform": "bert_jax",
        "inputs": [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in names],
        "outputs": [{"name": name, "datatype": kind, "shape": shape} for name, kind, shape in _OUTPUTS[model.task]],
        "parameters": {"task": model.task.value} | labels,
    }


async def answer_infer(call: Call) -> dict[str, Any]:
    """Answer `POST /v2/models/NAME/infer`."""
    model = _named(call)
    request = await call.request(lambda body: _read(model, body))
    tensors = [tensor async for tensor in _run(call, model, request)]
    outputs = [
        {"name": name, "shape": shape, "datatype": kind, "data": data}
        for name, kind, shape, data in tensors
        if name in request.outputs
    ]
    answer = {"model_name": model.name, "model_version": "1", "outputs": outputs}
    return answer if request.id is None else answer | {"id": request.id}


class _Request(NamedTuple):
    """What a body asks for; `outputs` are names."""

    id: str | None
    parameters: dict[str, Any]
    texts: list[str]
    pairs: list[str] | None
    outputs: set[str]


def _read(model: ServedModel, body: dict[str, Any]) -> _Request:
    identifier = fields.string(body, "id")
    parameters = {} if body.get("parameters") is None else body["parameters"]
    if not isinstance(parameters, dict):
        raise fields.wrong("parameters", "an object", parameters)
    texts, pairs = _texts(model, body.get("inputs"))
    return _Request(identifier, parameters, texts, pairs, _wanted(model, body.get("outputs")))


def _named(call: Call) -> ServedModel:
    return call.service.model(call.path["name"], *ServedTask)


def _texts(model: ServedModel, inputs: Any) -> tuple[list[str], list[str] | None]:
    """Return the data of the inputs `text` and `text_pair`."""
    if not isinstance(inputs, list) or not inputs:
        raise fields.wrong("inputs", "a list of tensors", inputs)
    known = ("text", "text_pair") if model.task is ServedTask.CLASSIFY else ("text",)
    found: dict[str, list[str]] = {}
    for number, tensor in enumerate(inputs):
        where = f"inputs[{number}]"
        if not isinstance(tensor, dict):
            raise fields.wrong(where, "a tensor", tensor)
        name = tensor.get("name")
        if name not in known or name in found:
            raise fields.wrong(f"{where}.name", f"each of {', '.join(known)} at most once", name)
        if tensor.get("datatype") != "BYTES":
            raise fields.wrong(f"{where}.datatype", "BYTES", tensor.get("datatype"))
        found[str(name)] = _data(tensor, where)
    if "text" not in found:
        raise Refusal(Reason.INVALID, "inputs: expected a tensor text, found none")
    pairs = found.get("text_pair")
    if pairs is not None and len(pairs) != len(found["text"]):
        raise Refusal(Reason.INVALID, f"text_pair: expected {len(found['text'])} texts, found {len(pairs)}")
    return found["text"], pairs


def _data(tensor: dict[str, Any], where: str) -> list[str]:
    """Return the strings of a tensor of shape `[n]` or `[n, 1]`, whose data may be nested."""
    shape, data = tensor.get("shape"), tensor.get("data")
    fits = isinstance(shape, list) and 1 <= len(shape) <= 2 and shape[1:] in ([], [1])
    if not fits or not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in shape or ()):
        raise fields.wrong(f"{where}.shape", "[n] or [n, 1]", shape)
    if isinstance(data, list):
        data = [item[0] if isinstance(item, list) and len(item) == 1 else item for item in data]
    texts = fields.texts(data, f"{where}.data")
    assert shape is not None
    if len(texts) != math.prod(shape):
        raise Refusal(
            Reason.INVALID, f"{where}.data: expected {math.prod(shape)} strings, as in shape, found {len(texts)}"
        )
    return texts


def _wanted(model: ServedModel, outputs: Any) -> set[str]:
    """Return the names of the outputs that a request asks for; all of them if it names none."""
    known = [name for name, _, _ in _OUTPUTS[model.task]]
    if outputs is None:
        return set(known)
    if not isinstance(outputs, list):
        raise fields.wrong("outputs", "a list", outputs)
    names = [output.get("name") if isinstance(output, dict) else None for output in outputs]
    for number, name in enumerate(names):
        if name not in known:
            raise fields.wrong(f"outputs[{number}].name", f"one of {', '.join(known)}", name)
    return set(map(str, names))


async def _run(call: Call, model: ServedModel, request: _Request) -> Any:
    """Yield the output tensors of a request."""
    _, parameters, texts, pairs, _ = request
    truncate = fields.flag(parameters, "truncate", call.service.settings.auto_truncate)
    match model.task:
        case ServedTask.EMBED:
            name = fields.string(parameters, "prompt_name")
            vectors = await answers.embed(call, model, texts, truncate=truncate, prompt_name=name)
            yield "embedding", "FP32", list(vectors.shape), vectors.ravel()
        case ServedTask.CLASSIFY:
            seconds: list[str | None] = [None] * len(texts) if pairs is None else [*pairs]
            paired = list(zip(texts, seconds, strict=True))
            scores = answers.class_scores(model, await answers.logits(call, model, paired, truncate=truncate))
            names = model.config.label_names
            yield "scores", "FP32", list(scores.shape), scores.ravel()
            yield "label", "BYTES", [len(scores)], [names[i] for i in scores.argmax(axis=1).tolist()]
        case ServedTask.FILL_MASK:
            top_k = fields.integer(parameters, "top_k", 1, 1000) or 5
            masks = await answers.fill_masks(call, model, texts, top_k, truncate=truncate)
            for tensor in await call.compute(len(masks) * top_k, lambda: list(_of_masks(masks))):
                yield tensor
        case ServedTask.TAG:
            strategies = ("simple", "first", "average", "max")
            strategy = fields.choice(parameters, "aggregation_strategy", strategies, "first")
            found = await answers.entities(call, model, texts, strategy, truncate=truncate)
            for tensor in await call.compute(sum(map(len, found)), lambda: list(_of_entities(found))):
                yield tensor


def _of_masks(masks: list[dict[str, Any]]) -> Iterator[OutputTensor]:
    yield "text_index", "INT64", [len(masks)], [mask["text_index"] for mask in masks]
    for name, kind in (("token", "INT64"), ("token_str", "BYTES"), ("score", "FP32"), ("sequence", "BYTES")):
        data = [item for mask in masks for item in mask[name]]
        yield name, kind, [len(masks), len(data) // len(masks)], np.array(data, np.float32) if kind == "FP32" else data


def _of_entities(found: list[list[dict[str, Any]]]) -> Iterator[OutputTensor]:
    flat = [(index, entity) for index, entities in enumerate(found) for entity in entities]
    yield "text_index", "INT64", [len(flat)], [index for index, _ in flat]
    for name, key, kind in (("label", "entity_group", "BYTES"), ("score", "score", "FP32"), ("start", "start", "INT64"),
                            ("end", "end", "INT64"), ("word", "word", "BYTES")):  # fmt: skip
        yield name, kind, [len(flat)], [entity[key] for _, entity in flat]
