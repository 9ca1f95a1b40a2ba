"""Reports of classifiers: a table of classes, confusions, calibration, the worst mistakes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.inference.scoring import log_softmax, sigmoid
from bert_jax.reports import attention, figures, measures
from bert_jax.reports.measures import PerClass
from bert_jax.reports.page import (
    Html,
    Section,
    as_html,
    cell,
    html_table,
    joined,
    line_cell,
    note,
    picture,
    shade,
    shortened,
    tagged,
    text_cell,
)

# Row number -> the row's line number, and its texts by column name.
RowTexts = Callable[[int], tuple[int, Mapping[str, str]]]
_CLASSES = 300  # maximum number of classes in the table of classes; with more, the ones with the lowest F1 are shown
_MATRIX = 20  # maximum number of classes in a confusion matrix that is shown as a table
_HEAT = 300  # maximum number of classes in a confusion matrix as a figure
_CONFUSIONS = 30  # number of pairs of classes that are listed if the matrix would be too large
_NAME = 60  # maximum number of characters shown of a class name


def one_label(
    names: Sequence[str], labels: np.ndarray, logits: np.ndarray, row: RowTexts, attend: attention.Attend
) -> list[Section]:
    """Return the sections of a report on a classifier with one label per row.

    Args:
        names: names of the C classes.
        labels: int `[n]`.
        logits: `[n, C]`.
        row: function from the number of a row to its line number and texts.
        attend: function from the number of a row to its attention.
    """
    shares = log_softmax(logits)
    answers = logits.argmax(-1)
    number = np.arange(len(labels))
    losses = -shares[number, labels]
    index = measures.worst(losses, answers != labels)
    lines = []
    worst_texts = [row(i) for i in index.tolist()]
    for i, (line, texts) in zip(index, worst_texts, strict=True):
        probabilities = [float(np.exp(shares[i, c])) for c in (answers[i], labels[i])]
        sides = [_named(names[c]) for c in (labels[i], answers[i])]
        lines.append([line_cell(line), *map(text_cell, texts.values()), *sides, *probabilities, float(losses[i])])
    header = ["line", *column_names(worst_texts), "gold", "answer", "probability", "of the gold", "loss"]
    return [
        per_class_section(names, measures.per_class(labels, answers, len(names))),
        confusion_section(names, labels, answers),
        calibration_of_answers(np.exp(shares.max(-1)), answers == labels),
        worst_rows("the greatest loss of the gold label", int((answers != labels).sum()), header, lines),
        *attention.sections(titles(index, worst_texts), attend),
    ]


def several_labels(
    names: Sequence[str], labels: np.ndarray, logits: np.ndarray, row: RowTexts, attend: attention.Attend
) -> list[Section]:
    """Return the sections of a report on a multi-label classifier: as `one_label`, but `labels [n, C]` are 0 or 1."""
    scores = logits.astype(np.float64)
    answers, gold = logits > 0, labels > 0
    shares = sigmoid(scores)
    losses = (np.logaddexp(0, scores) - labels * scores).mean(-1)
    wrong = (answers != gold).any(-1)
    index = measures.worst(losses, wrong)
    worst_texts = [row(i) for i in index.tolist()]
    lines = []
    for i, (line, texts) in zip(index, worst_texts, strict=True):
        wrongly = {
            "missed": gold[i] & ~answers[i],
            "too many": answers[i] & ~gold[i],
        }
        sides = [
            ", ".join(_named(names[c]) for c in np.flatnonzero(side[i]).tolist()) or "–" for side in (gold, answers)
        ]
        mistakes = [
            f"{what}: " + ", ".join(f"{_named(names[c])} ({shares[i, c]:.4f})" for c in np.flatnonzero(flags).tolist())
            for what, flags in wrongly.items()
            if flags.any()
        ]
        shown_names = map(shortened, (*sides, "; ".join(mistakes)))
        lines.append([line_cell(line), *map(text_cell, texts.values()), *shown_names, float(losses[i])])
    header = ["line", *column_names(worst_texts), "gold", "answer", "wrong (probability of yes)", "loss"]
    return [
        per_class_section(names, measures.per_class(labels, answers, len(names))),
        calibration_section(
            shares.ravel(),
            gold.ravel(),
            "probability of yes",
            "share of yes",
            "All answers for all classes: how often a row has a class, by the probability that the model gives it.",
        ),
        worst_rows("the greatest loss, the mean over the classes", int(wrong.sum()), header, lines),
        *attention.sections(titles(index, worst_texts), attend),
    ]


def per_class_section(names: Sequence[str], counts: PerClass, what: str = "class") -> Section:
    """Return the section with precision, recall and F1 of each class."""
    order = np.arange(len(names))
    parts: list[Html] = []
    if len(names) > _CLASSES:
        order = np.argsort(counts.f1, kind="stable")[:_CLASSES]
        parts.append(note(f"The {_CLASSES} of {len(names):,} with the lowest F1; the others are left out."))
    columns = [counts.support, counts.answered, counts.precision, counts.recall, counts.f1]
    rows = [[text_name(names[i]), *(column[i] for column in columns)] for i in order]
    means = [float(column.mean()) for column in columns[2:]]
    total = ["mean of all", int(counts.support.sum()), int(counts.answered.sum()), *means]
    header = [what, "support", "answered", "precision", "recall", "F1"]
    return Section(f"Each {what}", joined([*parts, html_table("classes", header, rows, total)]))


def confusion_section(names: Sequence[str], labels: np.ndarray, answers: np.ndarray, unit: str = "rows") -> Section:
    """Return the section with the confusion matrix; with many classes a figure and the largest confusions."""
    count = len(names)
    if count <= _MATRIX:
        words = f"{unit.capitalize()} of each class (down) by predicted class (across); shaded by share of the class."
        return Section("Confusion", joined([note(words), _matrix(names, measures.confusion(labels, answers, count))]))
    pairs = measures.largest_confusions(labels, answers, _CONFUSIONS)
    support = np.bincount(labels, minlength=count)
    rows = [[text_name(names[a]), text_name(names[b]), n, n / max(int(support[a]), 1)] for a, b, n in pairs]
    wrong = int((labels != answers).sum())
    words = (
        f"{count:,} classes are too many for a matrix of numbers. The {len(rows)} largest confusions make up "
        f"{sum(n for *_, n in pairs):,} of {wrong:,} confused {unit}:"
    )
    parts = [note(words), html_table("confusions", ["class", "predicted as", unit, "share of the class"], rows)]
    if count <= _HEAT:
        matrix = measures.confusion(labels, answers, count)
        parts.append(picture(figures.heat(matrix / np.maximum(matrix.sum(1, keepdims=True), 1)), "confusion matrix"))
    else:
        parts.append(note(f"The picture of the matrix is left out: it would have {count:,} rows and columns."))
    return Section("Confusion", joined(parts))


def _matrix(names: Sequence[str], matrix: np.ndarray) -> Html:
    head = tagged("tr", cell("class", "th"), *(tagged("th", text_name(name), class_="n") for name in names))
    lines = []
    for i, (name, row) in enumerate(zip(names, matrix, strict=True)):
        total = max(int(row.sum()), 1)
        cells = [
            cell(number, class_=f"{shade(number / total)}{' right' if i == j else ''}".strip())
            for j, number in enumerate(row)
        ]
        lines.append(tagged("tr", tagged("th", text_name(name)), *cells))
    inside = tagged("thead", head) + "\n" + tagged("tbody", joined(lines, "\n"))
    return tagged("div", tagged("table", Html(inside), id="confusion", class_="matrix"), class_="wide")


def calibration_of_answers(confidence: np.ndarray, right: np.ndarray) -> Section:
    """Return the section with the calibration of answers [n]: accuracy by predicted probability."""
    return calibration_section(
        confidence, right, "probability of the answer", "accuracy", "How often an answer is right, by its probability."
    )


def calibration_section(
    probabilities: np.ndarray, is_right: np.ndarray, probability: str, share: str, words: str
) -> Section:
    """Return the section with the calibration of probabilities [n].

    Args:
        probabilities: the predicted probabilities.
        is_right: 1 where the prediction is right.
        probability, share: names of the axes.
        words: a sentence about the values.
    """
    finite = np.isfinite(probabilities)
    bins = measures.calibration(probabilities[finite], is_right[finite])
    rows = [
        [f"{low:.3f} to {high:.3f}", int(n), *(None if np.isnan(x) else float(x) for x in (mean, part))]
        for low, high, n, mean, part in zip(
            bins.edges, bins.edges[1:], bins.count, bins.probability, bins.share, strict=False
        )
    ]
    error = joined(["Expected calibration error: ", tagged("strong", bins.error, id="calibration-error")])
    about = (
        f"{words} On the dashed line the model would be perfectly calibrated; the error is the mean distance from it "
        f"over "
        f"{len(rows)} bins (Guo et al. 2017, arXiv:1706.04599)."
    )
    parts = [
        note(about),
        tagged("p", error),
        picture(figures.calibration_figure(bins, probability, share), "calibration"),
    ]
    if not finite.all():
        parts.append(note(f"Left out: {int((~finite).sum()):,} probabilities that are not finite."))
    header = ["bin", "count", probability, share]
    details = tagged("details", tagged("summary", "The bins in numbers"), html_table("bins", header, rows))
    return Section("Calibration", joined([*parts, details]))


def worst_rows(
    by: str, count: int, header: Sequence[str], lines: Sequence[Sequence[Any]], what: str = "rows that went wrong"
) -> Section:
    """Return the section with the worst of `count` mistakes; `by` names the order."""
    if not lines:
        return Section("Worst mistakes", note("None: every prediction is right."))
    words = f"{len(lines)} of {count:,} {what}: those with {by}."
    return Section("Worst mistakes", joined([note(words), html_table("worst", header, lines)]))


def text_name(name: str) -> Html:
    """Return a class name as HTML."""
    return tagged("bdi", _named(name))


def _named(name: str) -> str:
    return shortened(name, _NAME)


def column_names(row_texts: Sequence[tuple[int, Mapping[str, str]]]) -> list[Html]:
    """Return the column names of the texts of rows, for the header of a table."""
    return [as_html(_named(name)) for name in row_texts[0][1]] if row_texts else []


def titles(index: np.ndarray, row_texts: Sequence[tuple[int, Any]]) -> list[tuple[str, int]]:
    """Return (title, row number) of a few of the worst rows, for `attention.sections`."""
    return [(f"Line {line}", int(i)) for i, (line, _) in zip(index, row_texts, strict=True)][: attention.ROWS]
