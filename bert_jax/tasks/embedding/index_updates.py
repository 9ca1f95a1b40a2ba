"""Add texts to an index on disk and delete some, while others read it; a kill at any moment leaves it as it was."""

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.tasks.embedding.index_files import ABOUT, IndexWriter, new_index
from bert_jax.tasks.embedding.search_index import SearchIndex
from bert_jax.tasks.embedding.segmented_index import SegmentedIndex

_MOST_SEGMENTS = 32  # with more, the index is compacted
_TEXTS_COPIED = 1 << 12
# Entries of `index.json` that are of the whole index, and so of each segment.
_SHARED = ("size", "width", "similarity")


class IndexChanges(NamedTuple):
    """What an update of an index has done.

    Attributes:
        added: number of texts that were added.
        replaced: number of texts that were replaced by an added one of the same id.
        deleted: number of texts that were deleted.
        texts: number of texts in the index.
        compacted: whether the index was rewritten without deleted texts.
    """

    added: int
    replaced: int
    deleted: int
    texts: int
    compacted: bool


class UniqueIds:
    """The ids of the texts of a corpus, read along with the texts.

    Attributes:
        seen: the ids that are read so far, in their order.
    """

    def __init__(self, ids: Iterable[str]):
        self._left = iter(ids)
        self.seen: dict[str, None] = {}

    def read(self, count: int) -> list[str]:
        """Return the next `count` ids. Raises InputError when there are fewer, or one is no text or not unique."""
        ids = list(itertools.islice(self._left, count))
        first = len(self.seen)
        if len(ids) < count:
            raise InputError(f"ids: expected an id of each of the texts, found {first + len(ids):,} ids")
        for number, text_id in enumerate(ids, first):
            if not isinstance(text_id, str) or not text_id:
                raise InputError(f"ids: text {number}: expected an id, found {text_id!r}")
            if text_id in self.seen:
                raise InputError(f"ids: text {number}: expected a unique id, found {text_id!r} again")
            self.seen[text_id] = None
        return ids

    def check_end(self) -> None:
        """Raise InputError when there are more ids than were read."""
        if next(self._left, None) is not None:
            raise InputError(f"ids: expected an id of each of {len(self.seen):,} texts, found more ids")


class IndexUpdate:
    """An update of an index, which only this process changes meanwhile.

    Attributes:
        index: the index before the update.
    """

    def __init__(self, directory: storage.Path, index_class: type[SearchIndex], expected: dict[str, Any]):
        self._directory, self._class, self._expected = directory, index_class, expected
        self.index = SegmentedIndex(directory, index_class, expected)
        self._generation = self.index.about.get("generation", 0) + 1
        for name in (*self.index.about.get("superseded", []), self._segment, f"{self._deleted}.bin"):
            _remove(directory / name)
        for name in (self._segment, f"{self._deleted}.bin", ABOUT):
            storage.remove_leftovers(directory / name)

    @property
    def _segment(self) -> str:
        return f"segment-{self._generation}"

    @property
    def _deleted(self) -> str:
        return f"deleted-{self._generation}"

    @contextlib.contextmanager
    def new_segment(self) -> Iterator[IndexWriter]:
        """Yield the writer of a segment of added texts, which `commit` adds to the index."""
        with new_index(self._directory / self._segment) as files:
            yield files

    def segment_entries(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return the entries for `index.json` of a new segment; `about` are those of its index."""
        shared = {name: self.index.about.get(name) for name in _SHARED}
        return about | shared | {"first_number": self.index.next_number}

    def commit(self, added: int, deleted: np.ndarray) -> None:
        """Make the changes visible.

        Args:
            added: number of texts of the new segment; 0 = there is none.
            deleted: the numbers of texts to delete.
        """
        about, names = self.index.about, self.index.about.get("segments", [""])
        names = [*names, self._segment] if added else names
        arrays, superseded, entry = dict(about["arrays"]), [], about.get("deleted")
        if len(deleted):
            if entry is not None:
                superseded.append(f"{entry}.bin")
                del arrays[entry]
            entry, numbers = self._deleted, np.union1d(self.index.deleted, deleted)
            storage.write_atomically(self._directory / f"{entry}.bin", numbers.astype("<i8").tobytes())
            arrays[entry] = {"dtype": "<i8", "shape": [len(numbers)]}
        self._replace({"segments": names, "deleted": entry, "next_number": self.index.next_number + added,
                       "superseded": superseded, "arrays": arrays})  # fmt: skip

    def needs_compaction(self) -> bool:
        """Return whether more than half of the texts are deleted, or there are more than `_MOST_SEGMENTS` segments."""
        texts = sum(len(segment.numbers) for segment in self.index.segments)
        return texts > 2 * self.index.count or len(self.index.segments) > _MOST_SEGMENTS

    def compact(self) -> bool:
        """Write the texts that are not deleted as one segment, with their vectors; return whether there was need."""
        index, about = self.index, self.index.about
        segments = [segment for segment in index.segments if segment.search_index.live_count]
        if not segments or (len(index.segments) == 1 and not len(index.deleted)):
            return False
        with self.new_segment() as files:
            for segment in segments:
                live = segment.search_index.live_numbers
                files.append("numbers", segment.numbers[live])
                for start in range(0, len(live), _TEXTS_COPIED):
                    places = live[start : start + _TEXTS_COPIED].tolist()
                    for name in ("text", "id") if index.has_ids else ("text",):
                        files.append_texts(segment.files.texts(places, name), name)
            entries = self._class.merge(files, [segment.search_index for segment in segments])
            entries |= {"chunks": True} if "chunks" in segments[0].files.about else {}
            shared = {name: about.get(name) for name in _SHARED}
            files.close(str(about["kind"]), entries | shared | {"texts": index.count})
        superseded = [f"{name}.bin" for name in about["arrays"]]
        superseded += [name for name in about.get("segments", [""]) if name]
        self._replace({"segments": [self._segment], "deleted": None, "next_number": index.next_number,
                       "superseded": superseded, "arrays": {}, "texts": 0})  # fmt: skip
        return True

    def _replace(self, changes: dict[str, Any]) -> None:
        """Replace `index.json`, and then remove the files that no version of the index needs."""
        content = self.index.about | {"version": 2, "generation": self._generation} | changes
        storage.write_atomically(self._directory / ABOUT, json.dumps(content, indent=2) + "\n")
        for name in changes["superseded"]:
            _remove(self._directory / name)
        self._generation += 1
        self.index = SegmentedIndex(self._directory, self._class, self._expected)


@contextlib.contextmanager
def updating(
    directory: storage.PathLike, index_class: type[SearchIndex], expected: dict[str, Any]
) -> Iterator[IndexUpdate]:
    """Yield an update of an index; arguments as for `SegmentedIndex`.

    Raises:
        InputError: as `SegmentedIndex`, or another process is updating the index.
    """
    SegmentedIndex(directory, index_class, expected)  # so that a path that is no index has the error of one
    with storage.claimed(directory, f"{directory}: another process is updating this index"):
        yield IndexUpdate(storage.Path(directory), index_class, expected)


def _remove(path: storage.Path) -> None:
    """Remove a file or a segment that only this module writes, in a directory that `new_index` made."""
    if path.is_dir():
        path.rmtree(missing_ok=True)
    else:
        path.unlink(missing_ok=True)
