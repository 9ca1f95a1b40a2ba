"""Makes weight files that are damaged or that lie: each from a number, the same one each time.

Damage of bytes alone would mostly meet a checksum. So files are also taken apart, lied in, and put together again with
checksums that are right.
"""

import functools
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable

import bundles
import flax.serialization
import ml_dtypes
import numpy as np

from bert_jax.conversion.formats import flax_msgpack, safetensors_files, safetensors_writing
from bert_jax.conversion.formats.crc32c import masked_crc32c

Files = dict[str, bytes]  # name in a directory -> content
TENSORS = {
    "bert.embeddings.word_embeddings.weight": np.arange(24, dtype=np.float32).reshape(6, 4),
    "bert.encoder.layer.0.output.dense.weight": np.arange(12, dtype=np.float16).reshape(4, 3),
    "bert.encoder.layer.0.output.dense.bias": np.arange(4, dtype=ml_dtypes.bfloat16),
    "bert.pooler.dense.weight": np.arange(300, dtype=np.float64).reshape(3, 100),
    "cls.predictions.bias": np.ones(0, np.float32),
    "position_ids": np.arange(5),
}
# Numbers where an off-by-one, a sign or a product of sizes goes wrong.
_NUMBERS = [0, 1, 2, 3, 7, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40]
_NUMBERS += [2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
_WITNESS = "witness-of-code-that-ran"


def witness_command(directory) -> str:
    """What a hostile pickle tells the shell; it runs nowhere if nothing in a file runs."""
    return f"touch '{directory}/{_WITNESS}'"


def safetensors_file(header: object, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _ours(tmp_path) -> bytes:
    safetensors_writing.write(tmp_path / "made", TENSORS)
    return (tmp_path / "made").read_bytes()


def _split(content: bytes) -> tuple[dict, bytes]:
    start = 8 + struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8:start]), content[start:]


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def _number(value: int) -> bytes:
    encoded = pickle.encode_long(value)
    return b"\x8a" + bytes([len(encoded)]) + encoded


def torch_pickle(described: dict[str, tuple], legacy: bool = False) -> bytes:
    """A state dict of name -> (storage type, key, elements, offset, shape, strides)."""
    content = b"\x80\x02}"
    for name, (kind, key, count, offset, shape, strides) in described.items():
        storage = b"(" + _text("storage") + f"ctorch\n{kind}\n".encode() + _text(key) + _text("cpu") + _number(count)
        storage += (b"N" if legacy else b"") + b"tQ"
        sizes = b"(" + b"".join(map(_number, shape)) + b"t(" + b"".join(map(_number, strides)) + b"t"
        content += _text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n("
        content += storage + _number(offset) + sizes + b"\x89NtRs"
    return content + b"."


def torch_zip(pickled: bytes, storages: list[bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for i, data in enumerate(storages):
            archive.writestr(f"archive/data/{i}", data)
    return file.getvalue()


def torch_legacy(pickled: bytes, storages: list[tuple[int, bytes]]) -> bytes:
    content = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)
    content += pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {}}, 2) + pickled
    content += pickle.dumps([str(i) for i in range(len(storages))], 2)
    return content + b"".join(struct.pack("<q", count) + data for count, data in storages)


_KINDS = {"float32": "FloatStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage"}
_KINDS |= {"float64": "DoubleStorage", "int64": "LongStorage"}


def _described() -> dict[str, tuple]:
    found = {}
    for i, (name, tensor) in enumerate(TENSORS.items()):
        strides = [step // tensor.itemsize for step in tensor.strides]
        found[name] = (_KINDS[tensor.dtype.name], str(i), tensor.size, 0, tensor.shape, strides)
    return found | {"tied": next(iter(found.values()))}


def _storages() -> list[bytes]:
    return [tensor.tobytes() for tensor in TENSORS.values()]


def _flax(chunk: int) -> bytes:
    limit, flax.serialization.MAX_CHUNK_SIZE = flax.serialization.MAX_CHUNK_SIZE, chunk
    try:
        stacked = {"encoder": {"layer": {"FlaxScanLayers": {"dense": {"kernel": np.ones((3, 4, 5), np.float32)}}}}}
        return flax.serialization.msgpack_serialize(
            {"params": {"bert": stacked, "x": {k.rpartition(".")[2]: v for k, v in TENSORS.items()}}, "step": 3}
        )
    finally:
        flax.serialization.MAX_CHUNK_SIZE = limit


def whole(tmp_path) -> dict[str, Files]:
    """An undamaged directory of every kind."""
    ours = _ours(tmp_path)
    header, data = _split(ours)
    del header["__metadata__"]
    bundles.write(tmp_path, bundles.variables(), shards=2)
    bundle = {path.name: path.read_bytes() for path in tmp_path.iterdir() if "ckpt" in path.name}
    flax_msgpack.write(tmp_path / "made", {name: tensor for name, tensor in TENSORS.items() if tensor.size < 100})
    index = {"weight_map": dict.fromkeys(TENSORS, "model-1.safetensors")}
    flat = {"weight_map": {"a/b": "flax-1.msgpack", "c": "flax-1.msgpack"}}
    legacy = [(tensor.size, tensor.tobytes()) for tensor in TENSORS.values()]
    return {
        "safetensors of ours": {"model.safetensors": ours},
        "safetensors of others": {"model.safetensors": safetensors_file(header, data)},
        "safetensors in shards": {
            "model.safetensors.index.json": json.dumps(index).encode(),
            "model-1.safetensors": ours,
        },
        "torch, a zip": {"pytorch_model.bin": torch_zip(torch_pickle(_described()), _storages())},
        "torch, legacy": {"pytorch_model.bin": torch_legacy(torch_pickle(_described(), True), legacy)},
        "tensorflow": {**bundle, "checkpoint": b'model_checkpoint_path: "bert_model.ckpt"\n'},
        "flax": {"flax_model.msgpack": _flax(2**30)},
        "flax in chunks": {"flax_model.msgpack": _flax(100)},
        "flax of ours": {"flax_model.msgpack": (tmp_path / "made").read_bytes()},
        "flax in shards": {
            "flax_model.msgpack.index.json": json.dumps(flat).encode(),
            "flax-1.msgpack": _flax(100),
        },
    }


class Hostile:
    """A directory of files, made from a number.

    Args:
        bases: what `whole` returns.
        command: what a shell would run if a pickle could make it.
    """

    def __init__(self, bases: dict[str, Files], command: str):
        self._bases = bases
        self._command = command

    def make(self, number: int) -> tuple[str, Files]:
        """What was done, and the files."""
        self._random = np.random.default_rng(number)
        lies: list[Callable[[], tuple[str, Files]]] = [
            self._lying_safetensors, self._lying_zip, self._lying_legacy, self._lying_bundle, self._nested,
            self._hostile_pickle, self._lying_index, self._lying_archive,
        ]  # fmt: skip
        if self._random.random() < 0.5:
            return lies[self._below(len(lies))]()
        base = sorted(self._bases)[self._below(len(self._bases))]
        found = dict(self._bases[base])
        names = sorted(found)
        name = names[self._below(len(names))]
        damage = [self._flipped, self._cut, self._overwritten, self._moved, self._lengthened, self._spliced]
        done = damage[self._below(len(damage))]
        found[name] = done(found[name])
        return f"{base}: {name} {done.__name__}", found

    def _below(self, limit: int) -> int:
        return int(self._random.integers(limit))

    def _one(self, *choices):
        return choices[self._below(len(choices))]

    def _any_number(self) -> int:
        return _NUMBERS[self._below(len(_NUMBERS))] + self._one(-1, 0, 0, 1)

    def _any_shape(self) -> list[int]:
        return [self._one(0, 1, 2, 3, 4, 24, self._any_number()) for _ in range(self._one(0, 1, 2, 3, 4, 65))]

    # Bytes.

    def _flipped(self, content: bytes) -> bytes:
        changed = bytearray(content)
        for _ in range(self._one(1, 1, 2, 8, 40)):
            changed[self._below(len(changed))] ^= 1 << self._below(8)
        return bytes(changed)

    def _cut(self, content: bytes) -> bytes:
        return content[: self._below(len(content))] if self._below(2) else content[self._below(len(content)) :]

    def _overwritten(self, content: bytes) -> bytes:
        width = self._one(1, 2, 4, 8)
        at = self._below(max(1, min(len(content) - width, self._one(16, 200, len(content)))))
        number = (self._any_number() % 2 ** (8 * width)).to_bytes(width, self._one("little", "big"))
        return content[:at] + number + content[at + width :]

    def _moved(self, content: bytes) -> bytes:
        a, b = sorted((self._below(len(content)), self._below(len(content))))
        at = self._below(len(content))
        return content[:at] + content[a:b] + content[at + (b - a) * self._below(2) :]

    def _lengthened(self, content: bytes) -> bytes:
        return content + self._one(b"\0", b"}" * 100, self._random.bytes(100), content)

    def _spliced(self, content: bytes) -> bytes:
        other = [file for files in self._bases.values() for file in files.values()]
        more = other[self._below(len(other))]
        return content[: self._below(len(content))] + more[self._below(len(more)) :]

    # Lies with right checksums.

    def _lying_safetensors(self) -> tuple[str, Files]:
        header, data = _split(
            self._bases[self._one("safetensors of ours", "safetensors of others")]["model.safetensors"]
        )
        names = [name for name in header if name != "__metadata__"]
        for _ in range(self._one(1, 1, 3)):
            entry, name = header[names[self._below(len(names))]], names[self._below(len(names))]
            lie = self._below(9)
            if lie == 0:
                entry["shape"] = self._any_shape()
            elif lie == 1:
                entry["data_offsets"] = [self._any_number(), self._any_number()]
            elif lie == 2:
                entry["dtype"] = self._one("F8_E4M3", "C64", "F32", "F64", "BOOL", "", None, [], 3, "F4")
            elif lie == 3:
                header[name] = dict(entry)  # one over the other
            elif lie == 4:
                entry[self._one(*entry)] = self._one(None, [], {}, "x", 1.5, True, [True, 1], [[]], "\ud800")
            elif lie == 5:
                header["__metadata__"] = self._one(
                    [], {"a": 1}, {safetensors_files.CHECKSUMS: self._one("[]", "{", "1")}
                )
            elif lie == 6:
                header[self._one("\ud800", "a\nb", "", "x" * 5000, "__metadata__")] = header.pop(name, {})
                names = [name for name in header if name != "__metadata__"] or ["__metadata__"]
            elif lie == 7:
                text = json.dumps(header)
                twice = text[:-1] + "," + json.dumps({name: header.get(name)})[1:]
                return "safetensors: a name twice", {"model.safetensors": safetensors_file(twice.encode(), data)}
            else:
                entry["data_offsets"] = entry["data_offsets"][::-1] if isinstance(entry["data_offsets"], list) else 1
        return "safetensors: a header that lies", {"model.safetensors": safetensors_file(header, data)}

    def _lying_description(self) -> dict[str, tuple]:
        described = _described()
        name = list(described)[self._below(len(described))]
        changed = list(described[name])
        field = self._below(6)
        changed[field] = [
            self._one(*_KINDS.values(), "ComplexFloatStorage", "load"),
            self._one("0", "3", "99", "../../x", ""),
            self._any_number(),
            self._one(0, 1, self._any_number()),
            self._any_shape(),
            self._any_shape(),
        ][field]
        return described | {name: tuple(changed), self._one(name, "more", "a\nb"): tuple(changed)}

    def _lying_zip(self) -> tuple[str, Files]:
        pickled = torch_pickle(self._lying_description())
        if self._below(3) == 0:
            pickled = self._one(self._flipped, self._cut, self._overwritten, self._moved)(pickled)
        compression = self._one(zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        return "torch: a pickle that lies", {"pytorch_model.bin": torch_zip(pickled, _storages(), compression)}

    def _lying_archive(self) -> tuple[str, Files]:
        """The directory at the end of the archive, which has no checksum."""
        content = self._bases["torch, a zip"]["pytorch_model.bin"]
        start = content.index(b"PK\x01\x02")
        changed = self._one(self._flipped, self._overwritten, self._moved)(content[start:])
        return "torch: an archive that lies", {"pytorch_model.bin": content[:start] + changed}

    def _lying_legacy(self) -> tuple[str, Files]:
        storages = [(tensor.size, tensor.tobytes()) for tensor in TENSORS.values()]
        i = self._below(len(storages))
        storages[i] = (self._any_number() % 2**63, storages[i][1])
        described = self._lying_description() if self._below(2) else _described()
        return "torch: storages that lie", {
            "pytorch_model.bin": torch_legacy(torch_pickle(described, True), storages),
        }

    def _lying_bundle(self) -> tuple[str, Files]:
        raw = bytes(64)
        entries = [(b"", bundles.header(self._one(1, 1, 1, 0, 2, 2**31)))]
        for i in range(self._one(1, 2, 5)):
            size = self._one(8, 8, 64, 0, self._any_number() % 2**63)
            offset = self._one(0, 8 * i, self._any_number() % 2**63)
            shape = self._one([2], [2, 1], [], [size // 4], [abs(axis) for axis in self._any_shape()])
            crc = self._one(bundles.masked_crc(raw[:8]), bundles.masked_crc(b""), 0)
            dtype = self._one(1, 1, 2, 3, 7, 14, 19, 99)
            described = bundles.entry(dtype, shape, offset, size, crc, self._one(0, 0, 0, 1))
            if self._below(3) == 0:
                described = self._one(self._flipped, self._cut, self._overwritten, self._moved)(described)
            entries.append(
                (b"bert/w%d/%s" % (i, self._one(b"kernel", b"kernel", b"gamma", b"\xff", b"x" * 600)), described)
            )
        content = bundles.table(entries, blocks=self._one(1, 2), compression=self._one(0, 0, 0, 0, 1))
        if self._below(4) == 0:  # a block whose insides lie, under a right checksum
            inside = self._one(self._flipped, self._overwritten, self._moved)(bundles.block(entries)[:-5]) + b"\0"
            inside += struct.pack("<I", bundles.masked_crc(inside))
            index = bundles.block([(b"z", bundles.varint(0) + bundles.varint(len(inside) - 5))])
            footer = bundles.varint(0) * 2 + bundles.varint(len(inside)) + bundles.varint(len(index) - 5)
            content = inside + index + footer.ljust(40, b"\0") + struct.pack("<Q", bundles.MAGIC)
        return "tensorflow: an index that lies", {"m.index": content, "m.data-00000-of-00001": raw}

    def _nested(self) -> tuple[str, Files]:
        depth = self._one(30, 100, 1000, 20_000, 100_000)
        kind = self._below(5)
        if kind == 0:
            opener = self._one(b"\x81\xa1a", b"\x81", b"\x91", b"\xc7\xff\x01\x93")
            return f"flax: {depth} deep", {"flax_model.msgpack": opener * depth + b"\x01"}
        if kind == 1:
            header = self._one(b"[", b'{"a":', b'{"a":{"shape":[') * depth
            return f"safetensors: {depth} deep", {"model.safetensors": safetensors_file(b"{" + header, b"")}
        if kind == 2:
            text = b'{"a": {"dtype": "F32", "data_offsets": [0, 4], "shape": %s}}' % (b"[" * depth + b"]" * depth)
            return f"safetensors: a shape {depth} deep", {"model.safetensors": safetensors_file(text, bytes(4))}
        if kind == 3:
            return f"an index {depth} deep", {
                "model.safetensors.index.json": self._one(b"[", b'{"weight_map":') * depth
            }
        nest = self._one(b"N" + b"\x85" * depth, b"(" * depth, b"}" * depth, b"N" + b"\x85q\x00h\x00" * depth)
        return f"torch: {depth} deep", {"pytorch_model.bin": torch_zip(b"\x80\x02}" + nest + b"Ns.", [])}

    def _hostile_pickle(self) -> tuple[str, Files]:
        target = self._one(
            "posix system",
            "os system",
            "builtins eval",
            "builtins exec",
            "torch load",
            "collections OrderedDict.update",
        )
        called = f"c{target.replace(' ', chr(10))}\n".encode() + b"(" + _text(self._command) + b"tR"
        where = self._below(4)
        pickled = [
            b"\x80\x02}" + _text("w") + called + b"s.",
            b"\x80\x02" + called + b".",
            b"\x80\x04"
            + _text(target.split()[0])
            + _text(target.split()[1])
            + b"\x93("
            + _text(self._command)
            + b"tR.",
            torch_pickle(_described())[:-1] + b"}" + _text("x") + called + b"sb.",
        ][where]
        if self._below(3) == 0:
            pickled = self._flipped(pickled)
        content = torch_legacy(pickled, []) if self._below(2) else torch_zip(pickled, _storages())
        return f"torch: {target}", {"pytorch_model.bin": self._one(content, content, pickled)}

    def _lying_index(self) -> tuple[str, Files]:
        files = dict(self._bases[self._one("safetensors in shards", "flax in shards")])
        index = next(name for name in files if name.endswith(".json"))
        outside = self._one(
            "../model.safetensors", "/etc/passwd", "..", ".", "", index, "x" * 5000, "\0", "\ud800", 3, None
        )
        weight_map = json.loads(files[index])["weight_map"] | {self._one("a", *TENSORS): outside}
        lie = self._one({"weight_map": weight_map}, {"weight_map": weight_map}, {"weight_map": []}, [], 3, {})
        return "an index that lies", files | {index: json.dumps(lie).encode()}


def _empty_arrays(count: int) -> bytes:
    leaf = b"\xc7\x0d\x01\x93\x91\x00\xa7float32\xc4\x00"
    return b"\xde" + struct.pack(">H", count) + b"".join(b"\xa4%04x" % i + leaf for i in range(count))


@functools.cache
def bombs() -> dict[str, Files]:
    """Files that would take far more memory or time than their size, if they were believed."""
    tensor = {"dtype": "F32", "shape": [2**20], "data_offsets": [0, 2**22]}
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    data = bytes(2**22)
    whole_storage = ("FloatStorage", "0", 2**20, 0, (2**20,), (1,))
    stretched = ("FloatStorage", "0", 2**20, 0, (2**20,), (0,))
    handle = bundles.varint(0) + bundles.varint(2**20)
    block = bytes(2**20 - 4) + struct.pack("<I", 2**18 - 1) + bytes(1)  # restarts alone, of no entry
    block += struct.pack("<I", masked_crc32c(block))
    index = bundles.block([(b"%08d" % i, handle) for i in range(20_000)])
    footer = bundles.varint(0) * 2 + bundles.varint(len(block)) + bundles.varint(len(index) - 5)
    table = block + index + footer.ljust(40, b"\0") + struct.pack("<Q", bundles.MAGIC)
    dicts = b"".join(b"\xa5%05x\x80" % i for i in range(2**20))
    persistent = b"\x80\x02(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + b"K\x01tq\0"
    dictionary = b"ccollections\nOrderedDict\nq\x01"
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", torch_pickle({"w": whole_storage}))
        archive.writestr("archive/data/0", bytes(2**28))
    return {
        "objects in a header": {"model.safetensors": safetensors_file(b'{"a":[' + b"{}," * 600_000 + b"1]}", b"")},
        "lists in a header": {"model.safetensors": safetensors_file(b'{"a":[' + b"[]," * 600_000 + b"1]}", b"")},
        "tensors over each other": {"model.safetensors": safetensors_file({f"{i}": tensor for i in range(9000)}, data)},
        "empty tensors": {"model.safetensors": safetensors_file({f"{i}": empty for i in range(20_000)}, b"")},
        "empty tensors, as many as may be": {
            "model.safetensors": safetensors_file({f"{i}": empty for i in range(2000)}, b"")
        },
        "a header as long as a file": {"model.safetensors": safetensors_file(b"{" + b" " * 2**25, b"")},
        "dicts in a pickle": {"pytorch_model.bin": torch_zip(b"\x80\x02}" + b"}" * 2_000_000 + b".", [])},
        "ordered dicts in a pickle": {
            "pytorch_model.bin": torch_zip(b"\x80\x02ccollections\nOrderedDict\nq\0" + b"h\0)R" * 400_000 + b".", [])
        },
        "containers beside storages": {
            "pytorch_model.bin": torch_zip(persistent + dictionary + (b"h\0Q" + b"h\x01)R" * 7) * 2000 + b".", [])
        },
        "tuples beside storages": {
            "pytorch_model.bin": torch_zip(persistent + (b"h\0Q" + b"N\x85" * 39) * 2000 + b".", [])
        },
        "storages alone": {"pytorch_model.bin": torch_zip(persistent + b"h\0Q" * 170_000 + b".", [])},
        "a storage over and over": {
            "pytorch_model.bin": torch_zip(torch_pickle({f"{i}": whole_storage for i in range(3000)}), [data])
        },
        "a storage stretched": {
            "pytorch_model.bin": torch_zip(torch_pickle({f"{i}": stretched for i in range(3000)}), [data])
        },
        "zeros, compressed": {"pytorch_model.bin": zeros.getvalue()},
        "members of an archive": {"pytorch_model.bin": torch_zip(torch_pickle({}), [b""] * 60_000)},
        "members, as many as may be": {"pytorch_model.bin": torch_zip(torch_pickle({}), [b""] * 8000)},
        "a line without end": {"pytorch_model.bin": b"\x80\x02c" + b"a" * 2**25},
        "dicts in msgpack": {"flax_model.msgpack": b"\xdd\xff\xff\xff\xff" + b"\x80" * 2**20},
        "empty dicts in msgpack": {"flax_model.msgpack": b"\xdf" + struct.pack(">I", 2**20) + dicts},
        "empty dicts, as many as may be": {"flax_model.msgpack": b"\xdf" + struct.pack(">I", 7999) + dicts[: 7 * 7999]},
        "empty arrays in msgpack": {"flax_model.msgpack": _empty_arrays(60_000)},
        "empty arrays, as many as may be": {"flax_model.msgpack": _empty_arrays(2000)},
        "a block over and over": {"m.index": table, "m.data-00000-of-00001": b""},
        "an index as long as a file": {"model.safetensors.index.json": b"[" + b"{}," * 8_000_000},
        "objects in an index": {"model.safetensors.index.json": b'{"weight_map":[' + b"{}," * 600_000 + b"1]}"},
        "numbers in a header": {"model.safetensors": safetensors_file(b'{"a":[' + b"999," * 500_000 + b"1]}", b"")},
        "words in a header": {"model.safetensors": safetensors_file(b'{"a":[' + b'"b",' * 500_000 + b"1]}", b"")},
        "pairs in a header": {
            "model.safetensors": safetensors_file(b"{" + b",".join(b'"%05x":1' % i for i in range(19_000)) + b"}", b"")
        },
        "a wide letter in a header": {
            "model.safetensors": safetensors_file('{"\N{PILE OF POO}'.encode() + b"a" * (2**19 - 20) + b'":1}', b"")
        },
    }  # fmt: skip
