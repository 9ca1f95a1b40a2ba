"""Token rows of questions with contexts; a long context becomes overlapping windows.

The windows are those of `run_squad.py` of google-research/bert (Devlin et al. 2018, arXiv:1810.04805, section 4.2): the
first begins with the context, each later one begins `doc_stride` tokens after the one before it, and the last ends with
the context.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from bert_jax.data.finetuning.windows import ContextWindow, cut_windows
from bert_jax.errors import InputError
from bert_jax.tokenization import Tokenizer
from bert_jax.tokenization.layout import RowLayout

_CHUNK = 4096  # texts tokenized at a time: enough for every thread, few enough for memory
NULL = 0  # position of [CLS], which stands for "no answer"


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits to which questions and contexts are cut, in tokens.

    Attributes:
        max_seq_length: maximum length of a row.
        doc_stride: the distance between the beginnings of two neighbouring windows.
        max_query_length: maximum length of a question; the rest is cut off.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64

    def check(self, layout: RowLayout, where: str = "") -> None:
        """Raise InputError when a row of `layout` has no room for context or no token for "no answer".

        Args:
            layout: the special tokens of a row.
            where: a prefix of the limit's name in the message.
        """
        for name, value in dataclasses.asdict(self).items():
            if value < 1:
                raise InputError(f"{where}{name}: expected at least 1 token, found {value}")
        least = self.max_query_length + layout.num_special(True) + 1
        if self.max_seq_length < least:
            raise InputError(
                f"{where}max_seq_length: expected at least {least}, for a question of {self.max_query_length} tokens "
                f"(max_query_length), special tokens and a token of context, found {self.max_seq_length}"
            )
        if not layout.start:
            raise InputError("expected a tokenizer whose rows begin with a special token, found one without")


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
    """A tokenized text. A token covers the characters `[begins, ends)`, without whitespace around them.

    Attributes:
        text: the text.
        ids: int32 `[n]`, the tokens.
        begins: int32 `[n]`, the first non-whitespace character at or after the token's beginning.
        ends: int32 `[n]`, the end of the last non-whitespace character before the token's end. So the text from one
            token to another has no whitespace around it, or is empty (`ends <= begins`).
    """

    text: str
    ids: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the first and the last token that overlap the characters `[start, end)`; None when none does."""
        overlapping = np.flatnonzero((self.begins < end) & (self.ends > start) & (self.begins < self.ends))
        return (int(overlapping[0]), int(overlapping[-1])) if len(overlapping) else None


def tokenised(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, Context]:
    """Tokenize each distinct text once."""
    distinct = list(dict.fromkeys(texts))
    contexts = {}
    for start in range(0, len(distinct), _CHUNK):
        chunk = distinct[start : start + _CHUNK]
        for text, (ids, offsets) in zip(chunk, tokenizer.encode_batch_with_offsets(chunk), strict=True):
            ranges = np.asarray(offsets, np.int32).reshape(-1, 2)
            contexts[text] = Context(text, np.asarray(ids, np.int32), *_without_whitespace(text, ranges))
    return contexts


def _without_whitespace(text: str, ranges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    length = len(text)
    places = np.arange(length, dtype=np.int32)
    solid = ~np.fromiter(map(str.isspace, text), np.bool_, length)
    after = np.append(np.minimum.accumulate(np.where(solid, places, length)[::-1])[::-1], length)
    before = np.append(0, np.maximum.accumulate(np.where(solid, places + 1, 0)))
    return after[ranges[:, 0]].astype(np.int32), before[ranges[:, 1]].astype(np.int32)


def best_window(windows: Sequence[ContextWindow]) -> np.ndarray:
    """Return for each token of a context the window that shows the most context around it, int `[n]`.

    The score of a window is the number of its tokens to the left or to the right of the token, whichever is smaller,
    plus a hundredth of its size; the first window wins a tie.
    """
    length = sum(windows[-1])
    best, most = np.zeros(length, np.int64), np.full(length, -1.0)
    for i, (start, size) in enumerate(windows):
        left = np.arange(size)
        context_shown = np.minimum(left, left[::-1]) + 0.01 * size
        more = start + np.flatnonzero(context_shown > most[start : start + size])
        best[more], most[more] = i, context_shown[more - start]
    return best


@dataclasses.dataclass(frozen=True, eq=False)
class QuestionWindows:
    """The windows of questions, as rows of a model.

    Attributes:
        layout: the special tokens of a row.
        questions: the ids of Q questions, truncated.
        contexts: the Q contexts.
        number: int32 `[n]`, the question of each window; windows of a question are adjacent.
        starts, sizes: int32 `[n]`, the first token and the number of tokens of each window's part of the context.
        answers: int32 `[n, 2]`, the positions in the row of the answer's first and last tokens; NULL twice if the
            window does not hold the whole answer, or there is no answer.
    """

    layout: RowLayout
    questions: Sequence[np.ndarray]
    contexts: Sequence[Context]
    number: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    answers: np.ndarray

    token_fills: ClassVar[Mapping[str, int]] = {"token_type_ids": 0}

    def __len__(self) -> int:
        return len(self.number)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens in each row, int64 `[n]`."""
        questions = np.array([len(ids) for ids in self.questions], np.int64)
        lengths: np.ndarray = questions[self.number] + self.sizes + self.layout.num_special(True)
        return lengths

    @functools.cached_property
    def firsts(self) -> np.ndarray:
        """The first window of each question, followed by the number of windows, int64 `[Q + 1]`."""
        return np.searchsorted(self.number, np.arange(len(self.questions) + 1))

    def place(self, window: int) -> int:
        """Return the position in a window's row at which the context begins."""
        return len(self.layout.start) + len(self.questions[self.number[window]]) + len(self.layout.between)

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> dict[str, np.ndarray]:
        """Return the batch of windows `index` [B], padded to `length`; an index of -1 makes a row of weight 0.

        Besides a model's inputs, the batch has `start_positions` and `end_positions` int32 [B], the answer's positions
        in the row; `windows` int32 [B], the index; and `example_weights` float32 [B].
        """
        index = np.asarray(index)
        ids = np.full((len(index), length), pad_id, np.int32)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        layout = self.layout
        for row, window in enumerate(index):
            if window < 0:
                continue
            question = self.questions[self.number[window]]
            context = self.contexts[self.number[window]]
            place, end = self.place(window), int(self.lengths[window])
            part = context.ids[self.starts[window] :][: self.sizes[window]]
            ids[row, :end] = np.concatenate([layout.start, question, layout.between, part, layout.end])
            mask[row, :end] = 1
            types[row, place:end] = layout.second_type
        real = index >= 0
        answers = np.where(real[:, None], self.answers[index], NULL)
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": types,
            "start_positions": answers[:, 0],
            "end_positions": answers[:, 1],
            "windows": index.astype(np.int32),
            "example_weights": real.astype(np.float32),
        }


def question_windows(
    tokenizer: Tokenizer,
    questions: Sequence[str],
    contexts: Sequence[Context],
    limits: Limits,
    answers: Sequence[tuple[int, int] | None] | None = None,
) -> QuestionWindows:
    """Cut contexts into windows, and join each with its question.

    Args:
        tokenizer: the tokenizer of the contexts.
        questions: Q texts.
        contexts: Q contexts, from `tokenised`.
        limits: limits that `Limits.check` has accepted.
        answers: for each question, the first and the last token of the answer in its context, or None if it has none;
            None when the answers are not known.
    """
    layout, queries, rows = tokenizer.layout, _queries(tokenizer, questions, limits.max_query_length), []
    for number, (query, context) in enumerate(zip(queries, contexts, strict=True)):
        room = limits.max_seq_length - len(query) - layout.num_special(True)
        place = len(layout.start) + len(query) + len(layout.between)
        answer = answers[number] if answers is not None else None
        for start, size in cut_windows(len(context.ids), room, limits.doc_stride):
            inside = answer is not None and start <= answer[0] and answer[1] < start + size
            first, last = (token - start + place for token in answer) if inside and answer else (NULL, NULL)
            rows.append((number, start, size, first, last))
    table = np.array(rows, np.int32).reshape(-1, 5)
    return QuestionWindows(layout, queries, contexts, table[:, 0], table[:, 1], table[:, 2], table[:, 3:])


def _queries(tokenizer: Tokenizer, questions: Sequence[str], most: int) -> list[np.ndarray]:
    distinct = list(dict.fromkeys(questions))
    ids: dict[str, list[int]] = {}
    for start in range(0, len(distinct), _CHUNK):
        chunk = distinct[start : start + _CHUNK]
        ids.update(zip(chunk, tokenizer.encode_batch(chunk), strict=True))
    return [np.asarray(ids[question][:most], np.int32) for question in questions]
