"""Compression: finished models made smaller, by pruning and by quantization."""
