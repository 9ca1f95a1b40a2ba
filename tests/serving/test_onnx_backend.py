"""The onnxruntime backend, on ONNX files that the tests make: an embedding and its mean, and two linear heads."""

import json
import shutil
from types import SimpleNamespace

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from served import running

from bert_jax.errors import InputError
from bert_jax.serving.batching import Row, Shape
from bert_jax.serving.onnx_backend import open_onnx_model, pool
from bert_jax.serving.tasks import ServedTask
from bert_jax.tokenization import load_tokenizer

WIDTH = 32


def write_onnx(path, kind, vocab_size, outputs=3):
    """Writes `last_hidden_state = table[input_ids]`, or a linear head over it; returns table and kernel."""
    rng = np.random.default_rng(0)
    table, kernel = (rng.standard_normal(shape).astype(np.float32) for shape in ((vocab_size, WIDTH), (WIDTH, outputs)))
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(kernel, "kernel")]
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    name, shape = "last_hidden_state", ["batch", "sequence", WIDTH]
    if kind == "tokens":
        nodes.append(helper.make_node("MatMul", ["last_hidden_state", "kernel"], ["logits"]))
        name, shape = "logits", ["batch", "sequence", outputs]
    elif kind == "classes":
        constants.append(numpy_helper.from_array(np.array(0), "first"))
        nodes.append(helper.make_node("Gather", ["last_hidden_state", "first"], ["cls"], axis=1))
        nodes.append(helper.make_node("MatMul", ["cls", "kernel"], ["logits"]))
        name, shape = "logits", ["batch", outputs]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
              for name in ("input_ids", "attention_mask", "token_type_ids")]  # fmt: skip
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "bert", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return table, kernel


@pytest.fixture
def folder(tmp_path, models):
    """Makes a directory as of an export: the config and tokenizer of a model, and an ONNX file of `kind`."""

    def write(kind, name):
        path = shutil.copytree(models[name], tmp_path / kind, ignore=shutil.ignore_patterns("*.safetensors"))
        size = load_tokenizer(path).vocab_size
        heads = {"masks": ("tokens", size), "tokens": ("tokens", 3), "classes": ("classes", 3)}
        head, outputs = heads.get(kind, (kind, 3))
        return path, write_onnx(path / "onnx" / "model.onnx", head, size, outputs)

    return write


def test_vectors_over_http(folder):
    path, (table, _) = folder("vectors", "embedder")
    model = open_onnx_model(str(path), "vectors", "onnx/model.onnx", None, None)
    texts = ["a dog", "the cat sat on the tree"]
    with running([model]) as address:
        found = httpx.post(f"{address}/embed", json={"inputs": texts}).json()
    for vector, row in zip(found, model.rows(texts), strict=True):
        expected = table[row.input_ids].mean(axis=0)
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-6)


def test_classes_tokens_and_masks(folder):
    rows = [Row(np.array(ids, np.int32), np.zeros(len(ids), np.int32), 1) for ids in ([2, 9, 3], [2, 8, 7, 11, 3])]
    for kind, name in (("classes", "classes"), ("tokens", "tags"), ("masks", "masks")):
        path, (table, kernel) = folder(kind, name)
        model = open_onnx_model(str(path), kind, "onnx/model.onnx", None, None)
        assert model.task.value == {"classes": "classify", "tokens": "tag", "masks": "fill-mask"}[kind]
        for output, row in zip(model.backends[0].begin(rows, Shape(2, 16))(), rows, strict=True):
            states = table[row.input_ids] @ kernel
            expected = {"classes": states[0], "tokens": states, "masks": states[1]}[kind]
            np.testing.assert_allclose(output, expected, atol=1e-5)


def test_an_invariant_batch_is_padded_to_its_shape(folder, monkeypatch):
    path, _ = folder("vectors", "embedder")
    model = open_onnx_model(str(path), "vectors", "onnx/model.onnx", None, None, batch_invariant=True)
    (backend,) = model.backends
    seen = []
    run = backend._session.run
    noted = SimpleNamespace(run=lambda names, feed: seen.append(feed) or run(names, feed))
    monkeypatch.setattr(backend, "_session", noted)
    rows = model.rows(["a dog", "the cat"])
    together = backend.begin(rows, backend.shapes[0])()
    assert len(together) == 2
    for row, vector in zip(rows, together, strict=True):
        np.testing.assert_array_equal(backend.begin([row], backend.shapes[0])()[0], vector)
    assert {feed["input_ids"].shape for feed in seen} == {tuple(backend.shapes[0])}


def test_poolings():
    states = np.array([[[1.0], [3.0], [9.0]]])
    mask = np.array([[1, 1, 0]])
    assert [pool(states, mask, name).item() for name in ("mean", "cls", "max")] == [2, 1, 3]
    behind_a_prompt = np.array([[0, 1, 1]])
    assert [pool(states, behind_a_prompt, name).item() for name in ("mean", "cls", "max")] == [6, 3, 9]


def test_a_prompt_that_is_not_pooled(folder):
    path, (table, _) = folder("vectors", "embedder")
    pooling = path / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"include_prompt": False}))
    prompts = path / "config_sentence_transformers.json"
    prompts.write_text(json.dumps(json.loads(prompts.read_text()) | {"prompts": {"query": "two "}}))
    model = open_onnx_model(str(path), "vectors", "onnx/model.onnx", None, None)
    with running([model]) as address:
        (found,) = httpx.post(f"{address}/embed", json={"inputs": "a dog", "prompt_name": "query"}).json()
    (row,) = model.rows(["two a dog"])
    expected = table[row.input_ids[2:]].mean(axis=0)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-6)


def test_errors_name_the_file(folder):
    path, _ = folder("vectors", "embedder")
    with pytest.raises(
        InputError, match=r"model.onnx: expected an output logits for tag, found \['last_hidden_state'\]"
    ):
        open_onnx_model(str(path), "a", "onnx/model.onnx", ServedTask.TAG, None)
    (path / "onnx" / "model.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"model.onnx: expected an ONNX model, found"):
        open_onnx_model(str(path), "a", "onnx/model.onnx", None, None)


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_padding_counted_is_that_of_the_session(folder, batch_invariant, monkeypatch):
    path, _ = folder("vectors", "embedder")
    model = open_onnx_model(str(path), "vectors", "onnx/model.onnx", None, None, batch_invariant)
    (backend,) = model.backends
    rows, shape, fed = model.rows(["a dog", "the cat sat on the tree"]), Shape(4, 64), []

    class Session:
        def run(self, names, feed):
            fed.append(feed["input_ids"].shape)
            return [np.zeros((*feed["input_ids"].shape, WIDTH), np.float32)]

    monkeypatch.setattr(backend, "_session", Session())
    backend.begin(rows, shape)()
    assert backend.padding(rows, shape) == np.prod(fed[0]) - sum(row.size for row in rows)
    assert fed == [(4, 64) if batch_invariant else (2, max(row.size for row in rows))]
