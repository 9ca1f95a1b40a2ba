"""Attention kernels that do not write the scores to HBM."""
