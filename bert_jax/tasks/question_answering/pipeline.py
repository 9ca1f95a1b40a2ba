"""The question-answering pipeline: find answer spans in a context."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_list, positive
from bert_jax.inference.scoring import log_softmax
from bert_jax.tasks.question_answering.spans import SpanSearch, find_spans
from bert_jax.tasks.question_answering.windows import NULL, Limits, QuestionWindows, question_windows, tokenised

_QUESTIONS = 256  # questions whose windows are sorted by length together


class QuestionAnswering(Pipeline):
    """Extraction of the span of a context that answers a question."""

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
        """Return the most likely answer spans.

        Args:
            question: one question or a list; or a dict `{"question": ..., "context": ...}` or a list of dicts.
            context: one context for all questions, or a list of one context per question; None if `question` has dicts.
            top_k: number of answers per question, the most likely first.
            handle_impossible_answer: whether to allow the empty answer, for models trained on SQuAD 2.0.
            max_answer_len: maximum number of tokens in an answer.
            doc_stride: tokens from the start of one window of a long context to the start of the next.
            max_question_len: maximum number of tokens in a question; longer questions are cut.
            max_seq_len: maximum number of tokens in a window and its question, up to the model's limit.

        Returns:
            For one question a dict of `answer`, `score`, `start` and `end`, where `context[start:end] == answer`, or a
            list of dicts if `top_k` is not 1; for a list of questions, a list. `score` is the product of the
            probabilities of start and end in the window. The score of no answer (`""`, from 0 to 0) is its lowest
            score over the windows. A context without any span, such as an empty one, always has the answer "".

        Raises:
            InputError: an item is not a question or context, or an option is out of its range.
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
            log_probabilities = self._log_probabilities(windows)
            for number, (_, text) in enumerate(part):
                spans, null = find_spans(windows, number, log_probabilities.__getitem__, search)
                answers.append(_answers(text, spans, null, handle_impossible_answer, top_k))
        if top_k == 1:
            answers = [answer[0] for answer in answers]
        return answers[0] if single else answers

    def _log_probabilities(self, windows: QuestionWindows) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Run the model; return for each window the log probabilities `[S]` of starts and of ends."""
        inputs = windows.pad(np.arange(len(windows)), int(windows.lengths.max()), self.tokenizer.pad_id)
        inputs = {name: inputs[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
        log_probabilities = {}
        for rows, _, output in self._batches(inputs, ("start_logits", "end_logits")):
            assert output.start_logits is not None and output.end_logits is not None
            for window, starts, ends in zip(rows.tolist(), output.start_logits, output.end_logits, strict=True):
                place = windows.place(window)
                places = np.array([NULL, *range(place, place + int(windows.sizes[window]))])
                log_probabilities[window] = (
                    _log_softmax_over(np.asarray(starts), places),
                    _log_softmax_over(np.asarray(ends), places),
                )
        return log_probabilities


def _log_softmax_over(logits: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the log softmax `[S]` over the positions `places`; -inf elsewhere."""
    logs = np.full(len(logits), -np.inf)
    logs[places] = log_softmax(logits[places])
    return logs


def _answers(context: str, spans: Sequence[Any], null: float, may_be_none: bool, top_k: int) -> list[dict[str, Any]]:
    answers = [
        {"answer": context[start:end], "score": float(np.exp(score)), "start": start, "end": end}
        for score, start, end in spans
    ]
    if may_be_none or not answers:
        answers.append({"answer": "", "score": float(np.exp(null)), "start": 0, "end": 0})
    return sorted(answers, key=lambda answer: -answer["score"])[:top_k]


def _pairs(question: Any, context: Any) -> tuple[list[tuple[str, str]], bool]:
    """Return (question, context) pairs, and whether the input was a single question.

    Raises:
        InputError: an item is not a question or context, or their numbers differ.
    """
    single = isinstance(question, (str, Mapping))
    questions = [question] if single else as_list(question if question is not None else [])
    if context is None:
        return [_of_dict(i, item) for i, item in enumerate(questions)], single
    contexts = [context] * len(questions) if isinstance(context, str) else as_list(context)
    if single and not isinstance(context, str):  # one question about several contexts
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
