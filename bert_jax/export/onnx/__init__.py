"""A model as an ONNX graph, built from its config and parameters with ONNX's own operators."""
