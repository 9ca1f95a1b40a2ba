"""Examples for pretraining that share rows, which tests of several tasks use."""

import numpy as np

from bert_jax.data.packing import best_fit

LENGTH, SLOTS = 48, 8


def examples(count=23):
    """Examples of 3 to all of the tokens of a row, ordered as the rows that they fit in; and those rows."""
    rng = np.random.default_rng(0)
    lengths = np.concatenate([[LENGTH, 3], rng.integers(3, 40, count - 2)])
    rows = best_fit(lengths, LENGTH)
    order = [i for row in rows for i in row]
    lengths, inside = lengths[order], np.arange(LENGTH) < lengths[order][:, None]
    masked = np.minimum(rng.integers(0, SLOTS + 1, count), lengths - 2)
    batch = {
        "input_ids": rng.integers(1, 90, inside.shape) * inside,
        "token_type_ids": inside & (np.arange(LENGTH) > lengths[:, None] // 2),
        "attention_mask": inside,
        "masked_positions": np.stack([rng.permutation(LENGTH) % length for length in lengths])[:, :SLOTS],
        "masked_labels": rng.integers(1, 90, (count, SLOTS)),
        "next_sentence_labels": rng.integers(0, 2, count),
    }
    batch = {name: array.astype(np.int32) for name, array in batch.items()}
    batch["masked_weights"] = (np.arange(SLOTS) < masked[:, None]).astype(np.float32)
    batch["example_weights"] = np.ones(count, np.float32)
    return batch, np.repeat(np.arange(len(rows)), [len(row) for row in rows])
