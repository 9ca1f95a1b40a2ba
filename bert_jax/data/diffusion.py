"""The noise of masked diffusion: a random number of an example's tokens becomes [MASK].

Masked diffusion (Sahoo et al. 2024, arXiv:2406.07524; Nie et al. 2025, arXiv:2502.09992) trains a masked LM at every
mask rate. Here an example with L target tokens gets exactly l of them masked, where l is drawn from 1 to L with
probability p(l), and the loss of a masked token has the weight 1 / (l * p(l)). The expected weighted loss of an example
is then the upper bound of its negative log-likelihood for any p (arXiv:2502.09992, eq. 14; Hoogeboom et al. 2022,
arXiv:2110.02037, section 3), with less variance than independent draws for each token. Random numbers are those of
`bert_jax.data.pretraining.masking`: pure functions of the keys of the rows.
"""

import dataclasses

import numpy as np

from bert_jax.data.pretraining.masking import hash_counters, uniform

NOISE_SCHEDULES = ("linear", "cosine", "quadratic")
NOISE_WEIGHTINGS = ("bound", "equal")
EVALUATION = ("linear", "bound")  # schedule and weighting of evaluations, so that bounds are comparable
_TIME, _ORDER = 5, 6  # independent random streams, others than those of `masking`


@dataclasses.dataclass(frozen=True)
class Noise:
    """The noise of an example: the number of masked target tokens, and the weights of their losses.

    Attributes:
        mask_id: the id of [MASK].
        schedule: one of NOISE_SCHEDULES, the share of masked tokens at a time t drawn uniformly from 0 to 1:
            linear = t, cosine = 1 - cos(t * pi / 2), quadratic = t**2. The last two draw low shares more often.
        weighting: one of NOISE_WEIGHTINGS: bound = weights with which the loss is the bound; equal = 1 for each masked
            token.
    """

    mask_id: int
    schedule: str = "linear"
    weighting: str = "bound"

    def counts(self, sizes: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of tokens to mask, and the weight of each, for examples with `sizes` target tokens.

        Args:
            sizes: int `[n]`, at least 1.
            times: float64 `[n]`, from 0 (included) to 1 (excluded).
        """
        # A share x in ((l-1)/L, l/L] masks l tokens, so p(l) is the time that the schedule spends in this interval.
        count = np.clip(np.ceil(_share(self.schedule, times) * sizes), 1, sizes)
        if self.weighting == "equal":
            return count.astype(np.int64), np.ones(len(sizes))
        duration = _time(self.schedule, count / sizes) - _time(self.schedule, (count - 1) / sizes)
        return count.astype(np.int64), 1 / (count * duration)


def _share(schedule: str, time: np.ndarray) -> np.ndarray:
    """Return the share of masked tokens at a time."""
    match schedule:
        case "cosine":
            return 1 - np.cos(time * np.pi / 2)
        case "quadratic":
            return time**2
        case _:
            return time


def _time(schedule: str, share: np.ndarray) -> np.ndarray:
    """Return the time at which this share of the tokens is masked."""
    match schedule:
        case "cosine":
            return np.arccos(1 - share) * 2 / np.pi
        case "quadratic":
            return np.sqrt(share)
        case _:
            return share


def add_noise(
    noise: Noise, input_ids: np.ndarray, examples: np.ndarray, keys: np.ndarray, slots: int
) -> dict[str, np.ndarray]:
    """Mask target tokens of each example of each row.

    Args:
        noise: the settings.
        input_ids: int32 `[B, S]`.
        examples: int `[B, S]`, the 1-based number of each target token's example in the row; 0 for other tokens.
        keys: uint64 `[B]`, keys of the random numbers of the rows.
        slots: P, at least the maximum number of target tokens in a row.

    Returns:
        `input_ids` int32 `[B, S]`, with masks; `masked_positions` int32 `[B, P]`, ascending, padded with 0;
        `masked_labels` int32 `[B, P]`, the original ids; `masked_weights` float32 `[B, P]`, the weights of their
        losses, 0 for padding; and `target_counts` float32 `[B]`, the expected sum of weights in a row: the number of
        its target tokens, or of its masked tokens where weights are equal.
    """
    row, column = np.nonzero(examples)
    number = examples[row, column]
    first = np.flatnonzero(np.diff(row, prepend=-1) | np.diff(number, prepend=0))  # start of each example
    sizes = np.diff(first, append=len(row))
    times = uniform(hash_counters(keys[row[first]], _TIME, number[first]))
    count, weight = noise.counts(sizes, times)

    example = np.repeat(np.arange(len(first)), sizes)
    order = np.lexsort((hash_counters(keys[row], _ORDER, column), example))  # shuffle the tokens within each example
    rank = np.empty(len(row), np.int64)
    rank[order] = np.arange(len(row)) - first[example]
    chosen = rank < count[example]
    row, column, weights = row[chosen], column[chosen], weight[example[chosen]]
    slot = np.arange(len(row)) - np.searchsorted(row, row)

    shape = (len(input_ids), slots)
    positions, labels, of_losses = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    positions[row, slot], labels[row, slot], of_losses[row, slot] = column, input_ids[row, column], weights
    masked = input_ids.copy()
    masked[row, column] = noise.mask_id
    targets = (of_losses > 0 if noise.weighting == "equal" else examples > 0).sum(axis=1)
    return {
        "input_ids": masked,
        "masked_positions": positions,
        "masked_labels": labels,
        "masked_weights": of_losses,
        "target_counts": targets.astype(np.float32),
    }
