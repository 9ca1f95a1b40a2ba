"""Benchmarks of bert_jax against PyTorch: `python -m benchmarks`."""

# The pretraining step of BERT-base: sequences per batch, tokens per sequence, predictions per sequence.
BATCH, LENGTH, PREDICTIONS = 16, 128, 20
