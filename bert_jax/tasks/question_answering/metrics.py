"""SQuAD's metrics, versions 1.1 and 2.0: exact match and F1 of answer texts, in per cent.

Rajpurkar et al. 2016 (arXiv:1606.05250), section 6.1; Rajpurkar et al. 2018 (arXiv:1806.03822), section 5. Names and
values equal those of the official evaluation scripts, to the last digit.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_jax.tasks.question_answering.data import Question

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # only ASCII punctuation is removed: typographic quotes stay
_ARTICLES = re.compile(r"\b(a|an|the)\b")

Score = Callable[[str, str], float]


def normalized(text: str) -> str:
    """Normalise a text for comparison: lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> int:
    """Return 1 if both texts are equal after normalisation, else 0."""
    return int(normalized(gold) == normalized(predicted))


def token_f1(gold: str, predicted: str) -> float:
    """Return the F1 of the predicted words; 0 if no word is right or there are no words."""
    gold_words, predicted_words = normalized(gold).split(), normalized(predicted).split()
    same = (Counter(gold_words) & Counter(predicted_words)).total()
    if not same:
        return 0
    precision, recall = same / len(predicted_words), same / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def f1_or_none(gold: str, predicted: str) -> float:
    """Return `token_f1`; but if a text has no words, return 1 if both have none, else 0 (version 2.0)."""
    if not normalized(gold) or not normalized(predicted):
        return exact_match(gold, predicted)
    return token_f1(gold, predicted)


def squad_scores(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Return `scores_v1`, or `scores_v2` if `questions` are of version 2.0 (some may have no answer)."""
    if any(question.is_impossible is not None for question in questions):
        return scores_v2(questions, predictions, null_odds, threshold)
    return scores_v1(questions, predictions)


def scores_v1(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """Return `exact_match` and `f1` of version 1.1: means over questions of the best score over the gold answers.

    Args:
        questions: the questions with gold answers.
        predictions: question id -> predicted text. A question without a prediction counts as wrong.
    """
    kinds = {"exact_match": exact_match, "f1": token_f1}
    figures = dict.fromkeys(kinds, 0.0)
    for name, score in kinds.items():
        for question in questions:  # sum() would round differently since Python 3.12
            figures[name] += _v1(question, predictions, score)
    return {name: _per_cent(figure, len(questions)) for name, figure in figures.items()}


def of_question(question: Question, text: str, second: bool, taken_back: bool = False) -> tuple[float, float]:
    """Return exact match and F1 of one prediction, from 0 to 1.

    Args:
        question: the question with gold answers.
        text: the predicted text, "" for no answer.
        second: whether to score as version 2.0.
        taken_back: whether the null odds are above the threshold, so that the prediction counts as no answer.
    """
    if second and taken_back:
        return (float(not question.answers),) * 2
    score, kinds = (_v2, (exact_match, f1_or_none)) if second else (_v1, (exact_match, token_f1))
    exact, part = (float(score(question, {question.id: text}, kind)) for kind in kinds)
    return exact, part


def _v1(question: Question, predictions: Mapping[str, str], score: Score) -> float:
    if question.id not in predictions:
        return 0.0
    return max((score(answer.text, predictions[question.id]) for answer in question.answers), default=0.0)


def scores_v2(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Return the metrics of version 2.0.

    These are `exact`, `f1` and `total` over all questions, over those with an answer (prefix `HasAns_`) and over those
    without (`NoAns_`). `null_odds` add the best values over all thresholds (`best_exact`, `best_f1`) and these
    thresholds.

    Args:
        questions: the questions with gold answers.
        predictions: question id -> predicted text, "" for no answer. Questions without a prediction are skipped.
        null_odds: question id -> odds of no answer, on any scale.
        threshold: odds above this count as no answer, regardless of the prediction.
    """
    answered = {question.id: bool(question.answers) for question in questions}
    scored = [question for question in questions if question.id in predictions]
    raw: dict[str, dict[str, float]] = {
        "exact": {question.id: _v2(question, predictions, exact_match) for question in scored},
        "f1": {question.id: _v2(question, predictions, f1_or_none) for question in scored},
    }
    kept = raw
    if null_odds is not None:
        none = {name for name, odds in null_odds.items() if odds > threshold}
        kept = {
            metric: {name: float(not answered[name]) if name in none else value for name, value in values.items()}
            for metric, values in raw.items()
        }
    figures = _figures(kept, "", [question.id for question in scored])
    for prefix, kind in (("HasAns_", True), ("NoAns_", False)):
        if any(has is kind for has in answered.values()):
            figures |= _figures(kept, prefix, [question.id for question in scored if answered[question.id] is kind])
    if null_odds is not None:
        for metric, values in raw.items():
            best, at = _best_threshold(predictions, values, null_odds, answered)
            figures |= {f"best_{metric}": best, f"best_{metric}_thresh": at}
    return figures


def _v2(question: Question, predictions: Mapping[str, str], score: Score) -> float:
    golds = [answer.text for answer in question.answers if normalized(answer.text)] or [""]
    return max(score(gold, predictions[question.id]) for gold in golds)


def _figures(kept: Mapping[str, Mapping[str, float]], prefix: str, names: Sequence[str]) -> dict[str, float]:
    # sum() of integers (scores of 0 and 1) is exact; the official script sums in the same way.
    sums = {metric: sum(values[name] for name in names) for metric, values in kept.items()}
    means = {f"{prefix}{metric}": _per_cent(total, len(names)) for metric, total in sums.items()}
    return means | {f"{prefix}total": len(names)}


def _best_threshold(
    predictions: Mapping[str, str],
    values: Mapping[str, float],
    null_odds: Mapping[str, float],
    answered: Mapping[str, bool],
) -> tuple[float, float]:
    """Return the best mean score over all thresholds of the null odds, and that threshold (0 = answer no question)."""
    order = sorted((name for name in null_odds if name in values), key=lambda name: null_odds[name])
    # Answering a question gains its score; answering an unanswerable one loses the point for no answer.
    gains = [values[name] if answered[name] else -float(bool(predictions[name])) for name in order]
    silent = sum(not has for has in answered.values())
    reached = np.cumsum([silent, *gains])
    best = int(reached.argmax())
    return 100.0 * float(reached[best]) / len(values) if values else 0.0, null_odds[order[best - 1]] if best else 0.0


def _per_cent(total: float, count: int) -> float:
    return 100.0 * total / count if count else 0.0
