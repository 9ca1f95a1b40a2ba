"""Corpora -> documents -> sentence pairs -> batches; a batch is a pure function of the step."""
