"""`IndexWriting`, the base class of pipelines that write indexes of a corpus on disk, and change them."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference import corpus_chunks
from bert_jax.inference.similarity import comparable
from bert_jax.storage import PathLike
from bert_jax.tasks.embedding.dense.chunking import Chunking, embed_chunks
from bert_jax.tasks.embedding.embedder import Embedder
from bert_jax.tasks.embedding.index_files import IndexWriter, new_index
from bert_jax.tasks.embedding.index_updates import IndexChanges, UniqueIds, updating
from bert_jax.tasks.embedding.search_index import SearchIndex

# Option of `write_index` -> the kind of embeddings whose index has it.
_KIND_OF_OPTION = {"precision": "sentence embeddings or late interaction", "centroids": "late interaction"}


class IndexWriting(Embedder):
    """An embedder that writes the vectors of a corpus to an index, in constant memory."""

    index_class: ClassVar[type[SearchIndex]]  # what `write_index` writes

    def _vectors(self, texts: list[str], prompt: str, size: int | None, task: str) -> Any:
        """Return the vectors of queries or documents with a prompt, ready to be compared; `task` as for `_prompt`."""
        return comparable(self.model.settings.similarity, self._embed(texts, prompt, size, task, True, False))

    def _prompt(self, task: str, name: str | None, text: str | None) -> str:
        """Return the prompt to put before texts; `task` is `query` or `document`."""
        return self.model.settings.prompt_of_task(task, name, text)

    def write_index(
        self,
        corpus: Iterable[str],
        directory: PathLike,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        max_active_dims: int | None = None,
        precision: Literal["float32", "float16", "int8", "binary"] = "float32",
        rescore_precision: Literal["float32", "float16", "int8"] | None = None,
        centroids: int | None = None,
        approximate: bool = False,
        calibration: np.ndarray | None = None,
        chunking: Chunking | None = None,
        ids: Iterable[str] | None = None,
    ) -> int:
        """Embed a corpus, and write an index of it in constant memory, for `open_index`.

        Args:
            corpus: the texts.
            directory: a new or empty local directory.
            prompt_name: as `corpus_prompt_name` of a call.
            prompt: as `corpus_prompt` of a call.
            truncate_dim: as for a call; later calls use the same value.
            max_active_dims: as for `truncate_dim`.
            precision: precision of stored vectors: `float32`, `float16` (half the size), `int8` (a quarter; in late
                interaction, of differences from centroids), or `binary` (a bit per dimension of a sentence embedding).
            rescore_precision: precision of further stored sentence embeddings, by which the candidates that are found
                by those of `precision` are scored again; None means no further vectors: `binary` candidates are scored
                again by their bits and the query's numbers.
            centroids: number of centroids in late interaction; None means about 4 * sqrt(number of tokens).
            approximate: whether search may miss texts in order to be faster, with a graph of the sentence embeddings;
                needs the extra `usearch`.
            calibration: sentence embeddings of other texts `[N, D]`, whose least and greatest values are the range of
                each dimension for `int8`; None = those of the corpus.
            chunking: how texts are cut into chunks, each with a sentence embedding; None = not at all.
            ids: an id of each text, unique; None = a text is known by its number.

        Returns:
            The number of texts.

        Raises:
            InputError: a text is no string, there is no text, an id is not unique, or an option does not fit the model.
        """
        size = self._size(truncate_dim=truncate_dim, max_active_dims=max_active_dims)
        chunking = None if chunking == Chunking() else chunking
        options = {"precision": precision, "rescore_precision": rescore_precision, "centroids": centroids,
                   "approximate": approximate, "calibration": calibration, "chunking": chunking}  # fmt: skip
        if precision == "float32":
            del options["precision"]
        options = {name: value for name, value in options.items() if value is not None and value is not False}
        for name in options.keys() - {*self.index_class.options}:
            kind = _KIND_OF_OPTION.get(name, "sentence embeddings")
            raise InputError(f"{name}: expected a model of {kind}, found another one")
        if chunking is not None:
            chunking.check(self.model.config.poolings)
        before, similarity = self._prompt("document", prompt_name, prompt), self.model.settings.similarity
        entries: dict[str, Any] = {"size": size, "width": self._width, "similarity": similarity, "prompt": before}
        entries |= {} if ids is None else {"has_ids": True}
        entries |= {} if chunking is None else {"chunking": dataclasses.asdict(chunking)}
        with new_index(directory) as files:
            about, _ = self._write(files, corpus, ids, before, size, options)
            files.close(self.head, about | entries)
        return int(about["texts"])

    def update_index(
        self,
        directory: PathLike,
        corpus: Iterable[str] | None = None,
        *,
        ids: Iterable[str] | None = None,
        delete: Iterable[str | int] = (),
        compact: bool = False,
    ) -> IndexChanges:
        """Add texts to an index on disk and delete others from it, without embedding again those that it keeps.

        Searches that have the index open keep its version. If the process is killed, the index is as it was. An index
        more than half of whose texts are deleted, or with many updates, is compacted.

        Args:
            directory: an index that `write_index` wrote with the same model.
            corpus: texts to add, with the options of the index; None = none.
            ids: the ids of the texts to add, if the index has ids; a text with the id of another one replaces it.
            delete: ids of texts to delete, or numbers if the index has no ids.
            compact: whether to remove deleted texts from the files now.

        Returns:
            What has changed.

        Raises:
            InputError: as `write_index` and `open_index`; or no text has an id or number of `delete`, or another
                process is updating the index.
        """
        with updating(directory, self.index_class, self._expected) as update:
            index, about = update.index, update.index.about
            if corpus is not None and index.has_ids != (ids is not None):
                expected, found = ("ids of the texts", "none") if index.has_ids else ("no ids, as in the index", "some")
                raise InputError(f"{directory}: expected {expected}, found {found}")
            deleted, added, new_ids = index.numbers_of([str(each) for each in delete], "delete"), 0, list[str]()
            if corpus is not None:
                before = about["prompt"] if "prompt" in about else self._prompt("document", None, None)
                options = dict(index.segments[0].search_index.write_options) if index.segments else {}
                options |= {"chunking": _recorded_chunking(about, directory)} if "chunking" in about else {}
                with update.new_segment() as files:
                    segment, new_ids = self._write(files, corpus, ids, before, index.size or self._size(), options)
                    files.close(self.head, update.segment_entries(segment))
                added = int(segment["texts"])
            replaced = np.setdiff1d(index.numbers_of(new_ids, missing_ok=True), deleted)
            if added or len(deleted):
                update.commit(added, np.concatenate([deleted, replaced]))
            compacted = (compact or update.needs_compaction()) and update.compact()
            return IndexChanges(added, len(replaced), len(deleted), update.index.count, compacted)

    def _write(
        self,
        files: IndexWriter,
        corpus: Iterable[str],
        ids: Iterable[str] | None,
        prompt: str,
        size: int | None,
        options: dict[str, Any],
    ) -> tuple[dict[str, Any], list[str]]:
        """Write the texts, the ids and the vectors of a corpus; return the entries of `index.json`, and the ids."""
        chunking, of_texts = options.pop("chunking", None), None if ids is None else UniqueIds(ids)
        texts_written = chunks_written = 0

        def vectors() -> Iterator[Any]:
            nonlocal texts_written, chunks_written
            for texts in corpus_chunks.corpus_chunks(corpus):
                files.append_texts(texts)
                texts_written += len(texts)
                if of_texts is not None:
                    files.append_texts(of_texts.read(len(texts)), "id")
                if chunking is None:
                    yield self._vectors(texts, prompt, size, "document")
                    continue
                embedded = embed_chunks(self, texts, prompt, chunking)  # type: ignore[arg-type]
                chunks_written += len(embedded.vectors)
                files.append("chunk_counts", embedded.counts)
                files.append("chunk_spans", embedded.spans)
                yield comparable(self.model.settings.similarity, embedded.vectors[:, :size])
            if of_texts is not None:
                of_texts.check_end()

        about = self.index_class.write(files, vectors(), self.model.settings.similarity, **options)
        about |= {"texts": texts_written} | ({} if chunking is None else {"chunks": chunks_written})
        return about, [] if of_texts is None else list(of_texts.seen)

    @property
    def _expected(self) -> dict[str, Any]:
        """Return the entries of `index.json` that an index of this model has."""
        return {"kind": self.head, "width": self._width, "similarity": self.model.settings.similarity}

    @property
    def _width(self) -> int:
        """Return the number of dimensions of a vector before truncation."""
        return self.model.config.sentence_embedding_size


def _recorded_chunking(about: dict[str, Any], directory: PathLike) -> Chunking:
    """Return the chunking of an index. Raises InputError when its entry in `index.json` is damaged."""
    try:
        return Chunking(**about["chunking"])
    except TypeError:
        raise InputError(f"{directory}: expected the fields of a chunking, found other ones") from None
