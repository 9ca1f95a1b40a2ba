"""One interface over all formats of weights: which file is opened, and what is said when none can be."""

import json
import os
import tempfile

import bundles
import numpy as np
import pytest

from bert_jax.conversion import weights as tensors
from bert_jax.conversion.formats import flax_msgpack, safetensors_writing
from bert_jax.errors import InputError

WEIGHTS = {"bert.pooler.dense.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "classifier.bias": np.ones(2)}


def read(directory) -> dict[str, np.ndarray]:
    with tensors.open_weights(directory) as weights:
        found = {name: tensor.read() for name, tensor in weights.tensors.items()}
        for name, tensor in weights.tensors.items():
            assert (found[name].shape, found[name].dtype) == (tensor.shape, tensor.dtype)
            assert np.array_equal(tensor.transposed().read(), found[name].T)
            assert tensor.transposed().shape == found[name].T.shape
    return found


def same(found, expected) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)


def write_shards(directory) -> dict[str, str]:
    """WEIGHTS with a tensor in each of two files; returns the map of names to files."""
    weight_map = {}
    for i, (name, tensor) in enumerate(WEIGHTS.items()):
        weight_map[name] = f"model-{i}.safetensors"
        safetensors_writing.write(directory / weight_map[name], {name: tensor})
    return weight_map


def test_a_directory_without_weights_is_told_what_it_holds(tmp_path):
    assert not tensors.is_weights(tmp_path) and not tensors.is_weights(tmp_path / "absent")
    with pytest.raises(InputError, match=r"expected weights \(model\.safetensors, .*\), found nothing"):
        read(tmp_path)
    (tmp_path / "tf_model.h5").touch()
    with pytest.raises(InputError, match=r"found tf_model\.h5"):
        read(tmp_path)
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(InputError, match=r"model\.safetensors: expected a file, found a directory"):
        read(tmp_path)


def test_what_a_file_holds_decides_how_it_is_read(tmp_path):
    safetensors_writing.write(tmp_path / "pytorch_model.bin", WEIGHTS)
    assert tensors.is_weights(tmp_path) and same(read(tmp_path), WEIGHTS)
    with tensors.open_weights(tmp_path) as weights:
        assert weights.format == "safetensors" and weights.where.name == "pytorch_model.bin"


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="expected a file, found a directory or a device"):
        read(tmp_path)


def test_an_index_of_something_else_is_no_checkpoint(tmp_path):
    (tmp_path / "passages.index").write_bytes(b"of a search library" * 10)
    assert not tensors.is_weights(tmp_path)
    flax_msgpack.write(tmp_path / "flax_model.msgpack", WEIGHTS)
    assert same(read(tmp_path), WEIGHTS)


def test_safetensors_come_first(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    safetensors_writing.write(tmp_path / "model.safetensors", WEIGHTS)
    assert same(read(tmp_path), WEIGHTS)


def test_a_pointer_of_git_lfs_is_told_from_damage(tmp_path):
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(InputError, match="git lfs pull"):
        read(tmp_path)


def test_shards_are_opened_by_their_index(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": write_shards(tmp_path)}))
    assert same(read(tmp_path), WEIGHTS)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ('{"weight_map": {"w": "../model-0.safetensors"}}', "expected the name of a file beside it"),
        ('{"weight_map": {"w": "absent"}}', "expected the shard 'absent' beside it, found no such file"),
        ('{"weight_map": {"w": "nul\\u0000"}}', "found no such file"),
        ('{"weight_map": {"w": ".."}}', "found no such file"),
        (json.dumps({"weight_map": {"w": "x" * 5000}}), "found no such file"),
        ('{"weight_map": {"w": "model-0.safetensors"}}', "expected a tensor 'w' in model-0.safetensors"),
        ('{"weight_map": {"w": 1}}', "expected a weight_map"),
        ("{}", "expected a weight_map"),
        ('{"weight_map": {"w": "a", "w": "b"}}', "found 'w' twice"),
        ("[" * 30_000, "nested too deeply"),
        ("[" * 200_000, "at most 2000 tensors"),
        ("{", "expected a weight_map in JSON, found"),
    ],
)
def test_an_index_that_lies(tmp_path, index, message):
    write_shards(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_bucket_is_read_through_copies_that_are_removed(tmp_path, monkeypatch, bucket):
    served, copies = tmp_path / "served", tmp_path / "copies"
    served.mkdir(), copies.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))

    def upload():
        for path in served.iterdir():
            bucket.write(f"model/{path.name}", path.read_bytes())

    safetensors_writing.write(served / "model.safetensors", WEIGHTS)
    upload()
    url = f"gs://{bucket.name}/model"
    with tensors.open_weights(url) as weights:
        assert str(weights.where) == f"{url}/model.safetensors" and len(list(copies.iterdir())) == 1
        assert same({name: tensor.read() for name, tensor in weights.tensors.items()}, WEIGHTS)
    bucket.delete("model/model.safetensors")
    (served / "model.safetensors").unlink()
    bundles.write(served, bundles.variables())
    upload()
    with tensors.open_weights(url) as weights:
        assert weights.format == "tf1" and len(list(copies.iterdir())) == 2
        assert all(tensor.read() is not None for tensor in weights.tensors.values())
    assert not list(copies.iterdir())
