"""Models by their names on the Hugging Face hub, downloaded by its own client from a hub on this machine."""

import numpy as np
import pytest
from hub import Hub
from safetensors.numpy import load_file

from bert_jax.cli import main
from bert_jax.config.values import EmbeddingLayer
from bert_jax.inference import from_pretrained

pytest.importorskip("huggingface_hub", reason="its client downloads: pip install 'bert-jax[hub]'")

DENSE = "pytorch_model.bin"
CODE = """
import numpy as np, bert_jax
model = bert_jax.from_pretrained("hf://org/model")
np.save({out!r}, model.encode(["the cat sat", "a red river"]))
"""


@pytest.fixture(scope="module")
def hub():
    with Hub.running() as running:
        yield running


def downloaded(hub, folder, tmp_path):
    """Open a folder by its name on the hub; return the vectors, and the files that were downloaded for it."""
    hub.models["org/model"], before = folder, len(hub.downloaded)
    hub.run(CODE.format(out=str(tmp_path / "vectors.npy")), tmp_path / "cache")
    return np.load(tmp_path / "vectors.npy"), hub.downloaded[before:]


@pytest.mark.slow
def test_a_sentence_transformer_with_layers_of_its_own(hub, tmp_path, write_small):
    torch = pytest.importorskip("torch", reason="writes the weights of the layer as PyTorch does")
    layers = (EmbeddingLayer("dense", 32, 16, True, "tanh"),)
    folder = write_small(tmp_path / "model", "sentence_embedding", embedding_layers=layers)
    (weights,) = folder.glob("2_Dense/*.safetensors")
    torch.save({name: torch.tensor(array) for name, array in load_file(weights).items()}, weights.with_name(DENSE))
    weights.unlink()
    vectors, files = downloaded(hub, folder, tmp_path)
    np.testing.assert_array_equal(vectors, from_pretrained(folder).encode(["the cat sat", "a red river"]))
    assert vectors.shape == (2, 16) and f"2_Dense/{DENSE}" in files


@pytest.mark.sampled(2)
@pytest.mark.parametrize("format", ["flax", "safetensors"])
def test_weights_in_one_format_are_downloaded(hub, tmp_path, write_small, format):
    folder = write_small(tmp_path / "small", "encoder")
    assert main(["convert", str(folder), str(tmp_path / "model"), "--format", format]) == 0
    expected = from_pretrained(folder).encode(["the cat sat", "a red river"])
    for other in ("rust_model.ot", "tf_model.h5", "onnx/model.onnx"):
        (tmp_path / "model" / other).parent.mkdir(exist_ok=True)
        (tmp_path / "model" / other).write_bytes(b"large")
    if format == "safetensors":
        for other in ("pytorch_model.bin", "flax_model.msgpack"):
            (tmp_path / "model" / other).write_bytes(b"the same weights again")
    vectors, files = downloaded(hub, tmp_path / "model", tmp_path)
    np.testing.assert_array_equal(vectors, expected)
    weights = {"flax": "flax_model.msgpack", "safetensors": "model.safetensors"}[format]
    assert [name for name in files if not name.endswith((".json", ".txt"))] == [weights]
    hub.models.clear()  # the cache serves without the hub
    again = hub.run(CODE.format(out=str(tmp_path / "vectors.npy")), tmp_path / "cache")
    assert not again
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), expected)


@pytest.mark.slow
def test_a_verb_prints_no_requests_that_are_tried_again(hub, tmp_path, write_small, monkeypatch):
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # they show times
    hub.models["org/model"] = write_small(tmp_path / "small", "encoder")
    code = "import sys\nsys.stderr = sys.stdout\nfrom bert_jax.cli import main\nmain(['embed', 'org/model', 'a cat'])"
    expected = hub.run(code, tmp_path / "cache")
    hub.failures = 1
    assert hub.run(code, tmp_path / "other") == expected
    assert hub.failures == 0


@pytest.mark.parametrize("down", [True, False])
def test_a_name_that_the_hub_does_not_have_is_answered_at_once(hub, tmp_path, down):
    """A hub that cannot be reached is asked once, and not again for 24 s; one may be there without the model."""
    code = "import os, sys, time\n" + "os.environ['HF_ENDPOINT'] = 'http://127.0.0.1:9'\n" * down
    code += "from bert_jax.cli import main\nmain(['embed', 'org/first', 'a cat'])\n"  # with the imports
    code += "sys.stderr = sys.stdout\nstarted = time.time()\n"
    code += "status = main(['embed', 'org/modle', 'a cat'])\nprint(status, time.time() - started)"
    said, outcome = hub.run(code, tmp_path / "cache").splitlines()
    status, seconds = outcome.split()
    assert status == "2" and float(seconds) < 3
    assert said.startswith("bert-jax: org/modle: no such model directory, and ")
    assert ("did not provide it" in said and "hf download org/modle" in said) is down
    assert ("no such model on the Hugging Face hub" in said) is not down
