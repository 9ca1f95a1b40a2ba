"""Writes TensorFlow checkpoints for the tests, from the format's description alone: nothing here is the library's."""

import struct
from pathlib import Path

import ml_dtypes
import numpy as np

DTYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bfloat16": 14, "float16": 19}
MAGIC = 0xDB4775248B80FB57
_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number: int) -> bytes:
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def field(number: int, value: int | bytes, fixed: bool = False) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3 | 5) + struct.pack("<I", value) if fixed else varint(number << 3) + varint(value)


def entry(dtype: int, shape, offset: int, size: int, crc: int, shard: int = 0, more: bytes = b"") -> bytes:
    dimensions = b"".join(field(2, field(1, axis)) for axis in shape)
    parts = field(1, dtype) + field(2, dimensions) + (field(3, shard) if shard else b"")
    return parts + (field(4, offset) if offset else b"") + field(5, size) + field(6, crc, fixed=True) + more


def header(shards: int = 1, more: bytes = b"") -> bytes:
    return field(1, shards) + more + field(3, field(1, 1))


def block(entries, every: int = 4, compression: int = 0) -> bytes:
    """A block and its trailer; each `every`-th key is stored whole."""
    content, restarts, last = b"", [], b""
    for i, (key, value) in enumerate(entries):
        shared = 0
        if i % every == 0:
            restarts.append(len(content))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    content += b"".join(struct.pack("<I", restart) for restart in restarts or [0]) + struct.pack(
        "<I", len(restarts or [0])
    )
    content += bytes([compression])
    return content + struct.pack("<I", masked_crc(content))


def table(entries, blocks: int = 2, compression: int = 0) -> bytes:
    """A whole table whose entries, sorted already, are in some blocks."""
    content, handles = b"", []
    per = -(-len(entries) // blocks)
    for start in range(0, len(entries), per):
        part = entries[start : start + per]
        written = block(part, compression=compression)
        handles.append((part[-1][0], varint(len(content)) + varint(len(written) - 5)))
        content += written
    meta, index = block([]), block(handles, every=1)
    footer = varint(len(content)) + varint(len(meta) - 5)
    footer += varint(len(content) + len(meta)) + varint(len(index) - 5)
    return content + meta + index + footer.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def write(directory: Path, variables: dict[str, np.ndarray], prefix: str = "bert_model.ckpt", shards: int = 1, **how):
    """A checkpoint of variables, which take turns among the shards."""
    data, entries = [b""] * shards, [(b"", header(shards))]
    for i, name in enumerate(sorted(variables)):
        raw, shard = variables[name].tobytes(), i % shards
        dtype = DTYPES[variables[name].dtype.name]
        described = entry(dtype, variables[name].shape, len(data[shard]), len(raw), masked_crc(raw), shard)
        entries.append((name.encode(), described))
        data[shard] += raw
    (directory / f"{prefix}.index").write_bytes(table(entries, **how))
    for shard, content in enumerate(data):
        (directory / f"{prefix}.data-{shard:05}-of-{shards:05}").write_bytes(content)


def variables(seed: int = 0) -> dict[str, np.ndarray]:
    """A small BERT's variables in TensorFlow, with what a training run leaves beside them."""
    generator = np.random.default_rng(seed)

    def values(*shape, dtype=np.float32):
        return generator.normal(size=shape).astype(dtype)

    norm = {"LayerNorm/gamma": values(4), "LayerNorm/beta": values(4)}
    layer = {
        **{f"attention/self/{part}/{kind}": value for part in ("query", "key", "value") for kind, value in
           (("kernel", values(4, 4)), ("bias", values(4)))},
        "attention/output/dense/kernel": values(4, 4), "attention/output/dense/bias": values(4),
        **{f"attention/output/{name}": value for name, value in norm.items()},
        "intermediate/dense/kernel": values(4, 6), "intermediate/dense/bias": values(6),
        "output/dense/kernel": values(6, 4), "output/dense/bias": values(4),
        **{f"output/{name}": value for name, value in norm.items()},
    }  # fmt: skip
    return {
        "bert/embeddings/word_embeddings": values(9, 4, dtype=np.float64),
        "bert/embeddings/position_embeddings": values(5, 4, dtype=np.float16),
        "bert/embeddings/token_type_embeddings": values(2, 4, dtype=ml_dtypes.bfloat16),
        **{f"bert/embeddings/{name}": value for name, value in norm.items()},
        **{f"bert/encoder/layer_{i}/{name}": value + i for i in range(2) for name, value in layer.items()},
        "bert/pooler/dense/kernel": values(4, 4),
        "bert/pooler/dense/bias": values(4),
        "cls/predictions/transform/dense/kernel": values(4, 4),
        "cls/predictions/output_bias": values(9),
        "cls/seq_relationship/output_weights": values(2, 4),
        "cls/seq_relationship/output_bias": values(2),
        "bert/pooler/dense/kernel/adam_m": values(4, 4),
        "bert/pooler/dense/kernel/adam_v": values(4, 4),
        "global_step": np.array(7, np.int64),
        "beta1_power": values(),
    }
