"""Rows of prompts and answers, for masked diffusion: read them from a table, tokenize them, and mask the answers.

A row is `[CLS] prompt [SEP] answer [SEP]`, or `[CLS] answer [SEP]` without a prompt, with the special tokens of the
tokenizer's layout. The token at the end of a row is the end-of-text token. Several end-of-text tokens may follow an
answer and fill the region that is generated, so that a model learns where an answer ends.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.diffusion import EVALUATION, Noise, add_noise
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.features import Features
from bert_jax.data.finetuning.packing import PackedSource
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.finetuning.tables import read_rows
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_texts, check_utf8, place
from bert_jax.data.json_files import json_objects
from bert_jax.data.pretraining.masking import hash_counters, uniform
from bert_jax.errors import InputError
from bert_jax.tokenization import RowLayout, Tokenizer

ANSWER_FILLS = ("random", "full", "none")
ANSWERING_ROLE = "assistant"  # the role in a conversation whose messages are answers
_FILLING = 7  # the stream of random numbers that choose the lengths of answer regions


@dataclasses.dataclass(frozen=True)
class PromptAnswer:
    """A prompt and its answer.

    Attributes:
        line: the 1-based line of the row, or its index in a data set.
        prompt: the messages before the answer: a conversation has several, a prompt one, a text without a prompt none.
        answer: the text to generate; None if answers are not read.
    """

    line: int
    prompt: tuple[str, ...]
    answer: str | None


def read_answers(
    spec: Any, columns: Columns, bad: InvalidRows | None = None, answered: bool = True
) -> Iterator[PromptAnswer]:
    """Yield the prompts and answers of a table.

    Args:
        spec: a table, as for `bert_jax.data.finetuning.tables.read_rows`; a JSON file if `columns.texts` is set.
        columns: `text` is the column of the prompt ("" = none) and `label` that of the answer ("" = not read).
            Alternatively, `texts` is a column of conversations: lists of `{"role": ..., "content": ...}`. Each message
            with the role "assistant" is an answer to the messages before it.
        answered: whether the answers in conversations are read; otherwise each conversation is one prompt for the next
            answer, and an answer at its end is dropped.
        bad: counts invalid rows; None: invalid rows are an error.

    Raises:
        InputError: as for `read_rows`, or an answer is empty, or a conversation is malformed.
    """
    invalid = bad or InvalidRows(table_name(spec))
    rows = _conversations(spec, columns, invalid, answered) if columns.texts else _prompts(spec, columns, invalid)
    return rows if bad else invalid.fitting(rows)


def _prompts(spec: Any, columns: Columns, bad: InvalidRows) -> Iterator[PromptAnswer]:
    def read(row: tuple[int, dict[str, Any]]) -> PromptAnswer:
        line, values = row
        check_texts(
            place(table_name(spec), line), {name: values[name] for name in (columns.text, columns.label) if name}
        )
        prompt = (values[columns.text],) if columns.text else ()
        return PromptAnswer(line, prompt, values[columns.label] if columns.label else None)

    return bad.each(read_rows(spec, columns, bad), read)


def _conversations(spec: Any, columns: Columns, bad: InvalidRows, answered: bool) -> Iterator[PromptAnswer]:
    if not isinstance(spec, str):
        raise InputError(f"{table_name(spec)}: expected a JSON file of conversations, found a table in memory")

    def read(row: tuple[int, str, Any]) -> list[PromptAnswer]:
        line, where, conversation = row
        messages = conversation.get(columns.texts) if isinstance(conversation, Mapping) else None
        if not isinstance(messages, list) or not all(_is_message(message) for message in messages):
            expected = f'a list of {{"role": TEXT, "content": TEXT}} in {columns.texts!r}'
            raise InvalidRow(f"{where}: expected {expected}, found {str(messages)[:80]!r}", "no conversation")
        texts = [message["content"] for message in messages]
        check_utf8(where, *texts)
        check_texts(where, dict(enumerate(texts)))  # type: ignore[arg-type]
        answers = [i for i, message in enumerate(messages) if message["role"] == ANSWERING_ROLE]
        if not answered and texts:
            before = len(texts) - (messages[-1]["role"] == ANSWERING_ROLE)
            return [PromptAnswer(line, tuple(texts[:before]), None)]
        if not answers:
            expected = f"a message of the role {ANSWERING_ROLE!r}"
            raise InvalidRow(f"{where}: expected {expected}, found none", "no answer")
        return [PromptAnswer(line, tuple(texts[:i]), texts[i]) for i in answers]

    for answers in bad.each(json_objects(spec, bad, columns.encoding, columns.option), read):
        yield from answers if isinstance(answers, list) else [answers]


def _is_message(message: Any) -> bool:
    return isinstance(message, Mapping) and all(isinstance(message.get(name), str) for name in ("role", "content"))


@dataclasses.dataclass(frozen=True, eq=False)
class AnswerFeatures(Features):
    """Tokenized prompts and answers.

    Attributes:
        answer_starts: int32 `[n]`, the position of the first token of each answer.
        answer_lengths: int64 `[n]`, the number of tokens in each answer, including one end-of-text token.
    """

    answer_starts: np.ndarray
    answer_lengths: np.ndarray

    token_fills: ClassVar[Mapping[str, int]] = {"token_type_ids": 0, "answer_mask": 0}

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of `Features.pad`, with `answer_mask` int32 `[B, S]`, 1 for tokens of answers."""
        batch = super().pad(index, length, pad_id)
        del batch["labels"]
        answered = np.arange(length) >= self.answer_starts[np.maximum(index, 0)][:, None]
        return batch | {"answer_mask": batch["attention_mask"] * answered.astype(np.int32)}


@dataclasses.dataclass(frozen=True)
class AnswerRegion:
    """The tokens of a row that are generated: an answer and the end-of-text tokens behind it.

    Attributes:
        length: maximum number of tokens in the region; longer answers are cut.
        fill: one of ANSWER_FILLS, the end-of-text tokens behind an answer in training: full = fill the region up to
            `length` tokens; random = fill it up to a size drawn for each example; none = one.
        seed: the seed of the drawn sizes.
    """

    length: int
    fill: str = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.fill not in ANSWER_FILLS:
            raise InputError(f"answer_fill: expected one of {', '.join(ANSWER_FILLS)}, found {self.fill!r}")
        if self.length < 2:
            raise InputError(f"answer_length: expected at least 2 tokens, found {self.length}")

    def sizes(self, answers: np.ndarray) -> np.ndarray:
        """Return the number of tokens in each region, int64 `[n]`, from that of each answer, `[n]`."""
        least: np.ndarray = np.minimum(answers + 1, self.length)
        match self.fill:
            case "none":
                return least
            case "full":
                return np.full_like(least, self.length)
        draws = uniform(hash_counters(self.seed, _FILLING, np.arange(len(answers))))
        sizes: np.ndarray = least + np.floor(draws * (self.length - least + 1)).astype(np.int64)
        return sizes


def encode_prompts(tokenizer: Tokenizer, prompts: Sequence[Sequence[str]], room: int) -> list[list[int]]:
    """Return the tokens before an answer: `[CLS] prompt [SEP]`, or `[CLS]` without a prompt.

    Args:
        tokenizer: the tokenizer, whose separator is put between the messages of a conversation.
        prompts: the messages of each prompt.
        room: maximum number of tokens to return. A longer prompt is cut on the tokenizer's `truncation_side`, a longer
            conversation at its beginning.
    """
    layout, flat = tokenizer.layout, [text for messages in prompts for text in messages]
    encoded = iter(tokenizer.encode_batch(flat) if flat else [])
    rows = []
    for messages in prompts:
        ids: list[int] = []
        for number in range(len(messages)):
            ids += [*layout.between] * (number > 0) + next(encoded)
        most = room - len(layout.start) - len(layout.between)
        if len(ids) > most:
            ids = ids[-most:] if len(messages) > 1 or tokenizer.truncation_side == "left" else ids[:most]
        rows.append([*layout.start, *ids, *layout.between] if messages else [*layout.start])
    return rows


def end_of_text(layout: RowLayout) -> int:
    """Return the id of the token that ends an answer. Raises InputError when rows of the layout end without one."""
    if not layout.end:
        raise InputError("expected a tokenizer whose rows end with a special token, found one without")
    return layout.end[-1]


def encode_answers(
    tokenizer: Tokenizer, rows: Sequence[PromptAnswer], max_length: int, region: AnswerRegion
) -> AnswerFeatures:
    """Tokenize rows of prompts and answers.

    Args:
        tokenizer: the tokenizer.
        rows: the rows, with their answers.
        max_length: maximum number of tokens in a row.
        region: the settings of the generated region.

    Raises:
        InputError: the rows leave no room for prompts.
    """
    layout, end = tokenizer.layout, end_of_text(tokenizer.layout)
    room = max_length - region.length
    if room < len(layout.start) + len(layout.between) + 1:
        raise InputError(
            f"config.data.answer_length: expected less than the {max_length} tokens of a row (data.max_seq_length), "
            f"with room for a prompt, found {region.length}"
        )
    begins = encode_prompts(tokenizer, [row.prompt for row in rows], room)
    answers = tokenizer.encode_batch([row.answer or "" for row in rows])
    counts = np.array([len(answer) for answer in answers], np.int64)
    sizes = region.sizes(counts)
    sequences = []
    for begin, answer, size in zip(begins, answers, sizes.tolist(), strict=True):
        kept = answer[: size - 1]
        sequences.append([*begin, *kept, *[end] * (size - len(kept))])
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    starts = np.array([len(begin) for begin in begins], np.int32)
    prompted = np.array([bool(row.prompt) for row in rows]) & (layout.second_type > 0)
    return AnswerFeatures(
        np.concatenate(sequences).astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.where(prompted, starts, lengths).astype(np.int32),
        np.zeros(len(rows), np.int32),
        starts,
        np.minimum(counts + 1, region.length),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class NoisyFeatures(AnswerFeatures):
    """Tokenized prompts and answers with the same noise in every batch, for evaluation.

    Attributes:
        noise: the settings of the noise.
        slots: maximum number of tokens in an answer.
    """

    noise: Noise
    slots: int

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of `Features.pad` without labels, with the arrays of `add_noise`."""
        batch = super().pad(index, length, pad_id)
        return with_noise(batch, self.noise, hash_counters(0, np.maximum(index, 0)), self.slots)


def evaluation_features(features: AnswerFeatures, mask_id: int, slots: int) -> NoisyFeatures:
    """Return tokenized answers with the noise of evaluations."""
    fields = {field.name: getattr(features, field.name) for field in dataclasses.fields(features)}
    return NoisyFeatures(**fields, noise=Noise(mask_id, *EVALUATION), slots=slots)


def with_noise(batch: Batch, noise: Noise, keys: np.ndarray, slots: int) -> Batch:
    """Return a batch of AnswerFeatures, maybe packed, with the arrays of `add_noise` in place of `answer_mask`."""
    examples = batch.pop("answer_mask") * batch.get("segment_ids", 1)
    return batch | add_noise(noise, batch["input_ids"], examples, keys, slots)


class NoisyBatches:
    """Training batches with noise that is a pure function of (seed, step, row).

    Args:
        source: a TrainSource or PackedSource of AnswerFeatures.
        noise: the settings of the noise.
        slots: maximum number of target tokens in a row.
        seed: the seed of the random numbers.
    """

    def __init__(self, source: TrainSource | PackedSource, noise: Noise, slots: int, seed: int):
        self._source, self._noise, self._slots = source, noise, slots
        self._rows, self._seed = np.arange(source.batch_size), seed

    def batch(self, step: int, rows: slice | np.ndarray = slice(None)) -> Batch:
        """Return the rows `rows` of the global batch of `step`, with noise."""
        keys = hash_counters(self._seed, step, self._rows[rows])
        return with_noise(self._source.batch(step, rows), self._noise, keys, self._slots)

    def steps_by_shape(self, num_steps: int) -> dict[int, int]:
        """Return first step of each batch shape -> number of steps with that shape, as `TrainSource` does."""
        return self._source.steps_by_shape(num_steps)
