"""The JAX backend: a batch in a static shape gives what the model gives, also of MiniLM, also on several devices."""

import dataclasses
import json
import shutil

import httpx
import numpy as np
import pytest
from served import running

from bert_jax import from_pretrained, pipeline
from bert_jax.errors import InputError
from bert_jax.serving.batching import Shape
from bert_jax.serving.models import open_jax_model
from bert_jax.serving.tasks import ServedTask

TEXTS = ["a cat on a mat", "a kitten on a rug", "tax law"]


def test_minilm_in_one_shape(minilm):
    model = open_jax_model(str(minilm), "minilm", None, "float32", None)
    (backend,) = model.backends
    assert model.max_length == 256 and Shape(32, 16) in backend.shapes
    vectors = np.stack(backend.begin(model.rows(TEXTS), Shape(10, 48))())
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    assert abs(lengths - 1).min() > 0.01  # the route normalizes
    expected = from_pretrained(minilm).encode(TEXTS)
    np.testing.assert_allclose(vectors / lengths, expected, atol=1e-6)


def test_an_invariant_batch_has_one_shape_for_each_length(minilm):
    model = open_jax_model(str(minilm), "minilm", None, "float32", 128, batch_invariant=True)
    (backend,) = model.backends
    lengths = [shape.length for shape in backend.shapes]
    assert len(set(lengths)) == len(lengths) and Shape(8, 16) in backend.shapes
    rows = model.rows(TEXTS)
    together = backend.begin(rows, Shape(8, 16))()
    for row, vector in zip(rows, together, strict=True):
        np.testing.assert_array_equal(backend.begin([row], Shape(8, 16))()[0], vector)


def test_a_task_that_is_named(models, tmp_path):
    model = open_jax_model(str(models["masks"]), "vectors", ServedTask.EMBED, "float32", 16)
    assert model.task is ServedTask.EMBED and model.config.sentence_embedding_size == 32
    other = shutil.copytree(models["reranker"], tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMultipleChoice"]}))
    with pytest.raises(InputError, match=r"expected a head among .*, found multiple_choice"):
        open_jax_model(str(other), "other", None, "float32", 16)


@pytest.mark.slow
@pytest.mark.parametrize("include_prompt", [True, False])
def test_the_prompt_of_a_request(models, tmp_path, include_prompt):
    """By any name, also in a model that does not pool the tokens of prompts."""
    source = from_pretrained(models["embedder"])
    settings = dataclasses.replace(
        source.settings, prompts=(("query", "the dog: "), ("document", "two ")), include_prompt=include_prompt
    )
    dataclasses.replace(source, settings=settings).save_pretrained(tmp_path / "model")
    served = open_jax_model(str(tmp_path / "model"), "m", None, "float32", 16)
    embed = pipeline("embed", tmp_path / "model")
    with running([served]) as address:
        for name in ("query", "document", None):
            body = {"inputs": TEXTS[:2], "prompt_name": name}
            found = httpx.post(f"{address}/embed", json={k: v for k, v in body.items() if v}).json()
            np.testing.assert_allclose(found, embed(TEXTS[:2], prompt_name=name), atol=1e-6)


SCRIPT = """
import json, numpy as np, threading
from bert_jax.serving.models import open_jax_model
from bert_jax.serving.batching import Shape
model = open_jax_model({path!r}, "m", None, "float32", 16)
rows = model.rows(["a dog", "the cat"])
outputs = [np.stack(backend.begin(rows[:1], Shape(1, 16))()).tolist() for backend in model.backends]
biases = [backend._model.params["embeddings"]["layer_norm"]["bias"] for backend in model.backends]
devices = [str(bias.device) for bias in biases]
print(json.dumps([outputs, devices]))
"""


@pytest.mark.slow
def test_each_device_has_a_copy(models, tmp_path, on_eight_devices):
    script = tmp_path / "devices.py"
    script.write_text(SCRIPT.format(path=str(models["embedder"])))
    outputs, devices = on_eight_devices(script)
    assert len(set(devices)) == 8 == len(outputs)
    assert all(json.dumps(output) == json.dumps(outputs[0]) for output in outputs)
