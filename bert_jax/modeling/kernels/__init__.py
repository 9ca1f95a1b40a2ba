"""Attention as kernels that never write the scores to large memory."""
