"""Open the weights of a model directory in any supported format as lazy tensors.

The tensors have PyTorch's names and orientation (a kernel is `[out, in]`), so that one table of names serves every
format.
"""

import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bert_jax import storage
from bert_jax.conversion.formats import lazy_tensors
from bert_jax.conversion.formats.lazy_tensors import LazyTensor, Tensors
from bert_jax.errors import InputError, logger
from bert_jax.lazy import LazyModule

if TYPE_CHECKING:
    from bert_jax.conversion.formats import shards, tf1, tf1_files
else:  # a directory with one file of safetensors or PyTorch needs none of these
    shards = LazyModule("bert_jax.conversion.formats.shards")
    tf1 = LazyModule("bert_jax.conversion.formats.tf1")
    tf1_files = LazyModule("bert_jax.conversion.formats.tf1_files")

__all__ = ["LazyTensor", "Weights", "is_weights", "open_weights"]

_log = logger(__name__)


@dataclasses.dataclass(frozen=True)
class Weights:
    """The open weights of a model directory.

    Attributes:
        where: the file to name in messages.
        format: "safetensors", "torch", "tf1" or "flax".
        tensors: lazy tensors by PyTorch's names.
        ignored: names of variables in the file that are not parameters, such as optimizer state.
    """

    where: storage.Path
    format: str
    tensors: Tensors
    ignored: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Format:
    """A weight format.

    Attributes:
        name: name of the file in a directory; the index of shards is `NAME.index.json`.
        module: the module of `formats/` that reads it.
        has_own_names: whether the files have other names than PyTorch's, so that the reader has a `renamed`.
    """

    name: str
    module: str
    has_own_names: bool = False

    @property
    def reader(self) -> Any:
        """Import and return the module: `open_tensors` opens a file, and `begins` recognises its first bytes."""
        return importlib.import_module(f"bert_jax.conversion.formats.{self.module}")

    def renamed(self, tensors: Tensors) -> Tensors:
        """Return the tensors of all shards by PyTorch's names."""
        return self.reader.renamed(tensors) if self.has_own_names else tensors


# In order of preference; TensorFlow's format, whose files may have any name, comes before flax (`_found`).
WEIGHT_FORMATS = {
    "safetensors": _Format("model.safetensors", "safetensors_files"),
    "torch": _Format("pytorch_model.bin", "torch_files"),
    "flax": _Format("flax_model.msgpack", "flax_msgpack", has_own_names=True),
}
_LONGEST_BEGINNING = 64
_LFS_POINTER = b"version https://git-lfs"


def is_weights(directory: storage.PathLike) -> bool:
    """Return whether a directory has weights in a format that `open_weights` reads, complete or not."""
    directory = storage.Path(directory)
    if not directory.is_dir():
        return False
    return any(_named(directory, form) for form in WEIGHT_FORMATS.values()) or bool(tf1_files.tf1_indices(directory))


@contextlib.contextmanager
def open_weights(directory: storage.PathLike) -> Iterator[Weights]:
    """Yield the weights of a directory (local or `gs://`), whose tensors can be read inside the block.

    Of several formats, the first is read in the order safetensors, PyTorch, TensorFlow, Flax. If the name of a file
    does not match its content, the content decides the format.

    Raises:
        InputError: there are no weights, or they are damaged; reading a damaged tensor raises it too.
    """
    format_name, where = _found(storage.Path(directory))
    others = [path for form in WEIGHT_FORMATS.values() if (path := _named(where.parent, form)) and path != where]
    if others:
        _say_which(where, ", ".join(path.name for path in others))
    with _opened(format_name, where) as weights:
        yield weights


@functools.lru_cache(maxsize=256)  # logs once
def _say_which(where: storage.Path, others: str) -> None:
    _log.warning("%s is read; other weights in the same directory are not: %s", where, others)


@contextlib.contextmanager
def open_weight_file(path: storage.Path) -> Iterator[Weights]:
    """Yield the weights of a file of any name, or of an index of shards, whose tensors can be read inside the block.

    Raises:
        InputError: as for `open_weights`.
    """
    named = next((name for name, form in WEIGHT_FORMATS.items() if path.name == f"{form.name}.index.json"), "")
    if not named and not (named := _by_content(path, "")):
        raise InputError(
            f"{path}: expected a model directory (config.json, model.safetensors, ...) or a file of weights "
            "(of PyTorch, safetensors or Flax), found a file of another kind"
        )
    with _opened(named, path) as weights:
        yield weights


@contextlib.contextmanager
def _opened(format_name: str, where: storage.Path) -> Iterator[Weights]:
    with contextlib.ExitStack() as stack:
        ignored: tuple[str, ...] = ()
        if format_name == "tf1":
            tensors, ignored = stack.enter_context(tf1.open_variables(where))
        elif where.name.endswith(".index.json"):
            opener = functools.partial(_open_file, format_name, stack)
            tensors = shards.open_shards(where, opener, has_stacks=format_name == "flax")
        else:
            format_name = _by_content(where, format_name)
            tensors = stack.enter_context(WEIGHT_FORMATS[format_name].reader.open_tensors(where))
        renamed = tf1.renamed if format_name == "tf1" else WEIGHT_FORMATS[format_name].renamed
        with lazy_tensors.about(where):
            tensors = renamed(tensors)
        yield Weights(where, format_name, tensors, ignored)


def _open_file(format_name: str, stack: contextlib.ExitStack, path: storage.Path) -> Tensors:
    """Open a file of weights; its content decides the format, whatever its name."""
    return stack.enter_context(WEIGHT_FORMATS[_by_content(path, format_name)].reader.open_tensors(path))


def _found(directory: storage.Path) -> tuple[str, storage.Path]:
    """Find the weights by file name; return the format and the file to open."""
    if not directory.is_dir():
        raise InputError(f"{directory}: expected a directory with weights, found none")
    for format_name, form in WEIGHT_FORMATS.items():
        if format_name == "flax" and (index := tf1_files.index_of(directory)):
            return "tf1", index
        if path := _named(directory, form):
            return format_name, path
    if old := tf1_files.old_checkpoint(directory):
        raise InputError(
            f"{old}: expected TensorFlow's checkpoint format V2 (PREFIX.index and PREFIX.data-*), found the older V1, "
            "in one file; load it with TensorFlow and save it again with tf.compat.v1.train.Saver()"
        )
    names = sorted(path.name for path in directory.iterdir())
    expected = ", ".join(form.name for form in WEIGHT_FORMATS.values())
    raise InputError(
        f"{directory}: expected weights ({expected} or a TensorFlow checkpoint), found {', '.join(names) or 'nothing'}"
    )


def _named(directory: storage.Path, form: _Format) -> storage.Path | None:
    """Return the file of a format in a directory, or the index of its shards; None if there is neither."""
    names = (form.name, f"{form.name}.index.json")
    return next((directory / name for name in names if (directory / name).exists()), None)


def _by_content(path: storage.Path, named: str) -> str:
    """Return the format of a file by its first bytes; `named`, the format of its name, if they match no format."""
    if not path.is_file():
        raise InputError(f"{path}: expected a file, found a directory or a device")
    with path.open("rb") as file:
        start = file.read(_LONGEST_BEGINNING)
    if start.startswith(_LFS_POINTER):
        raise InputError(f"{path}: expected weights, found a Git LFS pointer; `git lfs pull` downloads the file")
    candidates = (named, *WEIGHT_FORMATS) if named else tuple(WEIGHT_FORMATS)
    return next((name for name in candidates if WEIGHT_FORMATS[name].reader.begins(start)), named)
