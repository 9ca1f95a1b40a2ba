"""Metrics that are ratios of sums over all predictions."""

from collections.abc import Mapping, Sequence

import numpy as np


def ratios(predictions: Sequence[Mapping[str, np.ndarray]], metrics: Mapping[str, tuple[str, str]]) -> dict[str, float]:
    """Return metrics that are ratios of sums over all predictions; 0 / 0 is 0.

    Args:
        predictions: arrays by name, batch by batch.
        metrics: metric -> names of its numerator and denominator in `predictions`.
    """
    sums = {name: sum(float(p[name].sum(dtype=np.float64)) for p in predictions) for name in predictions[0]}
    return {name: sums[part] / max(sums[count], 1.0) for name, (part, count) in metrics.items()}
