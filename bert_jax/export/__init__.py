"""Export a model directory to StableHLO, ONNX or a SavedModel, and run the result in its runtime to check it."""
