"""Benchmarks of bert_jax against PyTorch: `python -m benchmarks`."""

BATCH, LENGTH = 16, 128  # sequences of the pretraining step of BERT-base, and tokens of a sequence


def predictions(length: int) -> int:
    """Return the number of masked tokens of a sequence: 20 of 128."""
    return length * 5 // 32
