"""Flax's MessagePack files, with Flax itself as the oracle in both directions."""

import json
import tracemalloc

import flax.serialization
import flax.traverse_util
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.conversion import weights as tensors
from bert_jax.conversion.formats import flax_msgpack
from bert_jax.errors import InputError


def values(*shape: int, dtype=np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


FLAT = {
    "bert/embeddings/word_embeddings/embedding": values(9, 4),
    "bert/embeddings/LayerNorm/scale": values(4),
    "bert/embeddings/LayerNorm/bias": values(4),
    "bert/encoder/layer/0/attention/self/query/kernel": values(4, 3),
    "bert/encoder/layer/0/attention/self/query/bias": values(3, dtype=np.float16),
    "bert/encoder/layer/1/attention/self/query/kernel": values(4, 3, seed=1),
    "bert/encoder/layer/1/attention/self/query/bias": values(3, dtype=jnp.bfloat16),
    "cls/predictions/bias": values(9, dtype=np.float64),
}
NAMES = {
    "bert/embeddings/word_embeddings/embedding": "bert.embeddings.word_embeddings.weight",
    "bert/embeddings/LayerNorm/scale": "bert.embeddings.LayerNorm.weight",
    "bert/encoder/layer/0/attention/self/query/kernel": "bert.encoder.layer.0.attention.self.query.weight",
    "bert/encoder/layer/1/attention/self/query/kernel": "bert.encoder.layer.1.attention.self.query.weight",
}
PYTORCH = {
    NAMES.get(name, name.replace("/", ".")): array.T if name.endswith("kernel") else array
    for name, array in FLAT.items()
}


def tree(flat: dict) -> dict:
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def serialized(flat: dict) -> bytes:
    return flax.serialization.msgpack_serialize(tree(flat))


def read(directory, content: bytes | None = None) -> dict[str, np.ndarray]:
    if content is not None:
        (directory / "flax_model.msgpack").write_bytes(content)
    with tensors.open_weights(directory) as weights:
        assert weights.format == "flax"
        found = {name: tensor.read() for name, tensor in weights.tensors.items()}
        assert all(found[name].shape == tensor.shape for name, tensor in weights.tensors.items())
    return found


def same(found, expected) -> bool:
    return found.keys() == expected.keys() and all(
        np.array_equal(found[name], expected[name]) and found[name].dtype == expected[name].dtype for name in expected
    )


def test_what_flax_writes(tmp_path):
    assert same(read(tmp_path, serialized(FLAT)), PYTORCH)
    with_optimizer = {"params": tree(FLAT), "step": 3, "rate": 0.5, "name": "x", "none": None, "raw": b"abc"}
    with_optimizer["opt_state"] = {"0": tree(FLAT), "count": np.int32(7), "long": -(2**40)}
    assert same(read(tmp_path, flax.serialization.msgpack_serialize(with_optimizer)), PYTORCH)


def test_flax_reads_what_is_written_and_would_write_the_same(tmp_path):
    path = tmp_path / "flax_model.msgpack"
    flax_msgpack.write(path, PYTORCH)
    restored = flax.traverse_util.flatten_dict(flax.serialization.msgpack_restore(path.read_bytes()), sep="/")
    assert same(restored, FLAT)
    assert path.read_bytes() == serialized(FLAT)
    with tensors.open_weights(tmp_path) as weights:
        flax_msgpack.write(tmp_path / "copy", weights.tensors)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.bool_, np.int64, jnp.bfloat16])
def test_arrays_of_every_length(tmp_path, dtype):
    flat = {f"n{size}": np.ones(size, dtype) for size in (0, 1, 2, 15, 31, 255, 256, 300, 20_000)}
    flat |= {"n" * 300: np.ones(3, dtype), "scalar": np.ones((), dtype), "empty": np.ones((1, 0), dtype)}
    path = tmp_path / "flax_model.msgpack"
    flax_msgpack.write(path, flat)
    assert path.read_bytes() == flax.serialization.msgpack_serialize(dict(flat))
    assert same(read(tmp_path), flat)


def test_long_arrays_are_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", 50)
    path = tmp_path / "flax_model.msgpack"
    flax_msgpack.write(path, PYTORCH)
    assert b"__msgpack_chunked_array__" in path.read_bytes()
    assert path.read_bytes() == serialized(FLAT)
    restored = flax.traverse_util.flatten_dict(flax.serialization.msgpack_restore(path.read_bytes()), sep="/")
    assert same(restored, FLAT)
    assert same(read(tmp_path), PYTORCH)
    stacked = {"encoder/layer/output/kernel": values(5, 3, 7)}  # a layer of 84 bytes is in two chunks or three
    found = read(tmp_path, serialized(stacked))
    for layer in range(5):
        assert np.array_equal(
            found[f"encoder.layer.{layer}.output.weight"], stacked["encoder/layer/output/kernel"][layer].T
        )


@pytest.mark.parametrize("scope", ["", "FlaxScanLayers/", "ScanLayers/", "FlaxBertLayerCollection_0/"])
def test_stacked_layers_come_apart(tmp_path, scope):
    kernel, bias = values(3, 4, 2), values(3, 2)
    flat = {
        f"bert/encoder/layer/{scope}attention/self/query/kernel": kernel,
        f"bert/encoder/layer/{scope}attention/self/query/bias": bias,
    }
    found = read(tmp_path, serialized(flat))
    assert len(found) == 6
    for layer in range(3):
        before = f"bert.encoder.layer.{layer}.attention.self.query"
        assert np.array_equal(found[f"{before}.weight"], kernel[layer].T)
        assert np.array_equal(found[f"{before}.bias"], bias[layer])


def test_shards(tmp_path):
    weight_map = {}
    for i, part in enumerate((list(FLAT)[::2], list(FLAT)[1::2])):
        shard = f"flax_model-{i + 1:05}-of-00002.msgpack"
        (tmp_path / shard).write_bytes(serialized({name: FLAT[name] for name in part}))
        weight_map |= dict.fromkeys(part, shard)
    index = tmp_path / "flax_model.msgpack.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert same(read(tmp_path), PYTORCH)
    (tmp_path / shard).write_bytes(serialized(FLAT))
    with pytest.raises(InputError, match="in one shard, found it in"):
        read(tmp_path)


def test_memory_is_that_of_the_file_and_of_one_array_that_is_written(tmp_path):
    content = serialized({f"encoder/{i}/kernel": np.full((256, 1024), i, np.float32) for i in range(16)})
    (tmp_path / "flax_model.msgpack").write_bytes(content)
    tracemalloc.start()
    try:
        with tensors.open_weights(tmp_path) as weights:
            assert tracemalloc.get_traced_memory()[1] < 2 * len(content) + 2**20
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            assert before < len(content) + 2**18
            assert all(weights.tensors[f"encoder.{i}.weight"].read()[0, 0] == i for i in range(16))
            flax_msgpack.write(tmp_path / "copy", weights.tensors)
        assert tracemalloc.get_traced_memory()[1] < before + 5 * 2**20  # an array is 1 MiB
    finally:
        tracemalloc.stop()
    assert (tmp_path / "copy").read_bytes() == content


def array(shape=b"\x91\x02", dtype=b"\xa7float32", content=b"\xc4\x08" + bytes(8), size=None, code=1) -> bytes:
    inner = b"\x93" + shape + dtype + content
    return b"\x81\xa1w\xc7" + bytes([len(inner) if size is None else size, code]) + inner


def chunked(shape=b"\x81\xa10\x02", chunks=b"") -> bytes:
    chunks = chunks or b"\x81\xa10" + array()[3:]
    return b"\x81\xa1w\x83\xb9__msgpack_chunked_array__\xc3\xa5shape" + shape + b"\xa6chunks" + chunks


def test_the_forgeries_below_are_near_to_files_that_are_read(tmp_path):
    assert np.array_equal(read(tmp_path, array())["w"], np.zeros(2))
    assert np.array_equal(read(tmp_path, chunked())["w"], np.zeros(2))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93\x01\x02\x03",
        b"\x01",
        array()[:-1],
        array() + b"\0",
        array(size=18),
        array(size=200),
        array(code=2),
        array(shape=b"\x91\x03"),
        array(shape=b"\x91\xff"),
        array(shape=b"\x91\xc3"),
        array(shape=b"\x92\xcf" + b"\x40" + bytes(7) + b"\x04"),
        array(shape=b"\x02"),
        array(dtype=b"\xa6object"),
        array(dtype=b"\xa2<V"),
        array(dtype=b"\x01"),
        array(content=b"\xa8" + bytes(8)),
        array(content=b"\xc6\xff\xff\xff\xff" + bytes(8)),
        b"\x82" + array()[1:] * 2,
        b"\x82" + array()[1:] + b"\xa1v\xc1",
        b"\xdf\xff\xff\xff\xff" + array()[1:],
        b"\x81\xa1a" * 10_000 + b"\x01",
        b"\x81" * 100_000,
        b"\x81\xa2\xff\xfe" + array()[3:],
        b"\x82\xa1a\x81\xa1b" + array()[3:] + b"\xa3a/b" + array()[3:],
        b"\x82\xa5scale" + array()[3:] + b"\xa6kernel" + array()[3:],
        b"\x81\xa5layer\x81\xa1w" + array(shape=b"\x90", content=b"\xc4\x04" + bytes(4))[3:],
        b"\x81\xa5layer\x81\xa1w" + array(shape=b"\x92\xce\x7f\xff\xff\xff\x00", content=b"\xc4\x00")[3:],
        chunked(shape=b"\x81\xa10\x03"),
        chunked(shape=b"\x81\xa11\x02"),
        chunked(shape=b"\x02"),
        chunked(chunks=b"\x80"),
        chunked(chunks=b"\x81\xa10\x01"),
        chunked(chunks=b"\x02"),
    ],
)
def test_hostile_files_are_refused_in_one_line(tmp_path, content):
    with pytest.raises(InputError, match=r"flax_model\.msgpack: ") as caught:
        read(tmp_path, content)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_dicts_without_end(tmp_path):
    assert read(tmp_path, b"\x81\xa1a" * 50 + array())
    with pytest.raises(InputError, match="found: "):
        read(tmp_path, b"\x81\xa1a" * 10_000 + array())


@pytest.mark.parametrize("names", [("a", "a.b"), ("a.b", "a"), ("a.weight", "a.scale")])
def test_names_that_no_tree_can_hold_are_not_written(tmp_path, names):
    with pytest.raises(InputError, match="found another tensor or a dict there"):
        flax_msgpack.write(tmp_path / "flax_model.msgpack", dict.fromkeys(names, np.ones(2, np.float32)))
    assert not list(tmp_path.iterdir())


def test_what_flax_has_no_name_for_is_not_written(tmp_path):
    with pytest.raises(InputError, match="tensor 'w': expected one of"):
        flax_msgpack.write(tmp_path / "flax_model.msgpack", {"w": np.ones(2, np.complex64)})
