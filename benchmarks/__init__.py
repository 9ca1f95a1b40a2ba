"""Our speed beside PyTorch's: `python -m benchmarks`."""

# The pretraining step: BERT-base, sequences and tokens of a batch, predictions a sequence.
BATCH, LENGTH, PREDICTIONS = 16, 128, 20
