"""The lengths to which a pipeline pads batches: few, as the forward pass is compiled for each."""

import threading
from collections import Counter

import numpy as np

# Tokens of padding that a new padded length must save before it is compiled. On two CPU cores, compiling takes as
# long as 4,500 tokens of MiniLM; the limit is half of that, as more texts of this length tend to follow. On an
# accelerator, compiling takes as long as a million tokens or more.
_COMPILING = {"cpu": 2048}
_COMPILING_ELSEWHERE = 1_000_000


def rounded_length(size: int) -> int:
    """Round `size` up to one of 4, 6, ..., 16, 20, ..., 32, 40, ..., 64, 80, ..."""
    step = max(2, 1 << max(0, (size - 1).bit_length() - 3))
    return max(4, -(-size // step) * step)


class PaddedLengths:
    """The padded lengths in use, which the calls of a pipeline share in all threads.

    Args:
        longest: the model's number of positions.
        target: the platform of the forward pass.
    """

    def __init__(self, longest: int, target: str):
        self._longest = longest
        self._cost = _COMPILING.get(target, _COMPILING_ELSEWHERE)
        self._lock = threading.Lock()
        self._lengths: set[int] = set()
        self._saved: Counter[int] = Counter()  # length not yet in use -> padding tokens it would have saved

    def choose(self, lengths: np.ndarray) -> frozenset[int]:
        """Add padded lengths whose saved padding outweighs the cost of compiling them, and return all.

        The savings are summed over these texts and the texts of earlier calls.

        Args:
            lengths: number of tokens of each text.
        """
        rounded, counts = np.unique([rounded_length(size) for size in lengths.tolist()], return_counts=True)
        rounded = np.minimum(rounded, self._longest)

        def padding(*more: int) -> int:
            known = np.array(sorted({*self._lengths, *more}))
            return int((known[np.searchsorted(known, rounded)] - rounded) @ counts)

        with self._lock:
            if max(self._lengths, default=0) < rounded[-1]:
                self._lengths.add(int(rounded[-1]))
            while others := set(rounded.tolist()) - self._lengths:
                savings = {length: padding() - padding(length) for length in others}
                best = max(others, key=lambda length: savings[length] + self._saved[length])
                if savings[best] + self._saved[best] < self._cost:
                    self._saved.update(savings)
                    break
                self._lengths.add(best)
                del self._saved[best]
            return frozenset(self._lengths)

    def use_all(self) -> None:
        """Use the rounded length of each text, whatever it costs to compile."""
        with self._lock:
            self._lengths = {min(rounded_length(size), self._longest) for size in range(1, self._longest + 1)}
