"""Safetensors files: what is damaged is refused, what is whole comes back bit by bit."""

import json
import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from bert_jax.conversion.formats import safetensors_files, safetensors_writing
from bert_jax.conversion.formats.lazy_tensors import LazyTensor
from bert_jax.errors import InputError

TENSORS = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b.bias": np.array([0.5, -2.0], np.float16),
    "c": np.array([1, 2, 3], np.int64),
    "d": np.array([1.5], ml_dtypes.bfloat16),
}


def read(path) -> dict[str, np.ndarray]:
    with safetensors_files.open_tensors(path) as tensors:
        return {name: tensor.read() for name, tensor in tensors.items()}


def forged(header: dict, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_round_trip_keeps_every_bit_and_dtype(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_writing.write(path, TENSORS)
    found = read(path)
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype and np.array_equal(found[name], tensor)


def test_transposed_views_are_written_as_they_read(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_writing.write(path, {"w": TENSORS["a.weight"].T})
    assert np.array_equal(read(path)["w"], TENSORS["a.weight"].T)


def test_files_of_others_carry_no_checksum_and_are_read(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"w": TENSORS["a.weight"]}, path)
    assert np.array_equal(read(path)["w"], TENSORS["a.weight"])


def test_every_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_writing.write(path, TENSORS)
    whole = path.read_bytes()
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    for offset in range(start, len(whole)):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x10]) + whole[offset + 1 :])
        with pytest.raises(InputError, match=r"model\.safetensors: tensor .* the file is damaged"):
            read(path)
    for offset in range(start):  # in the header: refused, or harmless (the name of a key that nobody reads)
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x01]) + whole[offset + 1 :])
        try:
            found = read(path)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert all(np.array_equal(found[name], tensor) for name, tensor in TENSORS.items())


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_writing.write(path, TENSORS)
    whole = path.read_bytes()
    for size in (0, 5, 8, 50, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="expected a whole safetensors file"):
            read(path)


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
        forged({"a": {"dtype": "F8_E5M2", "shape": [8], "data_offsets": [0, 8]}}, b"\0" * 8),
        forged({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, b"\0" * 12),
        forged({"a": {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}}, b"\0" * 8),
        forged({"a": {"dtype": "F32", "shape": "a\nb", "data_offsets": [0, 8]}}, b"\0" * 8),
        forged({"a": {"dtype": "F32", "shape": [2], "data_offsets": "a\nb"}}, b"\0" * 8),
        b"\x08\0\0\0\0\0\0\0[[[[[[[[",
        struct.pack("<Q", 2**20) + b"[" * 2**20,
        forged({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, b"\0" * 8),
        forged({"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 8]}}, b"\0" * 8),
    ],
    ids=[
        "noise",
        "text",
        "short data",
        "long data",
        "overlap",
        "8 bits",
        "gap",
        "bool",
        "lines in a shape",
        "lines in offsets",
        "cut",
        "nested",
        "dtype",
        "huge shape",
    ],
)
def test_headers_that_lie_are_refused_in_one_line(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "model.safetensors")


def test_nothing_is_left_when_writing_fails(tmp_path):
    reads = []

    def fails_when_half_is_written() -> np.ndarray:
        reads.append(len(list(tmp_path.iterdir())))
        if len(reads) == 2:
            raise OSError(28, "No space left on device")
        return TENSORS["c"]

    tensors = TENSORS | {"c": LazyTensor((3,), np.dtype(np.int64), fails_when_half_is_written)}
    with pytest.raises(OSError, match="No space left"):
        safetensors_writing.write(tmp_path / "model.safetensors", tensors)
    assert reads == [0, 1]  # the second time, a part was there
    assert not list(tmp_path.iterdir())


def test_the_bytes_are_the_librarys_but_for_the_order_of_the_metadata(tmp_path):
    path, other = tmp_path / "model.safetensors", tmp_path / "other.safetensors"
    dtypes = [np.bool_, *(f"{kind}{8 * size}" for kind in ("int", "uint") for size in (1, 2, 4, 8))]
    dtypes += [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
    tensors = {f"{name}é.{np.dtype(dtype)}": np.ones((3, 2), dtype) for dtype in dtypes for name in "ba"}
    tensors |= {"empty": np.zeros((0, 4), np.float32), "scalar": np.array(3.0, np.float32)}
    safetensors_writing.write(path, tensors)
    with safetensors.safe_open(path, framework="np") as opened:
        metadata = opened.metadata()
    safetensors.numpy.save_file(tensors, other, metadata)

    def parts(file):
        content = file.read_bytes()
        start = 8 + struct.unpack("<Q", content[:8])[0]
        assert start % 8 == 0
        return list(json.loads(content[8:start]).items()), content[start:]

    assert parts(path) == parts(other)
    again = tmp_path / "again.safetensors"
    with safetensors_files.open_tensors(path) as stored:
        safetensors_writing.write(again, {name: stored[name] for name in tensors})
    assert again.read_bytes() == path.read_bytes()


def test_one_tensor_at_a_time_is_in_memory(tmp_path):
    tensors = {f"w{i}": np.full((256, 1024), i, np.float32) for i in range(16)}  # 1 MiB each
    path, copy = tmp_path / "model.safetensors", tmp_path / "copy.safetensors"
    safetensors_writing.write(path, tensors)
    del tensors
    tracemalloc.start()
    try:
        with safetensors_files.open_tensors(path) as stored:
            assert tracemalloc.get_traced_memory()[1] < 2**18
            for i in range(16):
                assert stored[f"w{i}"].shape == (256, 1024) and stored[f"w{i}"].read()[0, 0] == i
            safetensors_writing.write(copy, {name: tensor.transposed() for name, tensor in stored.items()})
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


def test_a_name_that_is_there_twice(tmp_path):
    entry = '{"dtype": "U8", "shape": [1], "data_offsets": [%d, %d]}'
    header = f'{{"w": {entry % (0, 1)}, "w": {entry % (1, 2)}}}'.encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\1\2")
    with pytest.raises(InputError, match="found 'w' twice"):
        read(path)


def test_a_closed_file_is_not_read(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_writing.write(path, TENSORS)
    with safetensors_files.open_tensors(path) as stored:
        pass
    with pytest.raises(ValueError, match="closed file"):
        stored["c"].read()
