"""Turn a request of any API into vectors, sparse or not, class scores, filled masks or entities."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.entities import Pieces, entities_of, words_begin
from bert_jax.inference.filled_text import filled_text
from bert_jax.inference.scoring import scores_of, softmax
from bert_jax.inference.similarity import normalize_vectors
from bert_jax.inference.sparse_vectors import active, greatest_weights, lexical_vector, look_up_tokens
from bert_jax.serving.batching import Row
from bert_jax.serving.bodies import encode_json
from bert_jax.serving.endpoint import Call
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import Reason, Refusal
from bert_jax.serving.tasks import ServedTask

_MOST_LOGITS = 1 << 23  # maximum number of mask logits in memory at a time, per request
# Limit on tokens in the filled sequences, or on weights of sparse vectors, as a multiple of `max_request_tokens`.
_ANSWERED = 32

TaskOutputs = dict[str, np.ndarray]  # name in `TASK_OUTPUTS` -> array of numbers, or of strings as objects
# Task -> its outputs: name, datatype of the Open Inference Protocol, and shape with -1 for any size.
TASK_OUTPUTS: dict[ServedTask, list[tuple[str, str, list[int]]]] = {
    ServedTask.EMBED: [("embedding", "FP32", [-1, -1])],
    ServedTask.EMBED_SPARSE: [("text_index", "INT64", [-1]), ("index", "INT64", [-1]), ("value", "FP32", [-1])],
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
_DTYPES = {"FP32": np.float32, "INT64": np.int64, "BYTES": np.object_}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest:
    """Texts for a model, with the options of its task.

    Attributes:
        model: the model.
        texts: N texts, or none if there are `ids`.
        truncate: whether long texts are cut.
        seconds: for a classifier, the second text of each pair, and None for a single text; empty = no pairs.
        ids: N texts as token ids without special tokens, for an embedding model.
        prompt_name: name of the prompt before each text; None = the prompt of `input_type`, or the model's default.
        input_type: `query` or `document`, as which the texts are embedded; None = neither.
        normalize: whether to scale vectors to length 1; None = as the model's files say.
        dimensions: number of leading dimensions of vectors to keep; None = as the model's files say.
        max_active_dims: number of greatest weights of sparse vectors to keep; None = as the model's files say.
        raw: whether class scores are logits, without the model's activation.
        top_k: number of tokens to predict for each mask.
        strategy: how a word gets its class from its tokens: `simple`, `first`, `average` or `max`.
    """

    model: ServedModel
    texts: Sequence[str] = ()
    truncate: bool = False
    seconds: Sequence[str | None] = ()
    ids: Sequence[Sequence[int]] = ()
    prompt_name: str | None = None
    input_type: str | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    max_active_dims: int | None = None
    raw: bool = False
    top_k: int = 5
    strategy: str = "first"

    @property
    def is_looked_up(self) -> bool:
        """Return whether the texts are queries that `query_weights` embed, without a forward pass."""
        model = self.model
        return model.query_weights is not None and (self.input_type or model.settings.default_route) == "query"


class _Item(NamedTuple):
    """A row of a request, with the data that turn its output into an answer.

    Attributes:
        row: the tokens.
        text: number of its text in the request.
        ranges: character ranges `[S, 2]` of its tokens, for entities.
        only: whether its mask is the only one in the text.
    """

    row: Row
    text: int = 0
    ranges: np.ndarray | None = None
    only: bool = True


@dataclasses.dataclass(frozen=True)
class TextRoute:
    """A route that runs a model on texts and answers with its outputs.

    Attributes:
        body: the `msgspec.Struct` of its request bodies.
        fits: function of a model that returns whether the route serves it.
        read: function of a call and its body that returns the request; it may raise `Refusal`.
        write: function of a call, its body, the request and the outputs that returns the value to answer as JSON.
        example: function of a model that returns a body, for the page and /openapi.json.
    """

    body: type[msgspec.Struct]
    fits: Callable[[ServedModel], bool]
    read: Callable[[Call, Any], TextRequest]
    write: Callable[[Call, Any, TextRequest, TaskOutputs], Any]
    example: Callable[[ServedModel], dict[str, Any]]

    async def __call__(self, call: Call) -> bytes:
        """Answer a call with JSON."""
        body, request = await call.request(self.body, self.read)
        outputs = await answer(call, request)
        size = sum(array.size for array in outputs.values())
        return await call.compute(size, lambda: encode_json(self.write(call, body, request, outputs)))


async def answer(call: Call, request: TextRequest) -> TaskOutputs:
    """Run a model on the texts of a request; the outputs have a row for each text, mask or entity.

    Raises:
        Refusal: an option is not valid for the model, a text is too long, or the request cannot be run.
    """
    model, service = request.model, call.service
    call.texts, call.model = len(request.texts) + len(request.ids), model.name
    service.check_texts(call.texts)
    if not request.is_looked_up:
        service.check(model, call.texts)
    tokenize, finish = _STEPS[model.task]
    texts = [*request.texts, *filter(None, request.seconds)]
    items = await service.in_thread(lambda: tokenize(call, request), texts)
    step = max(1, _MOST_LOGITS // model.config.vocab_size) if model.task is ServedTask.FILL_MASK else len(items)
    parts = []
    for start in range(0, len(items), step):
        part = items[start : start + step]
        rows = [item.row for item in part]
        outputs = call.look_up(model, rows) if request.is_looked_up else await call.run(model, rows)
        function = functools.partial(finish, request, part, outputs)
        if model.task in (ServedTask.EMBED, ServedTask.EMBED_SPARSE, ServedTask.CLASSIFY):
            parts.append(await call.compute(sum(output.size for output in outputs), function))
        else:  # these use the tokenizer
            parts.append(await service.in_thread(function))
    most = _ANSWERED * service.settings.max_request_tokens
    if model.task is ServedTask.EMBED_SPARSE and (found := len(parts[0]["value"])) > most:
        message = f"max_active_dims: expected at most {most} weights in an answer, found {found}"
        raise Refusal(Reason.TOO_LARGE, message)
    return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _check_ids_allowed(call: Call, request: TextRequest) -> None:
    """Raise `Refusal` for token ids, unless the server accepts them."""
    if request.ids and not call.service.settings.token_ids:
        raise Refusal(
            Reason.INVALID,
            "expected texts, found token ids, which are valid only if this model's tokenizer made them: send texts "
            "(LangChain: check_embedding_ctx_length=False), or serve with --token-ids",
        )


def _tokenize_to_embed(call: Call, request: TextRequest) -> list[_Item]:
    model, settings = request.model, request.model.settings
    _check_ids_allowed(call, request)
    size = model.config.sentence_embedding_size
    if request.dimensions is not None and request.dimensions > size:
        raise Refusal(Reason.INVALID, f"dimensions: expected at most {size}, found {request.dimensions}")
    if request.normalize is False and model.normalized:
        raise Refusal(Reason.INVALID, "normalize: expected true, as the ONNX file normalizes vectors, found false")
    if request.ids:
        return [_Item(row) for row in model.rows_of_ids(request.ids, request.truncate)]
    prompt = settings.prompt_of_task(request.input_type, request.prompt_name)
    rows = model.rows(request.texts, None, request.truncate, prompt)
    skip = settings.pooling_skip(model.tokenizer, prompt, model.max_length)
    return [_Item(dataclasses.replace(row, pooling_skip=skip) if skip else row) for row in rows]


def _vectors(request: TextRequest, items: Sequence[_Item], outputs: Sequence[np.ndarray]) -> TaskOutputs:
    model = request.model
    vectors = np.stack(outputs)[:, : model.settings.dimension(request.dimensions)]
    normalize = model.config.normalize_embeddings if request.normalize is None else request.normalize
    return {"embedding": np.ascontiguousarray(normalize_vectors(vectors) if normalize else vectors, np.float32)}


def _tokenize_to_embed_sparse(call: Call, request: TextRequest) -> list[_Item]:
    model, truncate = request.model, request.truncate
    _check_ids_allowed(call, request)
    prompt = model.settings.prompt_of_task(request.input_type, request.prompt_name)
    if request.is_looked_up:
        rows = model.query_rows(request.texts, request.ids, truncate, prompt)
    elif request.ids:
        rows = model.rows_of_ids(request.ids, truncate)
    else:
        rows = model.rows(request.texts, None, truncate, prompt)
    return [_Item(row) for row in rows]


def _sparse_vectors(request: TextRequest, items: Sequence[_Item], outputs: Sequence[np.ndarray]) -> TaskOutputs:
    """Return the weights of all texts in the order of the texts, and then of the dimensions."""
    model = request.model
    most = request.max_active_dims or model.settings.max_active_dims
    vectors = [_sparse_vector(request, item.row, output, most) for item, output in zip(items, outputs, strict=True)]
    sizes = [len(indices) for indices, _ in vectors]
    indices, values = (np.concatenate(arrays) for arrays in zip(*vectors, strict=True))
    return {"text_index": np.repeat(np.arange(len(sizes)), sizes), "index": indices.astype(np.int64), "value": values}


def _sparse_vector(
    request: TextRequest, row: Row, output: np.ndarray, most: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the dimensions and weights of a text, at most the `most` greatest."""
    model = request.model
    if request.is_looked_up:
        assert model.query_weights is not None
        return look_up_tokens(model.query_weights, output, most)
    if model.config.pooling == "lexical":
        return active(lexical_vector(model.tokenizer, row.input_ids, output, model.config.vocab_size), most)
    return greatest_weights(output["index"], output["value"], most)


def _tokenize_to_classify(call: Call, request: TextRequest) -> list[_Item]:
    model, texts = request.model, request.texts
    seconds = request.seconds or [None] * len(texts)
    rows: dict[int, Row] = {}
    for paired in (False, True):
        numbers = [number for number, second in enumerate(seconds) if (second is not None) is paired]
        if numbers:
            others = [str(seconds[number]) for number in numbers] if paired else None
            firsts = [texts[number] for number in numbers]
            encoded = model.rows(firsts, others, request.truncate, model.settings.prompt())
            rows.update(zip(numbers, encoded, strict=True))
    return [_Item(rows[number]) for number in range(len(texts))]


def _classes(request: TextRequest, items: Sequence[_Item], outputs: Sequence[np.ndarray]) -> TaskOutputs:
    config, logits = request.model.config, np.stack(outputs)
    scores = logits if request.raw else scores_of(config, logits, request.model.settings.activation)
    labels = np.array(config.label_names, np.object_)[scores.argmax(axis=1)]
    return {"scores": scores.astype(np.float32), "label": labels}


def _tokenize_to_fill(call: Call, request: TextRequest) -> list[_Item]:
    model, service, tokenizer = request.model, call.service, request.model.tokenizer
    rows = model.rows(request.texts, None, request.truncate)
    positions = [np.flatnonzero(row.input_ids == tokenizer.mask_id).tolist() for row in rows]
    for number, masks in enumerate(positions):
        if not masks:
            mask = tokenizer.id_to_token(tokenizer.mask_id)
            raise InputError(f"text {number}: expected a {mask} to fill, found none")
    tokens = sum(row.size * len(masks) for row, masks in zip(rows, positions, strict=True))
    service.check_tokens(tokens)  # checked before a row is made for each mask
    service.check(model, sum(map(len, positions)))
    if tokens * request.top_k > (most := _ANSWERED * service.settings.max_request_tokens):
        message = f"expected at most {most} tokens in the sequences of all masks, found {tokens * request.top_k}"
        raise Refusal(Reason.TOO_LARGE, f"top_k: {message}")
    return [
        _Item(Row(row.input_ids, row.token_type_ids, position), number, only=len(masks) == 1)
        for number, (row, masks) in enumerate(zip(rows, positions, strict=True))
        for position in masks
    ]


def _filled_masks(request: TextRequest, items: Sequence[_Item], outputs: Sequence[np.ndarray]) -> TaskOutputs:
    tokenizer, filled = request.model.tokenizer, []
    for item, output in zip(items, outputs, strict=True):
        probabilities = softmax(output)[: tokenizer.vocab_size]
        best = np.argsort(-probabilities, kind="stable")[: request.top_k].tolist()
        ids, position = item.row.input_ids, item.row.masked_position
        strings = [tokenizer.decode([token], skip_special_tokens=False) for token in best]
        sequences = [filled_text(tokenizer, ids, position, token, item.only) for token in best]
        filled.append((item.text, best, strings, probabilities[best], sequences))
    return _columns(request, filled)


def _tokenize_to_tag(call: Call, request: TextRequest) -> list[_Item]:
    model = request.model
    room, items = model.max_length - model.tokenizer.layout.num_special(False), []
    for number, (ids, ranges) in enumerate(model.tokenizer.segments(request.texts, offsets=True)):
        if len(ids) > room and not request.truncate:
            raise InputError(f"text {number}: expected at most {room} tokens, found {len(ids)}")
        characters = np.array(ranges[:room], np.int64).reshape(-1, 2)
        items.append(_Item(model.row_of_ids(ids[:room]), number, characters))
    return items


def _entities(request: TextRequest, items: Sequence[_Item], outputs: Sequence[np.ndarray]) -> TaskOutputs:
    model, entities = request.model, []
    first = len(model.tokenizer.layout.start)
    for item, output in zip(items, outputs, strict=True):
        assert item.ranges is not None
        text, tokens = request.texts[item.text], slice(first, first + len(item.ranges))
        pieces = Pieces(item.row.input_ids[tokens], item.ranges, softmax(output[tokens]))
        begins = None if request.strategy == "simple" else words_begin(text, pieces, model.tokenizer)
        for entity in entities_of(text, pieces, model.config.label_names, begins, request.strategy):
            if entity["entity_group"] != "O":
                entities.append(
                    (item.text, *(entity[key] for key in ("entity_group", "score", "start", "end", "word")))
                )
    return _columns(request, entities)


def _columns(request: TextRequest, rows: Sequence[tuple[Any, ...]]) -> TaskOutputs:
    """Return the outputs of a task from rows, each a tuple with one value per output."""
    columns = zip(*rows, strict=True) if rows else [()] * len(TASK_OUTPUTS[request.model.task])
    return {
        name: np.array(column, _DTYPES[kind])
        for (name, kind, _), column in zip(TASK_OUTPUTS[request.model.task], columns, strict=True)
    }


_STEPS: dict[ServedTask, tuple[Callable[[Call, TextRequest], list[_Item]], Callable[..., TaskOutputs]]] = {
    ServedTask.EMBED: (_tokenize_to_embed, _vectors),
    ServedTask.EMBED_SPARSE: (_tokenize_to_embed_sparse, _sparse_vectors),
    ServedTask.CLASSIFY: (_tokenize_to_classify, _classes),
    ServedTask.FILL_MASK: (_tokenize_to_fill, _filled_masks),
    ServedTask.TAG: (_tokenize_to_tag, _entities),
}
