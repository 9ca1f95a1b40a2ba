"""Compression: make finished models smaller by pruning or quantization."""
