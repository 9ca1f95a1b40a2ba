"""Every family in every format, on batches of 14 shapes: the outputs are those of bert_jax."""

import importlib.util

import jax
import numpy as np
import pytest
from small_models import write_model

from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.export.exporting import EXPORT_FORMATS, export_model
from bert_jax.export.signature import example_inputs, forward
from bert_jax.families import FAMILIES
from bert_jax.modeling import Bert, Compute

PACKAGES = {"onnx": "onnxruntime", "savedmodel": "tensorflow"}  # of the runtime of a format
# (rows, tokens): of one token, around powers of two, and beyond every local window and the lengths of fused attention.
SHAPES = [(1, 1), (2, 2), (1, 7), (4, 8), (3, 16), (1, 31), (2, 33), (5, 64), (1, 100), (2, 127), (1, 128), (3, 129),
          (2, 256), (1, 520)]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("format", EXPORT_FORMATS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_shape(tmp_path, family, format):
    package = PACKAGES.get(format)
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    head = "encoder" if family == "gte" else "masked_lm"
    positions = 64 if family == "big_bird" else 600  # its attention of longer sequences is not exported
    write_model(tmp_path / "model", family, head, max_position_embeddings=positions)
    export_model(tmp_path / "model", tmp_path / "out", format)
    run = EXPORT_FORMATS[format].open(tmp_path / "out", "float32")
    loaded = load_pretrained(tmp_path / "model")
    bert = Bert(loaded.config, loaded.head, Compute(attention="xla"))
    for shape in SHAPES:
        if shape[1] > loaded.config.max_position_embeddings:
            continue
        inputs = example_inputs(loaded.config, head, shape)
        expected = jax.device_get(jax.jit(forward, static_argnums=0)(bert, loaded.params, inputs))
        found = run(inputs)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            is_token = inputs["attention_mask"].astype(bool) if values.shape[:2] == shape else ...
            limit = 1e-5 * max(1, np.abs(values).max())
            np.testing.assert_allclose(found[name][is_token], values[is_token], rtol=0, atol=limit, err_msg=f"{shape}")
