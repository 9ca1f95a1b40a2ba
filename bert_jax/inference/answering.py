"""The question-answering pipeline: answer spans of a context."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data.finetuning.question_windows import NULL, Limits, QuestionWindows, question_windows, tokenised
from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_list, positive
from bert_jax.inference.scoring import log_softmax
from bert_jax.inference.spans import SpanSearch, find_spans

_QUESTIONS = 256  # whose windows are sorted by length together: enough to fill batches evenly, few enough to hold


class QuestionAnswering(Pipeline):
    """Which passage of a text answers a question."""

    head = "question_answering"

    def __call__(
        self,
        question: Any = None,
        context: str | Sequence[str] | None = None,
        *,
        top_k: int = 1,
        handle_impossible_answer: bool = False,
        max_answer_len: int = 15,
        doc_stride: int = 128,
        max_question_len: int = 64,
        max_seq_len: int = 384,
    ) -> Any:
        """The likeliest passages.

        Args:
            question: a question or a list of them; or a dict `{"question": ..., "context": ...}` or a list of these.
            context: the text for all questions, or a list of one for each; None where `question` holds dicts.
            top_k: how many passages, the likeliest first.
            handle_impossible_answer: whether "" may be the answer, for models that were taught that there may be none.
            max_answer_len: tokens of the longest passage.
            doc_stride: tokens from the beginning of one window of a long context to that of the next.
            max_question_len: tokens of a question; the rest is cut off.
            max_seq_len: tokens of a window with its question; less where the model's limit is less.

        Returns:
            For a question a dict of `answer`, `score`, `start` and `end`, with `context[start:end] == answer`, or with
            another `top_k` than 1 a list of these; for a list of questions, a list. A score is the probability that the
            answer begins where it does times that it ends there, within its window; that of no answer (`""`, from 0 to
            0) the least of its windows. A context without any passage, say an empty one, has no answer whatever was
            asked for.

        Raises:
            InputError: not questions and contexts, or an option out of its range.
        """
        pairs, single = _pairs(question, context)
        search = SpanSearch(positive("max_answer_len", max_answer_len), 0, positive("top_k", top_k))
        length = min(positive("max_seq_len", max_seq_len), self.model.max_length)
        query = min(positive("max_question_len", max_question_len), length // 2)
        limits = Limits(length, positive("doc_stride", doc_stride), query)
        limits.check(self.tokenizer.layout)
        answers = []
        for start in range(0, len(pairs), _QUESTIONS):
            part = pairs[start : start + _QUESTIONS]
            contexts = tokenised(self.tokenizer, (text for _, text in part))
            windows = question_windows(self.tokenizer, [q for q, _ in part], [contexts[c] for _, c in part], limits)
            found = self._log_probabilities(windows)
            for number, (_, text) in enumerate(part):
                spans, null = find_spans(windows, number, found.__getitem__, search)
                answers.append(_answers(text, spans, null, handle_impossible_answer, top_k))
        if top_k == 1:
            answers = [answer[0] for answer in answers]
        return answers[0] if single else answers

    def _log_probabilities(self, windows: QuestionWindows) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Window -> by place of its row, the logarithms of the probabilities that an answer begins and ends there."""
        inputs = windows.pad(np.arange(len(windows)), int(windows.lengths.max()), self.tokenizer.pad_id)
        inputs = {name: inputs[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
        found = {}
        for rows, _, output in self._batches(inputs, ("start_logits", "end_logits")):
            assert output.start_logits is not None and output.end_logits is not None
            for window, starts, ends in zip(rows.tolist(), output.start_logits, output.end_logits, strict=True):
                place = windows.place(window)
                places = np.array([NULL, *range(place, place + int(windows.sizes[window]))])
                found[window] = (
                    _log_softmax_over(np.asarray(starts), places),
                    _log_softmax_over(np.asarray(ends), places),
                )
        return found


def _log_softmax_over(logits: np.ndarray, places: np.ndarray) -> np.ndarray:
    """float64 log probabilities over some places of a row; -inf at the others."""
    logs = np.full(len(logits), -np.inf)
    logs[places] = log_softmax(logits[places])
    return logs


def _answers(context: str, spans: Sequence[Any], null: float, may_be_none: bool, top_k: int) -> list[dict[str, Any]]:
    found = [
        {"answer": context[start:end], "score": float(np.exp(score)), "start": start, "end": end}
        for score, start, end in spans
    ]
    if may_be_none or not found:
        found.append({"answer": "", "score": float(np.exp(null)), "start": 0, "end": 0})
    return sorted(found, key=lambda answer: -answer["score"])[:top_k]


def _pairs(question: Any, context: Any) -> tuple[list[tuple[str, str]], bool]:
    """Questions with their contexts, and whether there is one only. Raises InputError when they are neither."""
    single = isinstance(question, (str, Mapping))
    questions = [question] if single else as_list(question if question is not None else [])
    if context is None:
        return [_of_dict(i, item) for i, item in enumerate(questions)], single
    contexts = [context] * len(questions) if isinstance(context, str) else as_list(context)
    if single and not isinstance(context, str):  # one question to several texts
        questions, single = questions * len(contexts), False
    if len(questions) != len(contexts):
        raise InputError(f"expected a context for each question, found {len(questions)} and {len(contexts)}")
    return list(_texts(zip(questions, contexts, strict=True))), single


def _of_dict(number: int, item: Any) -> tuple[str, str]:
    if not isinstance(item, Mapping) or set(item) != {"question", "context"}:
        raise InputError(
            f"question {number}: expected a context, or a dict of 'question' and 'context', found {item!r}"
        )
    return next(_texts([(item["question"], item["context"])], number))


def _texts(pairs: Any, first: int = 0) -> Iterator[tuple[str, str]]:
    for i, pair in enumerate(pairs, first):
        for name, text in zip(("question", "context"), pair, strict=True):
            if not isinstance(text, str):
                raise InputError(f"{name} {i}: expected a string, found {type(text).__name__}")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InputError(f"{name} {i}: expected text, found half a surrogate pair at {error.start}") from None
        yield pair
