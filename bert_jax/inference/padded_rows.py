"""Convert rows of tokens to the input arrays of a model."""

from collections.abc import Sequence

import numpy as np


def padded_rows(rows: Sequence[Sequence[int]], pad_id: int) -> dict[str, np.ndarray]:
    """Return rows of token ids as `input_ids`, `token_type_ids` (0) and `attention_mask`, int32 `[N, S]`.

    Args:
        rows: N rows, at least one of them not empty.
        pad_id: id of the padding token at the end of shorter rows.
    """
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, pad_id, np.int32)
    ids[mask] = np.concatenate([np.asarray(row, np.int32) for row in rows])
    return {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": mask.astype(np.int32)}
