"""`SegmentedIndex`, an index on disk that may have grown: segments, each an index of its own, and deleted texts.

The directory of an index is its first segment. `index.json` of a grown index, of version 2, names further segments,
which are directories in it, and an array of the numbers of deleted texts. A number is never given twice, so that it
stays that of its text. Files are never changed: an update writes new ones and replaces `index.json` last.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.tasks.embedding.index_files import IndexFiles
from bert_jax.tasks.embedding.search_index import SearchIndex

RESCORE_MULTIPLIER = 2  # candidates per answer that are scored again, as in sentence-transformers
_IDS_READ = 1 << 14  # ids that are decoded together
_FILE = re.compile(r"segment-[0-9]+|[a-z0-9_-]+[.]bin")  # names of segments and of arrays


class Segment(NamedTuple):
    """A segment of an index.

    Attributes:
        name: name of its directory; "" = the directory of the index.
        files: its files.
        search_index: its vectors, with the deleted texts.
        numbers: the numbers of its texts in the whole index, int64, ascending.
    """

    name: str
    files: IndexFiles
    search_index: SearchIndex
    numbers: np.ndarray


class SegmentedIndex:
    """An index on disk, opened as one version: later updates of its directory do not change it.

    Attributes:
        about: the content of `index.json` of the directory.
        segments: its segments, in the order of their texts.
        count: number of texts that are not deleted.
        deleted: the numbers of deleted texts, int64, ascending.
    """

    def __init__(self, directory: storage.PathLike, index_class: type[SearchIndex], expected: dict[str, Any]):
        """Open an index.

        Args:
            directory: its directory.
            index_class: class of the indexes of segments.
            expected: entries of `index.json` that are checked: `kind`, `width` and `similarity`.

        Raises:
            InputError: there is no index, it is damaged, or an entry has another value.
        """
        while True:
            root = IndexFiles(directory)
            try:
                self._open(root, index_class, expected)
                return
            except InputError:
                if IndexFiles(directory).about == root.about:  # else an update has removed files meanwhile
                    raise

    def _open(self, root: IndexFiles, index_class: type[SearchIndex], expected: dict[str, Any]) -> None:
        for name, value in expected.items():
            if root.about.get(name) != value:
                found = root.about.get(name)
                raise InputError(f"{root.directory}: expected an index of {name} {value}, found {found}")
        self._root, self.about, self.segments = root, root.about, list[Segment]()
        names, deleted = self.about.get("segments", [""]), self.about.get("deleted")
        _check_names(root, "segments", [name for name in names if name != ""] if isinstance(names, list) else None)
        _check_names(root, "superseded", self.about.get("superseded", []))
        for name in ("generation", "next_number"):
            number = self.about.get(name, 0)
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise root.damaged(f"a {name} of at least 0")
        self.deleted = np.zeros(0, np.int64) if deleted is None else np.array(root.array(deleted, np.int64, (None,)))
        for name in names:
            files = IndexFiles(root.directory / name) if name else root
            index = index_class(files, expected["width"], expected["similarity"])
            files.strings("text")  # maps them now, as an update may remove the file
            if self.has_ids:
                files.strings("id")
            numbers = _numbers(files)
            if self.segments and len(numbers) and numbers[0] <= self.segments[-1].numbers[-1]:
                raise files.damaged("numbers of texts above those of the segment before")
            index.hide_deleted(~np.isin(numbers, self.deleted))
            if len(numbers):
                self.segments.append(Segment(name, files, index, numbers))
        self.count = sum(segment.search_index.live_count for segment in self.segments)

    @property
    def size(self) -> int | None:
        """Return the size that vectors were truncated to; None = not truncated."""
        return self._root.size

    @property
    def has_ids(self) -> bool:
        """Return whether texts have ids."""
        return bool(self.about.get("has_ids"))

    @property
    def next_number(self) -> int:
        """Return the number of the next text that is added."""
        last = [int(segment.numbers[-1]) + 1 for segment in self.segments]
        return max(int(self.about.get("next_number", 0)), *last, 0)

    def nearest(self, queries: Any, top_k: int, rescore_multiplier: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and the numbers of the best texts for N queries, both `[N, min(top_k, texts)]`.

        Args:
            queries: their vectors, as for `SearchIndex.nearest`.
            top_k: number of texts per query.
            rescore_multiplier: number of candidates per answer that are scored again; 0 = none; None = 2, if the index
                has vectors for it.

        Raises:
            InputError: there is a multiplier, and the index has no vectors to score candidates again.
        """
        rescores = any(segment.search_index.rescores for segment in self.segments)
        if rescore_multiplier is not None and not rescores:
            raise InputError(
                "rescore_multiplier: expected an index of precision binary or with a rescore_precision, "
                "found another one"
            )
        multiplier = (RESCORE_MULTIPLIER if rescore_multiplier is None else rescore_multiplier) if rescores else 0
        count = len(queries) if isinstance(queries, list) else queries.shape[0]
        shape = (count, min(top_k, self.count))
        scores, numbers = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
        live = [segment for segment in self.segments if segment.search_index.live_count]
        for row in range(count if shape[1] else 0):
            query = queries[row : row + 1]
            most = min(self.count, max(multiplier, 1) * shape[1])
            best = _merged([_best_of_segment(segment, query, most) for segment in live], most)
            if multiplier:
                again = [self._rescored(segment, query, best[1]) for segment in live]
                best = _merged(again, shape[1])
            scores[row], numbers[row] = best
        return scores, numbers

    def _rescored(self, segment: Segment, query: Any, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inside = np.sort(numbers[(numbers >= segment.numbers[0]) & (numbers <= segment.numbers[-1])])
        if not len(inside):
            return np.zeros(0, np.float32), inside
        return segment.search_index.rescore(query, np.searchsorted(segment.numbers, inside)), inside

    def texts(self, numbers: Sequence[int], name: str = "text") -> list[str]:
        """Return texts by their numbers, or with the name `id` their ids."""
        return [segment.files.texts([place], name)[0] for segment, place in map(self._place, numbers)]

    def fields(self, query: Any, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return what an answer says of each text beside its number, score and text.

        Args:
            query: the vector of the query, a row of `queries` of `nearest`.
            numbers: the texts.

        Returns:
            `id`, if texts have ids; `start`, `end` and `chunk`, the range of characters and the text of the best
            chunk, if texts are indexed in chunks.
        """
        fields: list[dict[str, Any]] = []
        for segment, place in map(self._place, numbers):
            answer: dict[str, Any] = {"id": segment.files.texts([place], "id")[0]} if self.has_ids else {}
            if spans := segment.search_index.best_chunks(query, [place]):
                start, end = spans[0]
                answer |= {"start": start, "end": end, "chunk": segment.files.texts([place])[0][start:end]}
            fields.append(answer)
        return fields

    def _place(self, number: int) -> tuple[Segment, int]:
        """Return the segment of a text, and its position there."""
        segment = next(segment for segment in self.segments if number <= segment.numbers[-1])
        return segment, int(np.searchsorted(segment.numbers, number))

    def numbers_of(self, ids: Iterator[str] | Sequence[str], name: str = "", missing_ok: bool = False) -> np.ndarray:
        """Return the numbers of texts that are not deleted, int64, ascending.

        Args:
            ids: their ids, or numbers in decimals if texts have no ids.
            name: name of the option, for messages.
            missing_ok: whether to leave out ids that no text has.

        Raises:
            InputError: no text has an id.
        """
        left, numbers = {*ids}, list[int]()
        for segment in self.segments:
            live = segment.search_index.live_numbers
            for start in range(0, len(live) if left else 0, _IDS_READ):
                places = live[start : start + _IDS_READ]
                here = segment.numbers[places].tolist()
                known = segment.files.texts(places.tolist(), "id") if self.has_ids else map(str, here)
                for number, text_id in zip(here, known, strict=True):
                    if text_id in left:
                        left.discard(text_id)
                        numbers.append(number)
        if left and not missing_ok:
            what = "ids" if self.has_ids else "numbers"
            found = f"{min(left)!r} ({len(left):,} in all)"
            raise InputError(f"{name}: expected {what} of texts in the index, found {found}")
        return np.array(sorted(numbers), np.int64)


def _check_names(files: IndexFiles, entry: str, names: Any) -> None:
    """Raise InputError when an entry of `index.json` is not a list of names that an update gives to its files.

    So no name leads out of the directory of the index, in which superseded files are removed.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) and _FILE.fullmatch(name) for name in names):
        raise files.damaged(f"names of files in {entry}")


def _numbers(files: IndexFiles) -> np.ndarray:
    """Return the numbers of the texts of a segment."""
    if "numbers" in files.about["arrays"]:
        numbers = np.asarray(files.array("numbers", np.int64, (files.count,)))
        if (np.diff(numbers) <= 0).any():
            raise files.damaged("numbers in ascending order")
        return numbers
    first = files.about.get("first_number", 0)
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        raise files.damaged("a first_number of at least 0")
    return np.arange(first, first + files.count)


def _best_of_segment(segment: Segment, query: Any, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    scores, places = segment.search_index.nearest(query, top_k)
    return scores[0], segment.numbers[places[0]]


def _merged(parts: Sequence[tuple[np.ndarray, np.ndarray]], top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `top_k` best of scores and numbers, in descending order; ties are in the order of the numbers."""
    scores, numbers = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.lexsort((numbers, -scores))[:top_k]
    return scores[order], numbers[order]
