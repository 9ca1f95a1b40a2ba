"""Extractive question answering: predict the span that answers a question, or that there is none.

Devlin et al. 2018 (arXiv:1810.04805), sections 4.2 and 4.3.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows
from bert_jax.data.tokens import is_token, packing
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.base import Job, Metrics, model_inputs
from bert_jax.jobs.distillation.objectives import soft_label_divergence
from bert_jax.jobs.synthetic_rows import WORD
from bert_jax.modeling import Bert, BertOutput
from bert_jax.modeling.attention_mask import MASKED
from bert_jax.modeling.losses import cross_entropy
from bert_jax.modeling.pooling import segment_members
from bert_jax.recipes import Recipe
from bert_jax.tasks.question_answering import metrics as squad_scores
from bert_jax.tasks.question_answering.data import Question, read_questions
from bert_jax.tasks.question_answering.spans import SpanSearch, find_spans
from bert_jax.tasks.question_answering.windows import Context, Limits, QuestionWindows, question_windows, tokenised
from bert_jax.tokenization import Tokenizer

HEAD = "question_answering"
# The null odds of a context without any span; finite, since they are written to JSON.
NOTHING_TO_ANSWER = 1e9


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """Questions with their windows.

    Attributes:
        questions: the questions, with gold answers if these are known.
        windows: the windows of all questions, in order.
    """

    questions: Sequence[Question]
    windows: QuestionWindows


class FoundSpans(NamedTuple):
    """A model's prediction for a question: best span, and null odds (score of no answer minus that of the span)."""

    text: str
    null_odds: float


@dataclasses.dataclass(frozen=True)
class QuestionAnsweringTask:
    """Extractive question answering; the loss is the mean of the cross entropies of start and end position.

    Attributes:
        model: a Bert with head `question_answering`.
        search: options of the search for spans.
        null_threshold: null odds above this mean no answer, for data with unanswerable questions.
        dev: the evaluation questions, whose batches `score` gets; None without evaluation.
    """

    model: Bert
    search: SpanSearch
    null_threshold: float = 0.0
    dev: Asked | None = dataclasses.field(default=None, repr=False)

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of rows that are not padding."""
        return {"answers": jnp.maximum(batch["example_weights"].sum(), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`).

        The softmax is over the example's own tokens, so that the loss depends neither on padding nor on other examples
        of a packed row.
        """
        real, packed, is_place = batch["example_weights"], "segment_ids" in batch, _is_place(batch)
        losses, right = [], []
        for name, logits in self.predict(params, batch, dropout_key).items():
            positions = batch[name.replace("logits", "positions")]
            if packed:
                logits, positions = logits[:, None], positions + batch["cls_positions"]
            logits = jnp.where(is_place, logits, jnp.finfo(jnp.float32).min)
            of_rows = cross_entropy(logits, positions)
            losses.append(of_rows[0])
            right.append(of_rows[1])
        total, count = (sum(losses) / 2 * real).sum(), real.sum()
        spans_found = ((right[0] * right[1] * real).sum(), count)
        metrics = {"cross_entropy": (total, count), "spans_found": spans_found, "packing": packing(batch)}
        return total / weights["answers"], metrics

    def predict(self, params: Any, batch: Batch, dropout_key: jax.Array | None = None) -> dict[str, jax.Array]:
        """Return `start_logits` and `end_logits` [B, S], float32."""
        output = self.model.apply(params, **model_inputs(batch), dropout_key=dropout_key)
        assert output.start_logits is not None and output.end_logits is not None
        return {"start_logits": output.start_logits, "end_logits": output.end_logits}

    def label_divergence(self, batch: Batch, student: BertOutput, teacher: BertOutput, temperature: float) -> jax.Array:
        """Return the divergence from the teacher, averaged over start and end: `[B]`, or `[B, M]` in packed rows."""
        packed, is_place = "segment_ids" in batch, _is_place(batch)
        total: jax.Array = jnp.float32(0)
        for name in ("start_logits", "end_logits"):
            ours, theirs = getattr(student, name), getattr(teacher, name)
            ours, theirs = (jnp.where(is_place, x[:, None] if packed else x, MASKED) for x in (ours, theirs))
            total += soft_label_divergence(ours, theirs, temperature) / 2
        return total

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return SQuAD's metrics over all questions of `dev` (`bert_jax.tasks.question_answering.metrics`)."""
        assert self.dev is not None
        answers = self.answers(self.dev, predictions, batches)
        return figures(self.dev.questions, answers, self.null_threshold)

    def answers(
        self, questions: Asked, predictions: Iterable[Mapping[str, np.ndarray]], batches: Iterable[Batch]
    ) -> dict[str, FoundSpans]:
        """Return question id -> prediction, from the logits of all windows of `questions`."""
        logits: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for prediction, batch in zip(predictions, batches, strict=True):
            rows = zip(prediction["start_logits"], prediction["end_logits"], strict=True)
            logits |= dict(zip(batch["windows"].tolist(), rows, strict=True))
        answers = {}
        for number, question in enumerate(questions.questions):
            spans, null = find_spans(questions.windows, number, logits.__getitem__, self.search)
            odds = null - spans[0].score if spans else NOTHING_TO_ANSWER
            answers[question.id] = FoundSpans(question.context[spans[0].start : spans[0].end] if spans else "", odds)
        return answers


def _is_place(batch: Batch) -> jax.Array:
    """Return bool `[B, S]`, or `[B, M, S]` for packed rows: the tokens at which an example's answer may be."""
    if "segment_ids" not in batch:
        return is_token(batch)
    return segment_members(batch["segment_ids"], batch["example_weights"].shape[1])


def figures(questions: Sequence[Question], answers: Mapping[str, FoundSpans], threshold: float) -> dict[str, float]:
    """Return SQuAD's metrics of predictions; null odds above `threshold` mean no answer in SQuAD 2.0."""
    texts = {name: answer.text for name, answer in answers.items()}
    return squad_scores.squad_scores(
        questions, texts, {name: answer.null_odds for name, answer in answers.items()}, threshold
    )


def asked(questions: Sequence[Question], tokenizer: Tokenizer, limits: Limits) -> Asked:
    """Tokenize questions for inference, without positions of answers."""
    contexts = tokenised(tokenizer, (question.context for question in questions))
    windows = question_windows(
        tokenizer, [question.question for question in questions], [contexts[q.context] for q in questions], limits
    )
    return Asked(questions, windows)


class Learnable(NamedTuple):
    """A training question, its tokenized context, and first and last token of its first answer (None = no answer)."""

    question: Question
    context: Context
    place: tuple[int, int] | None


def learnable(spec: str, tokenizer: Tokenizer, bad: InvalidRows | None = None) -> list[Learnable]:
    """Read and tokenize the questions of a training set.

    Args:
        spec: the data set, as for `read_questions`.
        tokenizer: the tokenizer.
        bad: collects invalid questions; None: they are an error.

    Raises:
        InputError: as for `read_questions`, or an answer covers no token of its context.
    """
    bad = bad or InvalidRows(spec, noun="question")
    questions = list(bad.kept(read_questions(spec, bad=bad)))
    contexts = tokenised(tokenizer, (question.context for question in questions))

    def placed(question: Question) -> Learnable:
        context = contexts[question.context]
        if not question.answers:
            return Learnable(question, context, None)
        text, begin = question.answers[0]
        place = context.tokens_of(begin, begin + len(text))
        if place is None:
            message = f"{spec}: question {question.id!r}: expected an answer with a token, found {text!r}"
            raise InvalidRow(message, "an answer without a token", question.id)
        return Learnable(question, context, place)

    return list(bad.fitting(bad.each(questions, placed)))


def to_learn(rows: Sequence[Learnable], tokenizer: Tokenizer, limits: Limits) -> Asked:
    """Cut training questions into windows with the positions of their answers."""
    questions, contexts, places = zip(*rows, strict=True)
    windows = question_windows(tokenizer, [question.question for question in questions], contexts, limits, places)
    return Asked(questions, windows)


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved question answering recipe names. See `bert_jax.jobs.build`."""
    data = recipe.data
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, HEAD)
    limits = _limits(recipe)
    limits.check(tokenizer.layout, "config.data.")
    question = len(tokenizer.layout.start) + limits.max_query_length
    setup.check_room(config, question, "the longest question (data.max_query_length)")
    rows = learnable(data.train, tokenizer, fine_tuning.invalid_rows(recipe, data.train, "question"))
    rows, held = fine_tuning.hold_out(recipe, rows, groups=np.array([row.question.article for row in rows]))
    questions = [row.question for row in held]
    if data.dev:
        bad = fine_tuning.invalid_rows(recipe, data.dev, "question")
        questions = list(bad.fitting(read_questions(data.dev, anywhere=True, bad=bad)))
    train = to_learn(rows, tokenizer, limits)
    dev = asked(questions, tokenizer, limits) if questions else None
    model = Bert(config, HEAD, setup.compute(recipe))
    task = QuestionAnsweringTask(model, SpanSearch(data.max_answer_length, data.n_best), data.null_threshold, dev)
    return fine_tuning.build_job(recipe, task, tokenizer, loaded, train.windows, dev.windows if dev else None)


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return a question with its answer."""
    return [{"id": "0", "question": WORD, "context": WORD, "answers": {"text": [WORD], "answer_start": [0]}}]


def _limits(recipe: Recipe) -> Limits:
    return Limits(recipe.data.max_seq_length, recipe.data.doc_stride, recipe.data.max_query_length)
