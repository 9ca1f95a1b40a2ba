"""Notices at the end of a run that hint at a poor result and quote numbers of the run; they are not errors."""

import math
from collections.abc import Mapping, Sequence

# A metric of the model -> the metric of a baseline that ignores the input.
BASELINES = {"mlm_accuracy": "mlm_majority_accuracy"}
_FEWEST_STEPS = 50  # a loss over fewer steps is not judged
_FEWEST_LINES = 12  # a loss with fewer lines in the log is not judged


def of_loss(losses: Sequence[tuple[int, float]], grad_norms: Sequence[float]) -> list[str]:
    """Return notices about a loss that does not fall.

    Args:
        losses: (step, mean loss since the previous line) of each line of the log.
        grad_norms: norms of the gradient in the same lines.
    """
    if grad_norms and all(norm == 0 for norm in grad_norms):
        return ["the gradient was 0 in every step: nothing was learned; check the loss and the frozen parameters"]
    finite = [(step, loss) for step, loss in losses if math.isfinite(loss)]
    if len(finite) < _FEWEST_LINES or finite[-1][0] - finite[0][0] < _FEWEST_STEPS:
        return []
    quarter = len(finite) // 4
    beginning, ending = ([loss for _, loss in part] for part in (finite[:quarter], finite[-quarter:]))
    (first, before), (last, after) = map(_mean_and_error, (beginning, ending))
    noise = 2 * math.hypot(before, after)
    if last - first > max(noise, 0.05 * abs(first)):
        return [f"the loss rose from {first:.4g} to {last:.4g}; check optimizer.learning_rate, warm-up and the labels"]
    if max(ending) < min(beginning):  # the loss has fallen clearly, so its spread is not noise
        noise = 0
    if abs(last - first) <= max(noise, 0.01 * abs(first)) and last > 0.1:
        return [
            f"the loss did not fall: {first:.4g} in the first quarter, {last:.4g} in the last; check "
            "optimizer.learning_rate, the number of steps and the labels"
        ]
    return []


def of_scores(scores: Sequence[dict[str, float]]) -> list[str]:
    """Return notices about evaluations that never beat a baseline that ignores the input."""
    lines = []
    for name, answered in (("matthews", "class"), ("pearson", "number")):
        if scores and all(metrics.get(name) == 0 for metrics in scores):
            lines.append(
                f"{name} was 0 in each of {len(scores)} evaluations: every row was given the same {answered}; check "
                "optimizer.learning_rate, the number of steps and the labels"
            )
    for name, baseline in BASELINES.items():
        pairs = [(metrics[name], metrics[baseline]) for metrics in scores if name in metrics and baseline in metrics]
        if pairs and all(value <= least for value, least in pairs):
            best, least = max(pairs)
            lines.append(
                f"{name} {best:.4g} never beat {least:.4g}, which the most frequent token alone gives; check the "
                "number of steps, optimizer.learning_rate and the data"
            )
    return lines


def of_lines(lines: Sequence[Mapping[str, float | None]]) -> list[str]:
    """Return the notices about a finished run, from the lines of its `metrics.jsonl`."""
    scores = [
        {name.removeprefix("eval/"): value for name, value in line.items() if value is not None and name != "step"}
        for line in lines
        if any(name.startswith("eval/") for name in line)
    ]
    trained = [line for line in lines if line.get("train/loss") is not None]
    losses = [(int(line["step"] or 0), float(line["train/loss"] or 0)) for line in trained]
    norms = [float(line.get("train/grad_norm") or 0) for line in trained if "train/grad_norm" in line]
    rates = [line.get("train/learning_rate") for line in trained]
    if rates and not any(rates):
        return ["nothing was learned: the learning rate was 0 in every step (optimizer.learning_rate)"]
    return of_scores([evaluation for evaluation in scores if evaluation]) or of_loss(losses, norms)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of values and its standard error."""
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return mean, math.sqrt(variance / len(values))
