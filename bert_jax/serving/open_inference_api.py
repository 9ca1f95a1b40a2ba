"""The Open Inference Protocol v2 over REST: `/v2`, its health, its models, and `/v2/models/NAME/infer`."""

import math
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

import bert_jax
from bert_jax.serving.answers import TASK_OUTPUTS, TaskOutputs, TextRequest, TextRoute
from bert_jax.serving.bodies import invalid_field, json_list
from bert_jax.serving.body_fields import Dimensions, InputType
from bert_jax.serving.endpoint import Call
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import Reason, Refusal
from bert_jax.serving.tasks import ServedTask

_SHAPE = "[n] or [n, 1]"


class InputTensor(msgspec.Struct):
    """A tensor of texts, or of second texts."""

    name: str
    shape: Annotated[
        list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=1, max_length=2, description=_SHAPE)
    ]
    datatype: Literal["BYTES"]
    data: Annotated[
        list[str | Annotated[list[str], msgspec.Meta(min_length=1, max_length=1)]],
        msgspec.Meta(description="a list of strings"),
    ]


class InferParameters(msgspec.Struct):
    """The options of a request; each applies to some tasks only."""

    truncate: bool | None = None
    prompt_name: str | None = None
    input_type: InputType = None
    max_active_dims: Dimensions = None
    top_k: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    aggregation_strategy: Literal["simple", "first", "average", "max"] | None = None


class RequestedOutput(msgspec.Struct):
    """An output that the client requests."""

    name: str


class InferRequest(msgspec.Struct):
    """The body of `/v2/models/NAME/infer`."""

    inputs: Annotated[list[InputTensor], msgspec.Meta(min_length=1, description="a list of tensors")]
    id: str | None = None
    parameters: InferParameters | None = None
    outputs: Annotated[list[RequestedOutput], msgspec.Meta(description="a list of outputs")] | None = None


async def answer_server(call: Call) -> dict[str, Any]:
    """Answer `GET /v2`."""
    return {"name": "bert_jax", "version": bert_jax.__version__, "extensions": []}


async def answer_live(call: Call) -> dict[str, Any]:
    """Answer `GET /v2/health/live`."""
    return {"live": True}


async def answer_ready(call: Call) -> dict[str, Any]:
    """Answer `GET /v2/health/ready`, and `GET /v2/models/NAME/ready`."""
    name = {"name": _model(call).name} if "name" in call.path else {}
    if not call.service.ready:
        raise Refusal(Reason.NOT_READY, "expected a ready server, found one that is starting or stopping", 1)
    return {**name, "ready": True}


async def answer_metadata(call: Call) -> dict[str, Any]:
    """Answer `GET /v2/models/NAME`."""
    model = _model(call)
    labels = {"labels": list(model.config.label_names)} if model.task in (ServedTask.CLASSIFY, ServedTask.TAG) else {}
    return {
        "name": model.name,
        "versions": ["1"],
        "platform": "bert_jax",
        "inputs": [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in _input_names(model)],
        "outputs": [{"name": name, "datatype": kind, "shape": shape} for name, kind, shape in TASK_OUTPUTS[model.task]],
        "parameters": {"task": model.task.value} | labels,
    }


def _model(call: Call) -> ServedModel:
    return call.service.model(call.path["name"], *ServedTask)


def _input_names(model: ServedModel) -> list[str]:
    return ["text", "text_pair"] if model.task is ServedTask.CLASSIFY else ["text"]


def _read(call: Call, body: InferRequest) -> TextRequest:
    model = _model(call)
    names, output_names = _input_names(model), [name for name, _, _ in TASK_OUTPUTS[model.task]]
    tensors: dict[str, list[str]] = {}
    for number, tensor in enumerate(body.inputs):
        if tensor.name not in names or tensor.name in tensors:
            raise invalid_field(f"inputs[{number}].name", f"each of {', '.join(names)} at most once", tensor.name)
        tensors[tensor.name] = _texts(tensor, f"inputs[{number}]")
    if "text" not in tensors:
        raise Refusal(Reason.INVALID, "inputs: expected a tensor text, found none")
    texts, pairs = tensors["text"], tensors.get("text_pair")
    if pairs is not None and len(pairs) != len(texts):
        raise Refusal(Reason.INVALID, f"text_pair: expected {len(texts)} texts, found {len(pairs)}")
    for number, output in enumerate(body.outputs or ()):
        if output.name not in output_names:
            raise invalid_field(f"outputs[{number}].name", f"one of {', '.join(output_names)}", output.name)
    options = body.parameters or InferParameters()
    return TextRequest(
        model=model,
        texts=texts,
        seconds=pairs or (),
        truncate=call.truncates(options.truncate),
        prompt_name=options.prompt_name,
        input_type=options.input_type,
        max_active_dims=options.max_active_dims,
        top_k=options.top_k or 5,
        strategy=options.aggregation_strategy or "first",
    )


def _texts(tensor: InputTensor, where: str) -> list[str]:
    """Return the strings of a tensor of shape `[n]` or `[n, 1]`, whose data may be nested."""
    if tensor.shape[1:] not in ([], [1]):
        raise invalid_field(f"{where}.shape", _SHAPE, tensor.shape)
    if len(tensor.data) != (size := math.prod(tensor.shape)):
        message = f"{where}.data: expected {size} strings, as in shape, found {len(tensor.data)}"
        raise Refusal(Reason.INVALID, message)
    return [item if isinstance(item, str) else item[0] for item in tensor.data]


def _write(call: Call, body: InferRequest, request: TextRequest, outputs: TaskOutputs) -> Any:
    requested = outputs.keys() if body.outputs is None else {output.name for output in body.outputs}
    tensors = [
        {"name": name, "shape": list(outputs[name].shape), "datatype": kind, "data": _data(outputs[name])}
        for name, kind, _ in TASK_OUTPUTS[request.model.task]
        if name in requested
    ]
    answer = {"model_name": request.model.name, "model_version": "1", "outputs": tensors}
    return answer if body.id is None else {**answer, "id": body.id}


def _data(array: np.ndarray) -> Any:
    """Return the flat data of an output as JSON."""
    return json_list(array.ravel().tolist() if array.dtype == np.object_ else array.ravel(), 1)


def _example(model: ServedModel) -> dict[str, Any]:
    text = "a cat on a mat"
    if model.task is ServedTask.FILL_MASK:
        text = f"a cat on a {model.tokenizer.id_to_token(model.tokenizer.mask_id)}"
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}
    parameters = {"parameters": {"top_k": 3}} if model.task is ServedTask.FILL_MASK else {}
    return {"id": "1", "inputs": [tensor], **parameters}


INFER = TextRoute(InferRequest, lambda model: True, _read, _write, _example)
