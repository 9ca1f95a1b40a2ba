"""Safetensors files: what is damaged is refused, what is whole comes back bit by bit."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from bert_jax.conversion import safetensors_files
from bert_jax.errors import InputError

TENSORS = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b.bias": np.array([0.5, -2.0], np.float16),
    "c": np.array([1, 2, 3], np.int64),
    "d": np.array([1.5], ml_dtypes.bfloat16),
}


def forged(header: dict, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_round_trip_keeps_every_bit_and_dtype(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_files.write(path, TENSORS)
    read = safetensors_files.read(path)
    assert read.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert read[name].dtype == tensor.dtype and np.array_equal(read[name], tensor)


def test_transposed_views_are_written_as_they_read(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_files.write(path, {"w": TENSORS["a.weight"].T})
    assert np.array_equal(safetensors_files.read(path)["w"], TENSORS["a.weight"].T)


def test_files_of_others_carry_no_checksum_and_are_read(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"w": TENSORS["a.weight"]}, path)
    assert np.array_equal(safetensors_files.read(path)["w"], TENSORS["a.weight"])


def test_every_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_files.write(path, TENSORS)
    whole = path.read_bytes()
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    for offset in range(start, len(whole)):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x10]) + whole[offset + 1 :])
        with pytest.raises(InputError, match=r"model\.safetensors: tensor .* the file is damaged"):
            safetensors_files.read(path)
    for offset in range(start):  # in the header: refused, or harmless (the name of a key that nobody reads)
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x01]) + whole[offset + 1 :])
        try:
            read = safetensors_files.read(path)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert all(np.array_equal(read[name], tensor) for name, tensor in TENSORS.items())


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_files.write(path, TENSORS)
    whole = path.read_bytes()
    for size in (0, 5, 8, 50, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="expected a whole safetensors file"):
            safetensors_files.read(path)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 64,
        b"not a checkpoint at all, but long enough to hold a header",
        forged({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"\0" * 4),
        forged({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"\0" * 12),
        forged(
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
            },
            b"\0" * 12,
        ),
        forged({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, b"\0" * 8),
        forged({"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 8]}}, b"\0" * 8),
    ],
    ids=["noise", "text", "short data", "long data", "overlap", "dtype", "huge shape"],
)
def test_headers_that_lie_are_refused_in_one_line(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        safetensors_files.read(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        safetensors_files.read(tmp_path / "model.safetensors")


def test_nothing_is_left_when_writing_fails(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(safetensors_files.epath.Path(tmp_path)), "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        safetensors_files.write(tmp_path / "model.safetensors", TENSORS)
    assert not list(tmp_path.iterdir())
