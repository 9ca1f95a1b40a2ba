"""Pairs of texts of one class and of two classes, and texts on which a classifier is fitted and evaluated."""

import dataclasses
import functools

import numpy as np

from bert_jax.data.batches import INPUTS, Batch
from bert_jax.data.finetuning.features import Features

FITTED = "fitted"  # array of a batch: 1 for texts on which the classifier is fitted, 0 for those that evaluate it


@dataclasses.dataclass(frozen=True, eq=False)
class TextPairs:
    """Pairs of texts; the texts are held once.

    Attributes:
        texts: the texts.
        pairs: int32 `[m, 2]`, the numbers of the two texts.
        labels: float32 `[m]`, 1 for texts of one class, 0 for others.
    """

    texts: Features
    pairs: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """int64 `[m]`, tokens of the longer text of each pair."""
        lengths: np.ndarray = self.texts.lengths[self.pairs].max(axis=1)
        return lengths

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of pairs `index` [B], inputs `[B, 2, length]`; an index of -1 makes a row of weight 0."""
        real = index >= 0
        padded = self.texts.pad(np.where(real[:, None], self.pairs[index], -1).ravel(), length, pad_id)
        return {name: padded[name].reshape(-1, 2, length) for name in INPUTS} | {
            "labels": np.where(real, self.labels[index], 0).astype(np.float32),
            "example_weights": real.astype(np.float32),
        }


def draw_pairs(texts: Features, classes: np.ndarray, count: int, seed: int) -> TextPairs:
    """Draw pairs of texts (Tunstall et al. 2022, arXiv:2209.11055, section 3.1).

    Args:
        texts: n texts.
        classes: int `[n]`, the class of each text; there are at least two.
        count: number R of pairs that each text forms with random other texts of its class, and with random texts of
            other classes. A text that is alone in its class forms only the latter.
        seed: the seed of the draws.
    """
    random = np.random.default_rng(seed)
    order = np.argsort(classes, kind="stable")  # the texts, class by class
    counts = np.bincount(classes)
    own, place = counts[classes], np.empty(len(classes), int)
    place[order] = np.arange(len(order))
    first = (np.cumsum(counts) - counts)[classes]  # where the class of each text begins in `order`
    alike, other = (
        np.floor(random.random((len(classes), count)) * limit[:, None]).astype(int)
        for limit in (np.maximum(own - 1, 1), len(classes) - own)
    )
    alike += first[:, None]
    alike += alike >= place[:, None]  # not the text itself
    other += (other >= first[:, None]) * own[:, None]  # not its class
    kept = np.flatnonzero(own > 1)
    firsts = np.concatenate([np.repeat(kept, count), np.repeat(np.arange(len(classes)), count)])
    seconds = order[np.concatenate([alike[kept].ravel(), other.ravel()])]
    labels = np.arange(len(firsts)) < len(kept) * count
    return TextPairs(texts, np.stack([firsts, seconds], axis=1).astype(np.int32), labels.astype(np.float32))


@dataclasses.dataclass(frozen=True, eq=False)
class FittedAndEvaluated:
    """Training texts, on which the classifier is fitted, and then the texts that evaluate it.

    Attributes:
        texts: all texts, with their classes as labels.
        fitted: number of training texts, which come first.
    """

    texts: Features
    fitted: int

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def lengths(self) -> np.ndarray:
        """int64 `[n]`, tokens of each text."""
        return self.texts.lengths

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of texts `index` [B] with `fitted` [B]; an index of -1 makes a row of weight 0."""
        fitted = (index >= 0) & (index < self.fitted)
        return self.texts.pad(index, length, pad_id) | {FITTED: fitted.astype(np.float32)}
