"""Input data: corpora -> documents -> examples -> batches; a batch is a pure function of the step."""
