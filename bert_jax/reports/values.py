"""Reports of numeric predictions: a regression, or the cosine similarity of two sentences."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from bert_jax.reports import attention, figures, measures
from bert_jax.reports.classes import RowTexts, column_names, titles, worst_rows
from bert_jax.reports.page import Html, Section, html_table, joined, line_cell, note, picture, text_cell

_BARS = 40


def regression(targets: np.ndarray, answers: np.ndarray, row: RowTexts, attend: attention.Attend) -> list[Section]:
    """Return the sections of a report on a regression.

    Args:
        targets, answers: labels and predictions, `[n]`.
        row, attend: as for `bert_jax.reports.classes.one_label`.
    """
    targets, answers = targets.astype(np.float64), answers.astype(np.float64)
    residuals = answers - targets
    finite = np.isfinite(residuals)
    drawn, notes = residuals[finite], _not_finite(finite)
    scattered = figures.scatter(targets[finite], answers[finite], "target", "answer", diagonal=True)
    parts = [*notes, note("On the dashed line the answer equals the target."), picture(scattered, "answers by targets")]
    index = measures.worst(np.abs(residuals), finite & (residuals != 0))
    worst_texts = [row(i) for i in index.tolist()]
    lines = [
        [line_cell(line), *map(text_cell, texts.values()), float(targets[i]), float(answers[i]), float(residuals[i])]
        for i, (line, texts) in zip(index, worst_texts, strict=True)
    ]
    header = ["line", *column_names(worst_texts), "target", "answer", "residual"]
    return [
        Section("Answers and targets", joined(parts)),
        Section("Residuals", _residuals(drawn)),
        worst_rows("the greatest residual", len(targets), header, lines, "rows"),
        *attention.sections(titles(index, worst_texts), attend),
    ]


def _residuals(residuals: np.ndarray) -> Html:
    """Return the histogram and the quantiles of the residuals [n], predictions minus targets."""
    if not len(residuals):
        return note("There are no finite residuals.")
    reach = float(np.abs(residuals).max()) or 1.0
    edges = np.linspace(-reach, reach, _BARS + 1)
    cuts = np.quantile(residuals, [0.05, 0.25, 0.5, 0.75, 0.95])
    rows: list[list[Any]] = [
        ["mean", float(residuals.mean())],
        ["standard deviation", float(residuals.std())],
        ["mean of the absolute values", float(np.abs(residuals).mean())],
        *([f"{share}th percentile", float(value)] for share, value in zip((5, 25, 50, 75, 95), cuts, strict=True)),
    ]
    drawn = figures.histogram({"rows": residuals}, "answer minus target", edges, at=0.0)
    return joined([picture(drawn, "histogram of the residuals"), html_table("residuals", ["", "residual"], rows)])


def pairs(scores: np.ndarray, cosines: np.ndarray, row: RowTexts, attend: attention.Attend) -> list[Section]:
    """Return the sections of a report on sentence embeddings.

    Args:
        scores: `[n]`, gold similarity of the two sentences of each row, on any scale.
        cosines: `[n]`, predicted similarity.
        row: as for `bert_jax.reports.classes.one_label`.
        attend: function from `2 * i` and `2 * i + 1` to the attention of the sentences of row i.
    """
    finite = np.isfinite(cosines)
    # Scores and cosines have different scales, so compare ranks, as Spearman's correlation does.
    places = [np.full(len(scores), np.nan) for _ in range(2)]
    for place, values in zip(places, (scores, cosines), strict=True):
        place[finite] = (stats.rankdata(values[finite]) - 0.5) / max(int(finite.sum()), 1)
    rank_distance = np.abs(places[1] - places[0])
    index = measures.worst(rank_distance, finite & (rank_distance > 0))
    worst_texts = [row(i) for i in index.tolist()]
    lines = [
        [line_cell(line), *map(text_cell, texts.values()), *(float(side[i]) for side in (scores, cosines, *places))]
        for i, (line, texts) in zip(index, worst_texts, strict=True)
    ]
    scattered = figures.scatter(scores[finite], cosines[finite], "score", "cosine", diagonal=False)
    header = ["line", *column_names(worst_texts), "score", "cosine", "rank by score", "rank by cosine"]
    attention_titles = [
        (f"{line}, {name}", 2 * number + side)
        for (line, number), (_, texts) in zip(titles(index, worst_texts), worst_texts, strict=False)
        for side, name in enumerate(texts)
    ]
    by = "the greatest difference in rank, where a rank is the share of pairs with a lower value"
    return [
        Section("Cosines and scores", joined([*_not_finite(finite), picture(scattered, "cosines by scores")])),
        worst_rows(by, len(scores), header, lines, "pairs"),
        *attention.sections(attention_titles, attend),
    ]


def _not_finite(finite: np.ndarray) -> Sequence[Html]:
    left_out = int((~finite).sum())
    return [note(f"Left out: {left_out:,} predictions that are not finite.")] if left_out else []
