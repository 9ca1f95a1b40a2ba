"""Read TensorFlow checkpoints, such as those of google-research/bert, without TensorFlow.

Such a checkpoint ("tensor bundle", `tensorflow/core/util/tensor_bundle`) consists of `PREFIX.index`, a table from
variable names to offsets, and `PREFIX.data-0000x-of-0000n`, the bytes of the variables. The entries of the table are
protocol buffers; this module parses the few fields that they have.
"""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from bert_jax import storage
from bert_jax.conversion.formats import lazy_tensors, sstables
from bert_jax.conversion.formats.crc32c import masked_crc32c
from bert_jax.conversion.formats.lazy_tensors import LazyTensor
from bert_jax.errors import InputError

# The values of `enum DataType` (tensorflow/core/framework/types.proto) that parameters can have.
_DTYPES = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float64),
    14: np.dtype(ml_dtypes.bfloat16),
    19: np.dtype(np.float16),
}
# Variables of a training run that are no parameters: counters, and the slots of an optimizer, named VARIABLE/SLOT.
_NO_PARAMETER = re.compile(
    r"(^|/)(global_step|beta[12]_power|loss_scale\w*|num_good_steps|good_steps|temperature|save_counter)(:\d+)?$"
    r"|/(adam|lamb|adamw)_[mvr](_\d+)?$|/(Adam|AdamW|AdamWeightDecayOptimizer|LAMB|LAMBOptimizer|LAMBWeightDecay\w*|"
    r"Momentum|RMSProp|Adagrad|Adafactor\w*|ExponentialMovingAverage)(_\d+)?$",
    re.IGNORECASE,
)
_KEYS_OF_SLICES = b"\0"  # first byte of the keys of slices of a variable
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_MOST_SHARDS = 256
# Rules from TensorFlow's names to PyTorch's, applied in order; then `/` becomes `.`.
_RENAMED = (
    (r"^bert/encoder/embedding_hidden_mapping_in/", "bert/embeddings_project/"),
    (r"^cls/squad/", "qa_outputs/"),
    (r"^output_(weights|bias)$", r"classifier/output_\1"),
    (r"^discriminator_predictions/dense_1/", "discriminator_predictions/dense_prediction/"),
    (r"^generator_predictions/output_bias$", "generator_lm_head/output_bias"),
    (r"/layer_(\d+)/", r"/layer/\1/"),
    (r"/(kernel|gamma|output_weights)$", "/weight"),
    (r"/(beta|output_bias)$", "/bias"),
    (r"_embeddings$", "_embeddings/weight"),
)


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A variable's entry in the table (`BundleEntryProto`)."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int  # masked CRC-32C
    sliced: bool


@contextlib.contextmanager
def open_variables(index: storage.PathLike) -> Iterator[tuple[dict[str, LazyTensor], tuple[str, ...]]]:
    """Yield the parameters of a checkpoint by TensorFlow's names, and the names of its other variables.

    Raises:
        InputError: something is missing, damaged or not supported. Reading a variable that does not match its checksum
            raises it too.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(storage.open_offsets(index))
        with lazy_tensors.about(file.path):
            shards, entries = _table(file)
            ignored = {name for name, entry in entries.items() if _is_ignored(name, entry, entries)}
            kept = {name: entry for name, entry in entries.items() if name not in ignored}
            opened = _open_shards(file.path, shards, {entry.shard for entry in kept.values()}, stack)
            variables = {name: _variable(opened[entry.shard], name, entry) for name, entry in kept.items()}
            if sum(entry.size for entry in kept.values()) > sum(shard.size for shard in opened.values()):
                raise InputError("expected separate variables, found overlapping ones")
        yield variables, tuple(sorted(ignored))


def renamed(variables: dict[str, LazyTensor]) -> dict[str, LazyTensor]:
    """Give variables the names and the orientation that they have in PyTorch.

    A checkpoint of ELECTRA's pretraining holds two models: the discriminator's encoder becomes `electra.`, the
    generator's `generator.`. A generator without a discriminator becomes `electra.`.

    Raises:
        InputError: two variables have the same name in PyTorch.
    """
    alone = not any(name.startswith("electra/encoder/") for name in variables)
    tensors: dict[str, LazyTensor] = {}
    for name, variable in variables.items():
        new = re.sub(r"^generator/", "electra/", name) if alone else name
        for pattern, replacement in _RENAMED:
            new = re.sub(pattern, replacement, new)
        new = new.replace("/", ".")
        if new in tensors:
            raise InputError(
                f"variable {name!r}: expected its PyTorch name {new!r} to be unique, found another variable of "
                "that name"
            )
        tensors[new] = variable.transposed() if name.endswith("/kernel") else variable
    return tensors


def _is_ignored(name: str, entry: _Entry, entries: dict[str, _Entry]) -> bool:
    """Return whether a variable is no parameter, but a counter or optimizer state."""
    under_another = name.rpartition("/")[0] in entries
    return under_another or entry.dtype not in _DTYPES or _NO_PARAMETER.search(name) is not None


def _table(file: storage.OpenFile) -> tuple[int, dict[str, _Entry]]:
    """Read the table; return the number of shards, and the entries by name."""
    shards, entries = None, {}
    for key, value in sstables.entries(file):
        if key == b"":
            shards = _shards(value)
        elif not key.startswith(_KEYS_OF_SLICES):
            try:
                name = lazy_tensors.checked_name(key.decode())
            except UnicodeDecodeError:
                raise InputError(f"expected names in UTF-8, found {key[:80]!r}") from None
            entries[name] = _entry(name, value)
        if len(entries) > lazy_tensors.MOST_TENSORS:
            raise InputError(f"expected at most {lazy_tensors.MOST_TENSORS} variables, found more")
    if shards is None:
        raise InputError("expected the index of a TensorFlow checkpoint, found one without its header")
    if _OBJECT_GRAPH in entries:
        raise InputError(
            "expected a name-based checkpoint, found an object-based one (tf.train.Checkpoint or Keras); "
            "save the model's variables with tf.compat.v1.train.Saver()"
        )
    return shards, entries


def _shards(header: bytes) -> int:
    """Return the number of shards in the table's header (`BundleHeaderProto`)."""
    fields = dict(_fields(header, "the header"))
    if fields.get(2, 0) != 0:
        raise InputError("expected a little-endian checkpoint")
    shards = fields.get(1, 0)
    if not isinstance(shards, int) or not 1 <= shards < 100_000:
        raise InputError(f"expected a number of shards in the header, found {shards!r}")
    return shards


def _entry(name: str, value: bytes) -> _Entry:
    numbers, sizes, sliced = {1: 0, 3: 0, 4: 0, 5: 0, 6: 0}, [], False
    for field, found in _fields(value, f"variable {name!r}"):
        if field == 2 and isinstance(found, bytes):  # TensorShapeProto: its field 2 holds the dimensions
            for part, dimension in _fields(found, f"variable {name!r}"):
                if part == 2 and isinstance(dimension, bytes):
                    sizes.append(dict(_fields(dimension, f"variable {name!r}")).get(1, 0))
        elif field == 7:
            sliced = True
        elif field in numbers and isinstance(found, int):
            numbers[field] = found
    shape = lazy_tensors.checked_shape(sizes, f"variable {name!r}")
    return _Entry(numbers[1], shape, numbers[3], numbers[4], numbers[5], numbers[6], sliced)


def _fields(message: bytes, what: str) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a serialized protocol buffer: number and value."""
    position = 0
    while position < len(message):
        tag, position = sstables.varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = sstables.varint(message, position)
            yield tag >> 3, value
            continue
        if kind not in (1, 2, 5):
            raise InputError(f"{what}: expected an entry of a TensorFlow checkpoint, found other bytes")
        length = {1: 8, 5: 4}.get(kind)
        if length is None:
            length, position = sstables.varint(message, position)
        if position + length > len(message):
            raise InputError(f"{what}: expected an entry of a TensorFlow checkpoint, found a part of one")
        content = message[position : position + length]
        position += length
        yield tag >> 3, content if kind == 2 else int.from_bytes(content, "little")


def _open_shards(
    index: storage.Path, count: int, wanted: set[int], stack: contextlib.ExitStack
) -> dict[int, storage.OpenFile]:
    if len(wanted) > _MOST_SHARDS:
        raise InputError(f"expected at most {_MOST_SHARDS} shards, found {len(wanted)}")
    prefix = index.name.removesuffix(".index")
    opened = {}
    for shard in sorted(wanted):
        if shard >= count:
            raise InputError(f"expected {count} shards, found a variable in shard {shard}")
        path = index.parent / f"{prefix}.data-{shard:05}-of-{count:05}"
        opened[shard] = stack.enter_context(storage.open_offsets(path))
    return opened


def _variable(shard: storage.OpenFile, name: str, entry: _Entry) -> LazyTensor:
    dtype = _DTYPES[entry.dtype]
    if entry.sliced:
        raise InputError(f"variable {name!r}: expected it whole, found slices; save it without a partitioner")
    if entry.size != math.prod(entry.shape) * dtype.itemsize:
        raise InputError(
            f"variable {name!r}: expected {math.prod(entry.shape) * dtype.itemsize} bytes for {dtype} "
            f"{list(entry.shape)}, found {entry.size}"
        )
    if entry.offset + entry.size > shard.size:
        raise InputError(
            f"variable {name!r}: expected it in {shard.path.name} at {entry.offset} to {entry.offset + entry.size}, "
            f"found the end of the file at {shard.size}"
        )

    def read() -> np.ndarray:
        values = shard.array(entry.offset, entry.shape, dtype)
        if masked_crc32c(values.reshape(-1).view(np.uint8)) != entry.crc:
            raise InputError(f"{shard.path}: variable {name!r} does not match its checksum; the file is damaged")
        return values

    return LazyTensor(entry.shape, dtype, read)
