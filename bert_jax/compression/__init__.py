"""Make a trained model smaller: structured pruning."""
