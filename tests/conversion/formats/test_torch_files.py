"""PyTorch files without PyTorch: state dicts are read, everything else is refused and nothing runs."""

import io
import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from bert_jax.conversion.formats import torch_files
from bert_jax.errors import InputError

VALUES = np.arange(12, dtype=np.float32)


# A small assembler of pickles, so that files can be made that PyTorch itself would not write.
def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    encoded = pickle.encode_long(value)
    return b"\x8a" + bytes([len(encoded)]) + encoded


def row(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def glob(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + row(*arguments) + b"R"


def tensor(shape=(3, 4), strides=(4, 1), offset=0, numel=12, storage="FloatStorage", key="0") -> bytes:
    reference = row(text("storage"), glob("torch", storage), text(key), text("cpu"), number(numel)) + b"Q"
    sizes, steps = row(*map(number, shape)), row(*map(number, strides))
    return call(
        glob("torch._utils", "_rebuild_tensor_v2"), reference, number(offset), sizes, steps, b"\x89", b"N"
    )  # fmt: skip


def state(value: bytes, name: str = "w") -> bytes:
    return b"\x80\x02}" + text(name) + value + b"s."


def archive(pickled: bytes, data: bytes = VALUES.tobytes(), compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as members:
        members.writestr("archive/data.pkl", pickled)
        members.writestr("archive/byteorder", "little")
        members.writestr("archive/data/0", data)
    return file.getvalue()


def read(tmp_path, content: bytes) -> dict[str, np.ndarray]:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(content)
    return read_file(path)


def read_file(path) -> dict[str, np.ndarray]:
    with torch_files.open_tensors(path) as tensors:
        return {name: tensor.read() for name, tensor in tensors.items()}


def test_a_state_dict(tmp_path):
    assert np.array_equal(read(tmp_path, archive(state(tensor())))["w"], VALUES.reshape(3, 4))


def test_strides_and_offsets(tmp_path):
    transposed = read(tmp_path, archive(state(tensor((4, 2), (1, 4), offset=4))))["w"]
    assert np.array_equal(transposed, VALUES[4:].reshape(2, 4).T)
    assert read(tmp_path, archive(state(tensor((), ()))))["w"].shape == ()
    assert read(tmp_path, archive(state(tensor((0, 4), (4, 1)))))["w"].shape == (0, 4)


def test_parameters_and_ordered_dicts(tmp_path):
    parameter = call(glob("torch._utils", "_rebuild_parameter"), tensor(), b"\x88", b"N")
    ordered = b"\x80\x02" + call(glob("collections", "OrderedDict")) + text("w") + parameter + b"s"
    with_metadata = ordered + b"}" + text("_metadata") + b"}sb."
    for pickled in (ordered + b".", with_metadata):
        assert np.array_equal(read(tmp_path, archive(pickled))["w"], VALUES.reshape(3, 4))


class Payload:
    """What an attacker would put into a checkpoint."""

    def __init__(self, command: str):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("layout", ["zip", "legacy"])
def test_code_never_runs(tmp_path, protocol, layout):
    witness = tmp_path / "witness"
    payload = pickle.dumps({"w": Payload(f"touch {witness}")}, protocol=protocol)
    with pytest.raises(InputError, match=r"refused: the pickle .* nothing was run") as caught:
        read(tmp_path, archive(payload) if layout == "zip" else payload)
    assert not witness.exists() and "\n" not in str(caught.value)
    if protocol == 2:
        pickle.loads(payload)  # the payload does what it says where it is let
        assert witness.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("torch", "load"),
        ("torch.FloatStorage", "__class__"),
        ("torch._utils", "_rebuild_tensor_v2.__globals__"),
        ("collections", "OrderedDict.__init__"),
        ("numpy.core.multiarray", "_reconstruct"),
    ],
)
def test_other_names_are_refused(tmp_path, module, name):
    with pytest.raises(InputError, match="refused: the pickle names"):
        read(tmp_path, archive(state(call(glob(module, name), text("1")))))


def test_placeholders_ignore_all_that_a_pickle_does_with_them(tmp_path):
    system, arguments = glob("os", "system"), row(text("touch witness"))
    namespace = glob("argparse", "Namespace") + b")\x81" + b"}" + text("__class__") + system + b"sb"
    strange = [
        namespace,
        namespace + text("key") + system + b"s",
        namespace + b"(" + system + b"e",
        namespace + system + b"a",
        system + arguments + b"R" + arguments + b"R",
        system + arguments + b"\x81",
        glob("builtins", "getattr") + row(glob("os", "path"), text("join")) + b"R" + arguments + b"R",
        b"\x8f(" + namespace + b"\x90",
    ]
    for number, value in enumerate(strange):
        content = b"\x80\x04}" + text("args") + value + b"s" + text("state_dict") + state(tensor())[2:-1] + b"s."
        assert np.array_equal(read(tmp_path, archive(content))["w"], VALUES.reshape(3, 4)), number
    many = row(*(glob("settings", f"Kind{number}") for number in range(501)))
    with pytest.raises(InputError, match="names more than 500 classes"):
        read(tmp_path, archive(b"\x80\x02" + many + b"."))


@pytest.mark.parametrize(
    "pickled",
    [
        state(tensor((3, 5), (5, 1))),
        state(tensor((3, 4), (4, 2))),
        state(tensor(offset=1)),
        state(tensor((2**40,), (0,))),
        state(tensor((-1,), (1,))),
        state(tensor((3,), (-1,), offset=5)),
        state(tensor((3, 4), (4,))),
        state(tensor(numel=13, shape=(13,), strides=(1,))),
        state(tensor(storage="DoubleStorage")),
        state(tensor(key="../../secret")),
        state(text("a string")),
        b"\x80\x02" + number(3) + b".",
        b"\x80\x02}" + number(3) + tensor() + b"s.",
        state(call(tensor(), text("called"))),
        state(call(glob("torch", "FloatStorage"))),
        state(glob("torch", "FloatStorage") + b"}" + text("name") + text("DoubleStorage") + b"sb"),
        state(glob("torch._utils", "_rebuild_tensor_v2") + b"N}" + text("function") + b"N" + b"s\x86b"),
        b"\x80\x02}N" + b"\x85" * 150_000 + b"Ns.",
        b"\x80\x02}N" + b"\x85q\x00h\x00" * 60_000 + b"Ns.",
        b"\x80\x04}N" + b"(N\x85\x94t" * 30_000 + b"Ns.",
        b"\x80\x02}" + b"}" * 300_000 + b".",
        b"\x80\x02}r\xff\xff\xff\x7f.",
        state(tensor())[:-20],
        b"",
        b"\x80\x02.",
    ],
)
def test_hostile_pickles_are_refused_in_one_line(tmp_path, pickled):
    with pytest.raises(InputError) as caught:
        read(tmp_path, archive(pickled))
    assert "pytorch_model.bin" in str(caught.value) and "\n" not in str(caught.value)
    assert np.array_equal(read(tmp_path, archive(state(tensor())))["w"], VALUES.reshape(3, 4))  # and left no trace


def test_tuples_in_tuples_are_refused_before_python_dies_of_them(tmp_path):
    storages = row(text("storage"), glob("torch", "FloatStorage"), text("0"), text("cpu"), number(1)) + b"q\x00Q"
    storages += b"h\x00Q" * 1900  # which allow so many opcodes
    for nest in (b"N" + b"\x85" * 200_000, b"N" + b"\x85q\x01h\x01" * 60_000, b"(" * 50_000 + b"t" * 50_000):
        with pytest.raises(InputError, match="nests more than 20 tuples"):
            read(tmp_path, archive(b"\x80\x02" + storages + b"}" + nest + b"Ns."))


def test_damaged_archives(tmp_path):
    whole = archive(state(tensor()))
    flipped = bytearray(whole)
    flipped[whole.index(VALUES.tobytes()) + 5] ^= 1
    for content in (bytes(flipped), whole[:-10], whole[:100], b"", b"PK\x03\x04", b"text", b"\x80\x02."):
        with pytest.raises(InputError):
            read(tmp_path, content)
    with pytest.raises(InputError, match="uncompressed"):
        read(tmp_path, archive(state(tensor()), compression=zipfile.ZIP_DEFLATED))
    with pytest.raises(InputError, match="no such file"):
        read_file(tmp_path / "absent.bin")


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_what_torch_saves(tmp_path, zipped):
    torch = pytest.importorskip("torch", reason="PyTorch writes the files; it is installed on Python 3.11 only")
    base = torch.randn(6, 4)
    saved = {
        "plain": torch.randn(3, 5),
        "transposed": torch.randn(3, 5).T,
        "slice": base[2:5, 1:3],
        "shared": base,
        "half": torch.randn(4).half(),
        "bfloat16": torch.randn(4).bfloat16(),
        "double": torch.randn(4).double(),
        "long": torch.arange(4),
        "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(3.0),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
        "expanded": torch.arange(8).expand((1, -1)),
    }
    path = tmp_path / "pytorch_model.bin"
    torch.save(saved, path, _use_new_zipfile_serialization=zipped)
    found = read_file(path)
    assert found.keys() == saved.keys()
    for name, value in saved.items():
        expected = value.detach().float().numpy()
        assert np.array_equal(found[name].astype(np.float32), expected) and found[name].shape == tuple(value.shape)
    whole = path.read_bytes()
    for size in (10, len(whole) // 3, len(whole) // 2, len(whole) - 4):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError):
            read_file(path)
    torch.save(torch.nn.Linear(2, 2), path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match=r"an object of torch\.nn.*linear\.Linear.*save model\.state_dict\(\)"):
        read_file(path)


def test_one_tensor_at_a_time_is_in_memory(tmp_path):
    row_bytes = 2**20
    data = np.arange(16 * row_bytes // 4, dtype=np.float32)
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(archive(state(tensor((16, row_bytes // 4), (row_bytes // 4, 1), numel=data.size)), data.tobytes()))
    rows = [state(tensor((row_bytes // 4,), (1,), i * row_bytes // 4, data.size), f"w{i}")[3:-2] for i in range(16)]
    many = tmp_path / "many.bin"
    many.write_bytes(archive(b"\x80\x02}" + b"s".join(rows) + b"s.", data.tobytes()))
    tracemalloc.start()
    try:
        with torch_files.open_tensors(many) as tensors:
            assert tracemalloc.get_traced_memory()[1] < 2**19
            for i in range(16):
                assert tensors[f"w{i}"].read()[0] == i * row_bytes // 4
            assert tracemalloc.get_traced_memory()[1] < 2**21
        with torch_files.open_tensors(path) as tensors:
            assert np.array_equal(tensors["w"].read().reshape(-1), data)
    finally:
        tracemalloc.stop()


def test_tensors_that_claim_the_same_bytes_over_and_over_are_refused(tmp_path):
    many = b"s".join(state(tensor(), f"w{i}")[3:-2] for i in range(1900))
    data = np.zeros(500_000, np.float32)
    whole = b"s".join(state(tensor((data.size,), (1,), 0, data.size), f"w{i}")[3:-2] for i in range(100))
    assert len(read(tmp_path, archive(b"\x80\x02}" + many + b"s."))) == 1900
    with pytest.raises(InputError, match="claim"):
        read(tmp_path, archive(b"\x80\x02}" + whole + b"s.", data.tobytes()))


@pytest.mark.parametrize("name", ["state_dict", "model", "module", "model_state_dict"])
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_the_state_dict_inside_of_a_trainers(tmp_path, name, legacy):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    layer = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(layer.parameters(), foreach=False)
    layer(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    trainers = {"epoch": 3, "best": 0.5, "args": {"lr": 1e-4, "names": ["a", None, True]}}
    trainers |= {"optimizer": optimizer.state_dict(), name: layer.state_dict()}
    torch.save(trainers, tmp_path / "model.bin", _use_new_zipfile_serialization=not legacy)
    with torch_files.open_tensors(tmp_path / "model.bin") as tensors:
        assert tensors.keys() == {"weight", "bias"}
        np.testing.assert_array_equal(tensors["weight"].read(), layer.weight.detach().numpy())


def test_a_trainers_file_without_a_model(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    torch.save({"epoch": 3, "optimizer": {"w": torch.ones(2)}}, tmp_path / "model.bin")
    with (
        pytest.raises(InputError, match="expected a tensor under 'epoch', found int"),
        torch_files.open_tensors(tmp_path / "model.bin"),
    ):
        pass
