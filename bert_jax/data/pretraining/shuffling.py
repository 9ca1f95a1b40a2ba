"""The order of rows in training: random, and readable in blocks.

An epoch is a seeded permutation of the blocks of a set (`shards.block_starts`), cut into windows of about
`WINDOW_BLOCKS` blocks. The rows of a window are permuted within their blocks, concatenated, and cut into B segments:
row b of the batches gets the b-th segment, one row for each step that the window lasts. So a batch draws evenly from
all blocks of a window, while a host that makes only some rows of each batch reads only its share of the blocks. The row
at each position is computed from the seed and the position alone.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from bert_jax.data.pretraining.masking import hash_counters

WINDOW_BLOCKS = 256  # maximum number of blocks in a window: 64 MiB at 256 KiB a block
_BLOCK_ORDER, _ROW_ORDER = 0x5348, 0x5349  # streams of random numbers, independent of each other and of the masks'
_CACHED_WINDOWS, _CACHED_EPOCHS = 4, 2


class ShuffledRows:
    """An endless sequence of epochs: position p is row p % batch_size of the batch of step p // batch_size.

    Args:
        block_starts: int64 [num_blocks + 1] (`shards.block_starts`).
        batch_size: B, rows of a step's batch, over all hosts.
        seed: the seed of all random numbers, together with the epoch.
    """

    def __init__(self, block_starts: np.ndarray, batch_size: int, seed: int):
        self._batch_size = batch_size
        self._num_rows = int(block_starts[-1])
        num_blocks = len(block_starts) - 1
        self._num_windows = -(-num_blocks // WINDOW_BLOCKS)  # windows in an epoch
        self._epoch = functools.lru_cache(_CACHED_EPOCHS)(
            functools.partial(_Epoch.shuffled, block_starts, self._num_windows, seed)
        )
        self._window = functools.lru_cache(_CACHED_WINDOWS)(
            functools.partial(_Window.shuffled, block_starts, batch_size, seed, self._epoch, self._num_windows)
        )

    def rows(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the set at some positions, and their epochs: int64 of the shape of `positions`."""
        rows = np.empty_like(positions)
        windows = self._windows(positions)
        for number in np.unique(windows).tolist():
            inside = windows == number
            rows[inside] = self._window(number).rows(positions[inside])
        return rows, positions // self._num_rows

    def windows_ahead(self, first_step: int, last_step: int) -> range:
        """Return the numbers of the windows to fetch: the one in which the batch of `first_step` begins, the next one,
        and those in which the batch of `last_step` and the batch after it end."""
        ends = np.array([first_step, last_step + 2]) * self._batch_size - np.array([0, 1])
        first, last = self._windows(ends).tolist()
        return range(first, max(last, first + 1) + 1)

    def blocks(self, window: int, batch_rows: np.ndarray) -> np.ndarray:
        """Return the blocks of a window from which these rows of the batches are read."""
        return self._window(window).blocks_of(batch_rows)

    def _windows(self, positions: np.ndarray) -> np.ndarray:
        """Return the numbers of the windows that positions belong to, counted over all epochs."""
        epochs, within = np.divmod(positions, self._num_rows)
        numbers = epochs * self._num_windows
        if self._num_windows > 1:
            for epoch in np.unique(epochs).tolist():
                starts = self._epoch(epoch).window_starts
                inside = epochs == epoch
                numbers[inside] += np.searchsorted(starts, within[inside], side="right") - 1
        return numbers


@dataclasses.dataclass(frozen=True)
class _Epoch:
    """The windows of an epoch.

    Attributes:
        blocks: int64 arrays, the blocks of each window.
        window_starts: int64 [windows], the position within the epoch at which each window begins.
    """

    blocks: list[np.ndarray]
    window_starts: np.ndarray

    @classmethod
    def shuffled(cls, block_starts: np.ndarray, num_windows: int, seed: int, epoch: int) -> "_Epoch":
        num_blocks = len(block_starts) - 1
        order = np.argsort(hash_counters(seed, _BLOCK_ORDER, epoch, np.arange(num_blocks)), kind="stable")
        bounds = np.arange(num_windows + 1) * num_blocks // num_windows  # windows have about equal size
        ends = np.concatenate([[0], np.cumsum(np.diff(block_starts)[order])])
        return cls(np.split(order, bounds[1:-1]), ends[bounds[:-1]])


@dataclasses.dataclass(frozen=True)
class _Window:
    """K blocks of an epoch, whose n rows are numbered c = 0 to n - 1 in the shuffled order.

    Attributes:
        position: the position of the window's first row in the sequence of epochs.
        batch_size: B, rows of a batch.
        blocks: int64 [K], the numbers of the blocks.
        first_rows: int64 [K], the first row of each block.
        starts: int64 [K + 1], the c of the first row of each block, followed by n.
        order: int32 [K, maximum rows per block], the rows of each block in random order, counted from its first row.
    """

    position: int
    batch_size: int
    blocks: np.ndarray
    first_rows: np.ndarray
    starts: np.ndarray
    order: np.ndarray

    @classmethod
    def shuffled(
        cls,
        block_starts: np.ndarray,
        batch_size: int,
        seed: int,
        epochs: Callable[[int], _Epoch],
        windows_per_epoch: int,
        number: int,
    ) -> "_Window":
        epoch, window = divmod(number, windows_per_epoch)
        blocks = epochs(epoch).blocks[window]
        position = epoch * int(block_starts[-1]) + int(epochs(epoch).window_starts[window])
        sizes = np.diff(block_starts)[blocks]
        columns = np.arange(sizes.max())
        bits = hash_counters(seed, _ROW_ORDER, epoch, blocks[:, None], columns)
        bits = np.where(columns < sizes[:, None], bits, np.iinfo(np.uint64).max)  # padding sorts behind all rows
        order = np.argsort(bits, axis=1, kind="stable").astype(np.int32)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return cls(position, batch_size, blocks, block_starts[blocks], starts, order)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of the data set at these positions of the shuffle window."""
        c = self._segment_starts(positions % self.batch_size) + (positions - self.position) // self.batch_size
        block = np.searchsorted(self.starts, c, side="right") - 1
        return self.first_rows[block] + self.order[block, c - self.starts[block]]

    def blocks_of(self, batch_rows: np.ndarray) -> np.ndarray:
        """Return the blocks that hold the segments of these rows of the batch."""
        starts, ends = self._segment_starts(batch_rows), self._segment_starts(batch_rows + 1)
        starts, ends = starts[ends > starts], ends[ends > starts]
        opened = np.zeros(len(self.starts), np.int64)  # +1 at the first block of a segment, -1 after its last
        np.add.at(opened, np.searchsorted(self.starts, starts, side="right") - 1, 1)
        np.add.at(opened, np.searchsorted(self.starts, ends - 1, side="right"), -1)
        return self.blocks[np.cumsum(opened)[:-1] > 0]

    def _segment_starts(self, batch_rows: np.ndarray) -> np.ndarray:
        """Return the c at which the segment of each of these rows of the batch begins; n for row B.

        A segment has n // B rows; those of n % B rows of the batch have one more: the rows, counted cyclically, from
        the one at which the window begins.
        """
        each, more = divmod(int(self.starts[-1]), self.batch_size)
        first = self.position % self.batch_size
        wrapped = max(0, first + more - self.batch_size)
        return batch_rows * each + np.clip(batch_rows - first, 0, more - wrapped) + np.minimum(batch_rows, wrapped)
