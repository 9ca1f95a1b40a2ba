"""Write safetensors files with a checksum of each tensor, one tensor at a time."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.conversion.formats import lazy_tensors
from bert_jax.conversion.formats.lazy_tensors import LazyTensor
from bert_jax.conversion.formats.safetensors_files import CHECKSUMS, DTYPE_OF_CODE, checksum
from bert_jax.errors import InputError

_CODES = {dtype: code for code, dtype in DTYPE_OF_CODE.items()}


def write(path: storage.PathLike, tensors: Mapping[str, np.ndarray | LazyTensor]) -> None:
    """Write tensors with checksums and the metadata that PyTorch readers expect, completely or not at all.

    The same tensors always make the same file. Lazy tensors are read twice, one at a time.

    Raises:
        InputError: a tensor has a dtype that the format does not support.
    """
    for name, tensor in tensors.items():
        if np.dtype(tensor.dtype) not in _CODES:
            raise InputError(
                f"{path}: tensor {name!r}: expected one of {', '.join(DTYPE_OF_CODE)}, found {tensor.dtype}"
            )
    order = list(DTYPE_OF_CODE.values())
    ordered = sorted(tensors, key=lambda name: (-order.index(np.dtype(tensors[name].dtype)), name))
    checksums = {name: checksum(name, _values(tensor)) for name, tensor in tensors.items()}
    header: dict[str, Any] = {"__metadata__": {CHECKSUMS: json.dumps(checksums), "format": "pt"}}
    end = 0
    for name in ordered:
        tensor = tensors[name]
        begin, end = end, end + math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
        code = _CODES[np.dtype(tensor.dtype)]
        header[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # aligns the data
    with storage.open_binary_atomically(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in ordered:
            for piece in lazy_tensors.pieces(_values(tensors[name])):
                file.write(piece)


def _values(tensor: np.ndarray | LazyTensor) -> np.ndarray:
    return tensor.read() if isinstance(tensor, LazyTensor) else tensor
