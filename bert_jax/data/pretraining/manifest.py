"""`manifest.json` lists the content of a prepared directory; written last, it marks the directory as complete."""

import dataclasses
import json
import typing
from typing import Any, Self, TypeVar

import numpy as np

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.storage import PathLike

MANIFEST_FILE = "manifest.json"
TOKENIZER_DIR = "tokenizer"
SPLITS = ("train", "validation")
_FORMAT = "bert_jax pretraining examples"
_VERSION = 3
_Found = TypeVar("_Found")


def _checked(instance: _Found) -> _Found:
    """Return a dataclass after checking its fields' types. Raises ValueError for the first field of a wrong type."""
    for name, kind in typing.get_type_hints(type(instance)).items():
        value = getattr(instance, name)
        counts = value.values() if kind == dict[str, int] and isinstance(value, dict) else [value]
        expected = typing.get_origin(kind) or kind
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise ValueError(f"{name}: expected {expected.__name__}, found {value!r}")
        if kind in (int, dict[str, int]) and not all(isinstance(count, int) and count >= 0 for count in counts):
            raise ValueError(f"{name}: expected numbers of at least 0, found {value!r}")
    return instance


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of rows (`shards.py`).

    Attributes:
        name: file name within the directory.
        rows: records in it.
        num_bytes: its size.
        sha256: its hash, in hex.
        width: integers in a row, checksum included.
        header_bytes: bytes before the first row.
    """

    name: str
    rows: int
    num_bytes: int
    sha256: str
    width: int
    header_bytes: int


@dataclasses.dataclass(frozen=True)
class InstanceSet:
    """The instances of one split and length.

    Attributes:
        split: one of SPLITS.
        max_seq_length: the longest possible instance, in tokens with [CLS] and [SEP].
        examples: the number of instances.
        most_per_row: the greatest number of instances in a row; 1 where rows are not packed.
        tokens: the total length of the instances in tokens, special tokens included.
        label_1: the number of instances with label 1 (`Instance.label`).
        shards: the files, in order.
    """

    split: str
    max_seq_length: int
    examples: int
    most_per_row: int
    tokens: int
    label_1: int
    shards: tuple[Shard, ...]

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        """Rebuild a set from the dict of `dataclasses.asdict`. Raises ValueError where a field is invalid."""
        shards = tuple(_checked(Shard(**shard)) for shard in content["shards"])
        if not sum(shard.rows for shard in shards):
            raise ValueError("a set without rows")
        return _checked(cls(**content | {"shards": shards}))

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A prepared directory.

    Attributes:
        settings: the arguments of `prepare`, for people who read the file.
        objective: the pretraining objective, one of `instances.OBJECTIVES`.
        packed: whether several short examples share a row.
        tokenizer_fingerprint: the fingerprint of the tokenizer that made the ids; a copy of it is in `tokenizer/`.
        vocab_size: the vocabulary size of that tokenizer.
        token_dtype: the NumPy name of the records' dtype.
        documents: the number of documents with text, by split.
        sentences: the number of sentences, by split.
        sets: the sets of instances, one for each split and sequence length.
        removed: the number of documents that were left out, which `removed.jsonl` lists.
        skipped: the number of rows and files that could not be read and were left out, which `skipped.txt` lists.
        filtered: name of a filter -> the number of documents that it left out.
    """

    settings: dict[str, Any]
    objective: str
    packed: bool
    tokenizer_fingerprint: str
    vocab_size: int
    token_dtype: str
    documents: dict[str, int]
    sentences: dict[str, int]
    sets: tuple[InstanceSet, ...]
    removed: int = 0
    skipped: int = 0
    filtered: dict[str, int] = dataclasses.field(default_factory=dict)

    def lengths(self, split: str) -> list[int]:
        """Return the sequence lengths that a split was prepared for, ascending."""
        return sorted(s.max_seq_length for s in self.sets if s.split == split)

    def write(self, directory: PathLike) -> None:
        """Write `manifest.json` into `directory`."""
        content = {"format": _FORMAT, "version": _VERSION, **dataclasses.asdict(self)}
        storage.write_atomically(storage.Path(directory) / MANIFEST_FILE, json.dumps(content, indent=2) + "\n")

    @classmethod
    def read(cls, directory: PathLike) -> Self:
        """Read the manifest of a prepared directory, and check that its files exist in their full size.

        Raises:
            InputError: the directory is not a prepared one or is of another version, or a file is missing or truncated.
        """
        directory = storage.Path(directory)
        path = directory / MANIFEST_FILE
        if not path.exists():
            raise InputError(f"{directory}: expected a directory made by `bert-jax prepare`, found no {MANIFEST_FILE}")
        manifest = cls._parse(storage.read_text(path), path)
        sizes = directory.sizes_below()
        for shard in (shard for s in manifest.sets for shard in s.shards):
            num_bytes = sizes.get(shard.name)
            if num_bytes is None:
                raise InputError(f"{directory / shard.name}: no such file, though {MANIFEST_FILE} lists it")
            if num_bytes != shard.num_bytes:
                raise InputError(f"{directory / shard.name}: expected {shard.num_bytes} bytes, found {num_bytes}")
        return manifest

    @classmethod
    def _parse(cls, text: str, path: storage.Path) -> Self:
        try:
            content = storage.parse_json(text, path)
            form, version = content.pop("format"), content.pop("version")
            if form != _FORMAT or version != _VERSION:
                raise InputError(f"{path}: expected format {_FORMAT!r} version {_VERSION}, found {form!r} {version}")
            sets = tuple(InstanceSet.parse(s) for s in content.pop("sets"))
            manifest = _checked(cls(**content, sets=sets))
            for shard in (shard for s in manifest.sets for shard in s.shards):
                expected = shard.header_bytes + shard.rows * shard.width * np.dtype(manifest.token_dtype).itemsize
                if shard.num_bytes != expected:
                    raise ValueError(f"{shard.name} has {shard.num_bytes} bytes, its rows need {expected}")
            return manifest
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: expected a manifest, found something else ({error})") from None
