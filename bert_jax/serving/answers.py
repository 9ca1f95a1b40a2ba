"""From texts to vectors, class scores, filled masks and entities, for the routes of all APIs."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.entities import Pieces, entities_of, words_begin
from bert_jax.inference.filled_text import filled_text
from bert_jax.inference.scoring import match_output, scores_of, softmax
from bert_jax.inference.similarity import normalize_vectors
from bert_jax.serving.batching import Row
from bert_jax.serving.endpoint import Call
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import Reason, Refusal

_MOST_LOGITS = 1 << 23  # logits of masks in memory at a time, for each request
_ANSWERED = 32  # most tokens in the sequences of filled masks, as a multiple of the most tokens of a request


async def embed(
    call: Call,
    model: ServedModel,
    texts: Sequence[str],
    ids: Sequence[Sequence[int]] = (),
    *,
    truncate: bool,
    prompt_name: str | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
) -> np.ndarray:
    """Return the vectors of texts, or of texts as token ids.

    Args:
        call: the request.
        model: an embedding model.
        texts: N texts, or none if `ids` are given.
        ids: N texts as token ids without special tokens.
        truncate: whether long texts are cut.
        prompt_name: name of the prompt to put before each text; None = the model's default.
        normalize: whether the vectors have length 1; None = as the model's files say.
        dimensions: number of leading dimensions to keep; None = as the model's files say.

    Returns:
        float32 `[N, dimensions]`.

    Raises:
        Refusal: an argument does not fit the model, or the request cannot be run.
    """
    call.texts, call.model = len(texts) + len(ids), model.name
    call.service.check(model, call.texts)
    if ids and not call.service.settings.token_ids:
        raise Refusal(
            Reason.INVALID,
            "expected texts, found token ids, which mean nothing unless they are of this model's tokenizer: send texts "
            "(LangChain: check_embedding_ctx_length=False), or serve with --token-ids",
        )
    size, settings = model.config.sentence_embedding_size, model.settings
    if dimensions is not None and dimensions > size:
        raise Refusal(Reason.INVALID, f"dimensions: expected at most {size}, found {dimensions}")
    if normalize is False and model.normalized:
        raise Refusal(Reason.INVALID, "normalize: expected true, as the ONNX file normalizes vectors, found false")

    def tokenize() -> list[Row]:
        if ids:
            return model.rows_of_ids(ids, truncate)
        prompt = settings.prompt(prompt_name)
        if not settings.include_prompt and prompt != settings.prompt():
            raise InputError(
                f"prompt_name: expected the default, as the model does not pool prompts, found {prompt_name!r}"
            )
        return model.rows(texts, None, truncate, prompt)

    outputs = await call.run(model, await call.service.in_thread(tokenize, texts))
    wanted = model.config.normalize_embeddings if normalize is None else normalize

    def cut() -> np.ndarray:
        vectors = np.stack(outputs)[:, : settings.dimension(dimensions)]
        return np.ascontiguousarray(normalize_vectors(vectors) if wanted else vectors, np.float32)

    return await call.compute(len(outputs) * size, cut)


async def logits(
    call: Call, model: ServedModel, pairs: Sequence[tuple[str, str | None]], *, truncate: bool
) -> np.ndarray:
    """Return the logits `[N, C]` of a classifier.

    Args:
        call: the request.
        model: a sequence classifier.
        pairs: N texts, each with a second text or None.
        truncate: whether long texts are cut.

    Raises:
        Refusal: a text does not fit the model, or the request cannot be run.
    """
    call.texts, call.model = len(pairs), model.name
    call.service.check(model, len(pairs))

    def tokenize() -> list[Row]:
        rows: list[Row | None] = [None] * len(pairs)
        for paired in (False, True):
            numbers = [i for i, (_, second) in enumerate(pairs) if (second is not None) is paired]
            if numbers:
                seconds = [str(pairs[i][1]) for i in numbers] if paired else None
                made = model.rows([pairs[i][0] for i in numbers], seconds, truncate, model.settings.prompt())
                for i, row in zip(numbers, made, strict=True):
                    rows[i] = row
        return [row for row in rows if row is not None]

    texts = [text for pair in pairs for text in pair if text]
    outputs = await call.run(model, await call.service.in_thread(tokenize, texts))
    return await call.compute(len(outputs) * model.config.num_labels, lambda: np.stack(outputs))


def class_scores(model: ServedModel, found: np.ndarray, raw: bool = False) -> np.ndarray:
    """Return float32 scores `[N, C]` of logits `[N, C]`: the logits if `raw`, else with the model's activation."""
    return (found if raw else scores_of(model.config, found, model.settings.activation)).astype(np.float32)


async def relevance(
    call: Call, model: ServedModel, query: str, documents: Sequence[str], *, truncate: bool, raw: bool = False
) -> np.ndarray:
    """Return the relevance `[N]` of documents to a query: the score of a model's only output, or of one of two.

    Raises:
        Refusal: the model has more than two outputs, or as `logits` does.
    """
    if (outputs := model.config.num_labels) > 2:
        raise Refusal(
            Reason.WRONG_MODEL, f"model {model.name!r}: expected one output or two to rerank, found {outputs}"
        )
    found = await logits(call, model, [(query, document) for document in documents], truncate=truncate)
    return class_scores(model, found, raw)[:, match_output(model.config)]


async def fill_masks(
    call: Call, model: ServedModel, texts: Sequence[str], top_k: int, *, truncate: bool
) -> list[dict[str, Any]]:
    """Return the most likely tokens for each mask token of the texts, in order.

    Args:
        call: the request.
        model: a masked language model.
        texts: texts with one or more mask tokens each.
        top_k: number of tokens per mask.
        truncate: whether long texts are cut.

    Returns:
        A dict per mask of `text_index`, and lists of `top_k` items: `token` (ids), `token_str`, `score`
        (probabilities), and `sequence` (the text with the token filled in).

    Raises:
        Refusal: a text has no mask, or the request cannot be run.
    """
    call.texts, call.model = len(texts), model.name
    call.service.check(model, len(texts))
    tokenizer = model.tokenizer

    def tokenize() -> list[_Mask]:
        rows = model.rows(texts, None, truncate)
        places = [np.flatnonzero(row.input_ids == tokenizer.mask_id) for row in rows]
        for number, positions in enumerate(places):
            if not len(positions):
                mask = tokenizer.id_to_token(tokenizer.mask_id)
                raise InputError(f"text {number}: expected a {mask} to fill, found none")
        count = sum(map(len, places))
        tokens = sum(row.size * len(positions) for row, positions in zip(rows, places, strict=True))
        call.service.check_tokens(tokens)  # before there is a row for each mask
        call.service.check(model, count)
        if tokens * top_k > (most := _ANSWERED * call.service.settings.max_request_tokens):
            message = f"top_k: expected at most {most} tokens in the sequences of all masks, found {tokens * top_k}"
            raise Refusal(Reason.TOO_LARGE, message)
        return [_Mask(number, len(positions) == 1, Row(row.input_ids, row.token_type_ids, position))
                for number, (row, positions) in enumerate(zip(rows, places, strict=True))
                for position in positions.tolist()]  # fmt: skip

    masks = await call.service.in_thread(tokenize, texts)
    step = max(1, _MOST_LOGITS // model.config.vocab_size)
    found: list[dict[str, Any]] = []
    for start in range(0, len(masks), step):
        some = masks[start : start + step]
        outputs = await call.run(model, [mask.row for mask in some])
        fill = functools.partial(_fill, model, some, outputs, top_k)
        found += await call.service.in_thread(fill)
    return found


class _Mask(NamedTuple):
    """A mask to fill.

    Attributes:
        text: number of its text.
        only: whether it is the only one of the text.
        row: the tokens of the text, and the position of the mask.
    """

    text: int
    only: bool
    row: Row


def _fill(
    model: ServedModel, masks: Sequence[_Mask], outputs: Sequence[np.ndarray], top_k: int
) -> list[dict[str, Any]]:
    """Return the answer for each mask, by its logits `[V]`."""
    tokenizer, found = model.tokenizer, []
    for mask, output in zip(masks, outputs, strict=True):
        probabilities = softmax(output)[: tokenizer.vocab_size]
        best = np.argsort(-probabilities, kind="stable")[:top_k].tolist()
        ids, position = mask.row.input_ids, mask.row.masked_position
        found.append({
            "text_index": mask.text,
            "token": best,
            "token_str": [tokenizer.decode([token], skip_special_tokens=False) for token in best],
            "score": probabilities[best],
            "sequence": [filled_text(tokenizer, ids, position, token, mask.only) for token in best],
        })  # fmt: skip
    return found


async def entities(
    call: Call, model: ServedModel, texts: Sequence[str], strategy: str, *, truncate: bool
) -> list[list[dict[str, Any]]]:
    """Return the entities of each text, without those of type `O`.

    Args:
        call: the request.
        model: a token classifier.
        texts: N texts.
        strategy: `simple`, `first`, `average` or `max`, as for `TokenClassification`.
        truncate: whether long texts are cut.

    Returns:
        N lists of dicts of `entity_group`, `score`, `word`, `start` and `end` (characters of the text).

    Raises:
        Refusal: a text is too long, or the request cannot be run.
    """
    call.texts, call.model = len(texts), model.name
    call.service.check(model, len(texts))
    layout = model.tokenizer.layout
    room = model.max_length - layout.num_special(False)

    def tokenize() -> tuple[list[tuple[np.ndarray, np.ndarray]], list[Row]]:
        found = []
        for number, (ids, ranges) in enumerate(model.tokenizer.segments(texts, offsets=True)):
            if len(ids) > room and not truncate:
                raise InputError(f"text {number}: expected at most {room} tokens, found {len(ids)}")
            found.append((np.array(ids[:room], np.int64), np.array(ranges[:room], np.int64).reshape(-1, 2)))
        return found, [model.row_of_ids(ids) for ids, _ in found]

    encoded, rows = await call.service.in_thread(tokenize, texts)
    outputs = await call.run(model, rows)

    def answers() -> list[list[dict[str, Any]]]:
        found = []
        for text, (ids, ranges), output in zip(texts, encoded, outputs, strict=True):
            shares = softmax(output[len(layout.start) : len(layout.start) + len(ids)])
            pieces = Pieces(ids, ranges, shares)
            begins = None if strategy == "simple" else words_begin(text, pieces, model.tokenizer)
            groups = entities_of(text, pieces, model.config.label_names, begins, strategy)
            found.append([group for group in groups if group["entity_group"] != "O"])
        return found

    return await call.service.in_thread(answers)
