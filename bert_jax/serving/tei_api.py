"""The API of text-embeddings-inference: `/embed`, `/predict` and `/info`."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import bert_jax
from bert_jax.serving import answers, fields
from bert_jax.serving.bodies import SMALL
from bert_jax.serving.endpoint import Call
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import Reason, Refusal
from bert_jax.serving.service import TOKENIZER_THREADS
from bert_jax.serving.tasks import ServedTask


async def answer_embed(call: Call) -> np.ndarray:
    """Answer `POST /embed` with an array `[N, D]`."""

    def read(body: dict[str, Any]) -> dict[str, Any]:
        _check_direction(body)
        texts, ids, _ = fields.texts_or_ids(body.get("inputs"), "inputs")
        return {
            "model": call.service.model(body.get("model"), ServedTask.EMBED),
            "texts": texts,
            "ids": ids,
            "truncate": fields.flag(body, "truncate", call.service.settings.auto_truncate),
            "prompt_name": fields.string(body, "prompt_name"),
            "normalize": fields.flag(body, "normalize", True),
            "dimensions": fields.integer(body, "dimensions", 1, 1 << 20),
        }

    return await answers.embed(call, **await call.request(read))


async def answer_predict(call: Call) -> Any:
    """Answer `POST /predict` with the classes of a text or a pair, or of a batch of them, the most likely first."""

    def read(body: dict[str, Any]) -> tuple[list[tuple[str, str | None]], bool, bool, bool, ServedModel]:
        _check_direction(body)
        pairs, single = _pairs(body.get("inputs"))
        raw = fields.flag(body, "raw_scores", False)
        truncate = fields.flag(body, "truncate", call.service.settings.auto_truncate)
        return pairs, single, raw, truncate, call.service.model(body.get("model"), ServedTask.CLASSIFY)

    pairs, single, raw, truncate, model = await call.request(read)
    logits = await answers.logits(call, model, pairs, truncate=truncate)
    scores = await call.compute(logits.size, lambda: answers.class_scores(model, logits, raw))
    ranked = _ranked(scores, model.config.label_names)
    if single:
        return next(ranked)
    return list(ranked) if scores.size <= SMALL else ranked


def _ranked(scores: np.ndarray, names: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield the classes of each row of scores `[N, C]`, the most likely first."""
    for row in scores:
        yield [{"score": row[i], "label": names[i]} for i in np.argsort(-row, kind="stable").tolist()]


def _pairs(inputs: Any) -> tuple[list[tuple[str, str | None]], bool]:
    """Return texts with their second texts, and whether it is a single input.

    A string is a text, a list of two strings is a pair, and a list of lists is a batch of texts and pairs. A list of
    any other number of strings is a batch of texts.
    """
    if isinstance(inputs, str):
        return [(inputs, None)], True
    if isinstance(inputs, list) and inputs:
        if all(isinstance(item, str) for item in inputs):
            return ([(inputs[0], inputs[1])], True) if len(inputs) == 2 else ([(text, None) for text in inputs], False)
        if all(
            isinstance(item, list) and 1 <= len(item) <= 2 and all(isinstance(t, str) for t in item) for item in inputs
        ):
            return [(item[0], item[1] if len(item) == 2 else None) for item in inputs], False
    raise fields.wrong("inputs", "a string, a pair of strings, or a list of lists of one or two strings", inputs)


def _check_direction(body: dict[str, Any]) -> None:
    """Raise `Refusal` when texts are to be cut on the left, which is a setting of the tokenizer here."""
    direction = fields.choice(body, "truncation_direction", ("right", "Right", "left", "Left"), "right")
    if direction.lower() == "left":
        raise Refusal(Reason.INVALID, "truncation_direction: expected Right, found Left; tokenizer_config.json sets it")


async def answer_info(call: Call) -> dict[str, Any]:
    """Answer `GET /info` for the first model; `models` describes all."""
    settings = call.service.settings
    described = [_describe(model) for model in call.service.models.values()]
    first = next(iter(call.service.models.values()))
    full = max(shape.rows * shape.length for shape in first.backends[0].shapes)
    return {
        **described[0],
        "max_concurrent_requests": settings.max_concurrent_requests,
        "max_batch_tokens": full,
        "max_batch_requests": max(shape.rows for shape in first.backends[0].shapes),
        "max_client_batch_size": settings.max_texts,
        "auto_truncate": settings.auto_truncate,
        "tokenization_workers": TOKENIZER_THREADS,
        "version": bert_jax.__version__,
        "sha": None,
        "docker_label": None,
        "models": described,
    }


def _describe(model: ServedModel) -> dict[str, Any]:
    return {
        "model_id": model.name,
        "model_sha": None,
        "model_dtype": model.dtype,
        "model_type": _model_type(model),
        "max_input_length": model.max_length,
    }


def _model_type(model: ServedModel) -> dict[str, Any]:
    names = model.config.label_names
    classes = {"id2label": {str(i): n for i, n in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}
    match model.task:
        case ServedTask.EMBED:
            return {"embedding": {"pooling": model.config.pooling}}
        case ServedTask.CLASSIFY:
            return {"reranker" if model.config.num_labels == 1 else "classifier": classes}
        case ServedTask.TAG:
            return {"classifier": classes}
        case _:
            return {"masked_lm": {}}
