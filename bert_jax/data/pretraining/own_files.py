"""Track the files that `prepare` writes into a directory: it removes and replaces only these.

The name of a file is noted before the file is written, by an empty file NAME.written in `NOTES`. Files in
`RECORDS_DIR` are known by their names.
"""

import concurrent.futures
import contextlib
import re
from collections.abc import Container, Iterable

from bert_jax import storage
from bert_jax.data.pretraining.chunks import RECORDS_DIR
from bert_jax.data.pretraining.manifest import MANIFEST_FILE, TOKENIZER_DIR, Manifest
from bert_jax.errors import InputError

NOTES, _NOTE = f"{RECORDS_DIR}/written", ".written"
_RECORD = re.compile(
    r"(train|validation)-[0-9-]+[.]json|held-out-[0-9]+[.]jsonl|texts-[0-9]+[.]json|comparison[.]json|units[.]bin|"
    r"keys-[a-z]+-[0-9]+[.]bin|repeated-[a-z]+-[0-9]+[.]bin"
)
_CONCURRENT = 16  # concurrent requests to an object store


def own_file(directory: storage.Path, name: str) -> storage.Path:
    """Note the name of a file to write or to remove, and return its path.

    Raises:
        InputError: there is such a file that `prepare` did not write.
    """
    path = directory / name
    if not _note_of(directory, name).exists():
        if path.exists():
            raise InputError(f"{path}: expected no file that prepare did not write, found one; move it elsewhere")
        _note(directory, [name])
    return path


def note_finished(directory: storage.Path, others: Iterable[str]) -> None:
    """Note the files of a finished directory again: a run that was killed at its very end has removed the notes.

    Args:
        directory: the directory; nothing is noted where it has no manifest.
        others: its files other than the manifest and the shards.
    """
    with contextlib.suppress(InputError):
        manifest = Manifest.read(directory)
        shards = {shard.name for instances in manifest.sets for shard in instances.shards}
        _note(directory, [*shards, MANIFEST_FILE, *others])


def _note_of(directory: storage.Path, name: str) -> storage.Path:
    return directory / NOTES / f"{name}{_NOTE}"


def _note(directory: storage.Path, names: Iterable[str]) -> None:
    for name in names:
        note = _note_of(directory, name)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_bytes(b"")


def remove_own_files(directory: storage.Path, kept: Container[str] = ()) -> None:
    """Remove the noted files except those `kept`, and unfinished files of killed processes."""
    notes = directory / NOTES
    note_sizes = notes.sizes_below() if notes.exists() else {}
    names = [name.removesuffix(_NOTE) for name, size in note_sizes.items() if name.endswith(_NOTE) and not size]
    _unlink_all([directory / name for name in names if name not in kept])
    if not directory.is_remote:
        for folder in (directory, directory / TOKENIZER_DIR):
            _unlink_all(path for path in list(_entries(folder)) if storage.is_leftover(path.name) and path.is_file())
        _remove_empty(directory / TOKENIZER_DIR)


def remove_records(directory: storage.Path) -> None:
    """Remove temporary files of the steps, and the notes last."""
    records, notes = directory / RECORDS_DIR, directory / NOTES
    _unlink_all(
        path
        for path in list(_entries(records))
        if _RECORD.fullmatch(path.name) or (storage.is_leftover(path.name) and path.is_file())
    )
    note_sizes = notes.sizes_below() if notes.exists() else {}
    _unlink_all([notes / name for name, size in note_sizes.items() if name.endswith(_NOTE) and not size])
    for folder in (notes / TOKENIZER_DIR, notes, records):
        _remove_empty(folder)


def _entries(folder: storage.Path) -> Iterable[storage.Path]:
    return folder.iterdir() if folder.is_dir() else ()


def _unlink_all(paths: Iterable[storage.Path]) -> None:
    with concurrent.futures.ThreadPoolExecutor(_CONCURRENT) as pool:
        list(pool.map(lambda path: path.unlink(missing_ok=True), paths))


def _remove_empty(folder: storage.Path) -> None:
    if not folder.is_remote and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
