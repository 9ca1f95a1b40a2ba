"""TensorFlow's checkpoints without TensorFlow: names, orientation, and that nothing damaged is read."""

import struct

import bundles
import numpy as np
import pytest

from bert_jax.conversion import weights as tensors
from bert_jax.conversion.formats import tf1
from bert_jax.conversion.formats.crc32c import masked_crc32c
from bert_jax.errors import InputError

VARIABLES = bundles.variables()


def read(directory) -> dict[str, np.ndarray]:
    with tensors.open_weights(directory) as weights:
        assert weights.format == "tf1"
        return {name: tensor.read() for name, tensor in weights.tensors.items()}


def names(*tf_names: str) -> list[str]:
    found = tf1.renamed({name: tensors.LazyTensor((2, 3), np.dtype(np.float32), list) for name in tf_names})
    return list(found)


@pytest.mark.parametrize("size", [0, 1, 9, 5000, 2**20 - 1, 2**20, 2**20 + 1])
def test_a_checksum_in_steps_is_that_by_bytes(size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    assert masked_crc32c(data) == bundles.masked_crc(data)


@pytest.mark.parametrize("shards", [1, 3])
def test_every_variable_is_found_under_pytorchs_name(tmp_path, shards):
    bundles.write(tmp_path, VARIABLES, shards=shards)
    assert tensors.is_weights(tmp_path)
    found = read(tmp_path)
    pooler = VARIABLES["bert/pooler/dense/kernel"]
    assert np.array_equal(found["bert.pooler.dense.weight"], pooler.T)
    words = found["bert.embeddings.word_embeddings.weight"]
    assert words.dtype == np.float64 and np.array_equal(words, VARIABLES["bert/embeddings/word_embeddings"])
    assert found["bert.embeddings.token_type_embeddings.weight"].dtype.name == "bfloat16"
    up = found["bert.encoder.layer.1.intermediate.dense.weight"]
    assert np.array_equal(up, VARIABLES["bert/encoder/layer_1/intermediate/dense/kernel"].T)
    gamma = VARIABLES["bert/encoder/layer_0/output/LayerNorm/gamma"]
    assert np.array_equal(found["bert.encoder.layer.0.output.LayerNorm.weight"], gamma)
    following = found["cls.seq_relationship.weight"]
    assert np.array_equal(following, VARIABLES["cls/seq_relationship/output_weights"])  # [2, D] there and here
    assert np.array_equal(found["cls.predictions.bias"], VARIABLES["cls/predictions/output_bias"])
    assert len(found) == len(VARIABLES) - 4


def test_what_a_training_run_keeps_is_left_out_and_listed(tmp_path):
    slots = [f"bert/pooler/dense/bias/{slot}" for slot in ("Adam", "Adam_1", "LAMB", "lamb_v", "made_up_slot")]
    counters = ["global_step", "beta2_power"]
    more = {name: np.ones(4, np.float32) for name in slots} | {"beta2_power": np.ones((), np.float32)}
    bundles.write(tmp_path, VARIABLES | more)
    with tensors.open_weights(tmp_path) as weights:
        assert {*slots, *counters, "bert/pooler/dense/kernel/adam_m"} <= set(weights.ignored)
        assert not any("adam" in name.lower() or "power" in name for name in weights.tensors)


def test_names_of_heads_and_of_factorised_embeddings():
    assert names("output_weights", "output_bias", "cls/squad/output_weights", "cls/squad/output_bias") == [
        "classifier.weight", "classifier.bias", "qa_outputs.weight", "qa_outputs.bias",
    ]  # fmt: skip
    assert names("bert/encoder/embedding_hidden_mapping_in/kernel") == ["bert.embeddings_project.weight"]


def test_names_of_electra():
    discriminator = {
        "electra/embeddings/word_embeddings": "electra.embeddings.word_embeddings.weight",
        "electra/embeddings_project/kernel": "electra.embeddings_project.weight",
        "electra/encoder/layer_11/output/LayerNorm/beta": "electra.encoder.layer.11.output.LayerNorm.bias",
        "discriminator_predictions/dense/kernel": "discriminator_predictions.dense.weight",
        "discriminator_predictions/dense_1/bias": "discriminator_predictions.dense_prediction.bias",
    }
    generator = {
        "generator/encoder/layer_0/attention/self/key/bias": "generator.encoder.layer.0.attention.self.key.bias",
        "generator_predictions/LayerNorm/gamma": "generator_predictions.LayerNorm.weight",
        "generator_predictions/output_bias": "generator_lm_head.bias",
    }
    assert names(*discriminator, *generator) == [*discriminator.values(), *generator.values()]
    assert names(*generator)[0] == "electra.encoder.layer.0.attention.self.key.bias"  # a generator alone


def test_two_variables_of_one_name():
    with pytest.raises(InputError, match=r"PyTorch name 'bert\.x\.weight'"):
        names("bert/x/kernel", "bert/x/gamma")


def test_every_flipped_byte_is_noticed(tmp_path):
    bundles.write(tmp_path, {name: VARIABLES[name] for name in list(VARIABLES)[:6]})
    index, data = tmp_path / "bert_model.ckpt.index", tmp_path / "bert_model.ckpt.data-00000-of-00001"
    expected = read(tmp_path)
    for path in (index, data):
        whole = path.read_bytes()
        for offset in range(0, len(whole), 1 if path == data else 3):
            path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x20]) + whole[offset + 1 :])
            try:
                found = read(tmp_path)
            except InputError as error:
                assert "\n" not in str(error) and path.name in str(error), error
            else:  # in what nobody reads: the block of metadata, the footer's padding
                assert path == index and all(np.array_equal(found[name], expected[name]) for name in expected)
        for size in (0, 10, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            with pytest.raises(InputError):
                read(tmp_path)
        path.write_bytes(whole)
    data.unlink()
    with pytest.raises(InputError, match=r"data-00000-of-00001: no such file"):
        read(tmp_path)


def described(dtype=1, shape=(2,), offset=0, size=8, shard=0, more=b"", crc=None) -> bytes:
    return bundles.entry(dtype, shape, offset, size, bundles.masked_crc(bytes(8)) if crc is None else crc, shard, more)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([(b"w", described(shape=(3,)))], r"variable 'w': expected 12 bytes for float32 \[3\], found 8"),
        ([(b"w", described(offset=1))], "expected it in .* at 1 to 9"),
        ([(b"w", described(shard=1))], "found a variable in shard 1"),
        ([(b"w", described(shape=(2**62, 4)))], "expected a shape"),
        ([(b"w", described(shape=(2**40, 2**40)))], "expected a shape that fits into memory"),
        ([(b"w", described(crc=1))], "variable 'w' does not match its checksum"),
        ([(b"w", described(more=bundles.field(7, b"")))], "found slices"),
        ([(b"w", described() + b"\x0b")], "found other bytes"),
        ([(b"w", described() + b"\x12\xff\x01")], "found a part of one"),
        ([(b"w", described() + b"\xff" * 11)], "expected a number"),
        ([(b"\xff", described())], "expected names in UTF-8"),
        ([(b"w", described()), (b"v", described())], "expected sorted names"),
        ([(b"w", described()), (b"w", described())], "expected sorted names"),
        ([(b"v", described()), (b"w", described())], "expected separate variables"),
        ([(b"_CHECKPOINTABLE_OBJECT_GRAPH", described(7))], "found an object-based one"),
    ],
)
def test_an_index_that_lies_is_refused_in_one_line(tmp_path, entries, message):
    (tmp_path / "model.index").write_bytes(bundles.table([(b"", bundles.header()), *entries]))
    (tmp_path / "model.data-00000-of-00001").write_bytes(bytes(8))
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_what_tensorflow_does_not_write(tmp_path):
    entries = [(b"", bundles.header()), (b"w", described())]
    (tmp_path / "model.data-00000-of-00001").write_bytes(bytes(8))
    for content, message in (
        (bundles.table(entries[1:]), "without its header"),
        (bundles.table([(b"", bundles.header(more=bundles.field(2, 1))), *entries[1:]]), "little-endian"),
        (bundles.table(entries, compression=1), r"compressed \(Snappy\)"),
        (b"", "another file or a part of one"),
        (bundles.table(entries)[:-48] + b"\xff" * 40 + struct.pack("<Q", bundles.MAGIC), "expected a number"),
    ):
        (tmp_path / "model.index").write_bytes(content)
        with pytest.raises(InputError, match=message):
            read(tmp_path)


def test_a_block_whose_insides_do_not_fit_together(tmp_path):
    for inside in (
        b"\x01\x00\x00",  # shares a byte with no key
        b"\x00\x05\x00ab",  # a key, and
        b"\x00\x01\x7fa",  # a value, of more bytes than there are
    ):
        content = inside + struct.pack("<II", 0, 1) + b"\0"
        content += struct.pack("<I", bundles.masked_crc(content))
        index = bundles.block([(b"z", bundles.varint(0) + bundles.varint(len(content) - 5))])
        footer = bundles.varint(0) * 2 + bundles.varint(len(content)) + bundles.varint(len(index) - 5)
        whole = content + index + footer.ljust(40, b"\0") + struct.pack("<Q", bundles.MAGIC)
        (tmp_path / "model.index").write_bytes(whole)
        with pytest.raises(InputError, match="expected entries inside the block at 0"):
            read(tmp_path)


def test_the_file_checkpoint_tells_one_of_several(tmp_path):
    for step in (10, 20):
        bundles.write(tmp_path, {"w": np.full(2, step, np.float32)}, prefix=f"model.ckpt-{step}")
    with pytest.raises(InputError, match=r"expected one TensorFlow checkpoint, .* found model\.ckpt-10\.index, model"):
        read(tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-20"\n')
    assert read(tmp_path)["w"][0] == 20


def test_the_older_format_is_named(tmp_path):
    (tmp_path / "bert_model.ckpt").write_bytes(bundles.table([(b"", b"x")]))
    with pytest.raises(InputError, match=r"bert_model\.ckpt: .* found the older V1, .*tf\.compat\.v1\.train\.Saver"):
        read(tmp_path)


def test_a_real_checkpoint(shared_data):
    directory = shared_data / "tf1_simbert_tiny"
    with tensors.open_weights(directory) as weights:
        assert weights.format == "tf1" and len(weights.tensors) == 78
        words = weights.tensors["bert.embeddings.word_embeddings.weight"].read()
        key = weights.tensors["bert.encoder.layer.3.attention.self.key.weight"].read()
        assert weights.tensors["bert.embeddings_project.weight"].shape == (312, 128)
        for tensor in weights.tensors.values():
            assert np.isfinite(tensor.read().astype(np.float32)).all()  # and has the checksum that TensorFlow gave it
    assert words.dtype == np.float64 and words.shape == (13685, 128)
    # The offsets are the sums of the sizes of the variables before, in the order of their names.
    raw = (directory / "bert_model.ckpt.data-00000-of-00001").read_bytes()
    before = 4 * (128 + 128 + 512 * 128 + 2 * 128)
    assert np.array_equal(words.reshape(-1), np.frombuffer(raw, "<f8", words.size, before))
    assert raw.count(np.ascontiguousarray(key.T).tobytes()) == 1
