"""The searchers of hybrid search: how each is opened by its name, its options, and its candidates."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference import pipeline
from bert_jax.storage import Path, PathLike
from bert_jax.tasks.embedding.search.bm25 import BM25Search, BM25Settings
from bert_jax.tasks.embedding.search.fusion import Candidates
from bert_jax.tasks.embedding.sparse.index import INVERTED_SIMILARITIES

# Name of a searcher -> the pipeline of a model for it, and the head of the model.
_KINDS = {
    "dense": ("search", "sentence_embedding"),
    "sparse": ("sparse-search", "sparse_embedding"),
    "multi-vector": ("multi-vector-search", "multi_vector"),
}
_BM25 = BM25Search.head
SEARCHERS = (_BM25, *_KINDS)
# Options of all searchers but BM25, and those of one kind: option -> the head of its models.
SIZE_OPTIONS = {"truncate_dim": "sentence_embedding", "max_active_dims": "sparse_embedding"}
SEARCH_OPTIONS = ("prompt_name", "prompt", *SIZE_OPTIONS)
CORPUS_PROMPT_OPTIONS = ("corpus_prompt_name", "corpus_prompt")
RESCORING = "rescore_multiplier"


def open_searchers(
    model: PathLike | None, searchers: Sequence[str], bm25: BM25Settings | None, dtype: str, **options: Any
) -> dict[str, Any]:
    """Return the searchers of `HybridSearch.open` by their names.

    Args:
        model: as for `HybridSearch.open`.
        searchers: as for `HybridSearch.open`.
        bm25: as for `HybridSearch.open`.
        dtype: as for `bert_jax.pipeline`.
        options: other options of `bert_jax.pipeline`.

    Raises:
        InputError: as `HybridSearch.open`.
    """
    names = _names(searchers)
    kinds = [entry for entry in names.values() if entry in _KINDS]
    if model is None and kinds:
        raise InputError(f"searchers: expected a model for {kinds[0]}, found none")
    if model is not None and not kinds:
        names_only = ", ".join(searchers)
        raise InputError(
            f"model: expected none for the searchers {names_only} (on the command line, bm25 in its place), "
            f"found {model}"
        )
    if bm25 is not None and _BM25 not in names:
        raise InputError(f"settings of bm25: expected bm25 among the searchers, found {', '.join(searchers)}")
    return {
        name: BM25Search(bm25) if entry == _BM25 else _embedding_search(entry, model, dtype, options)
        for name, entry in names.items()
    }


def has_option(searcher: Any, option: str) -> bool:
    """Return whether an option of `CorpusSearch` is one of the searcher."""
    if option == RESCORING:
        return bool(searcher.head == "sentence_embedding")
    if option in SIZE_OPTIONS:
        return bool(searcher.head == SIZE_OPTIONS[option])
    if option in (*SEARCH_OPTIONS, *CORPUS_PROMPT_OPTIONS):
        return bool(searcher.head != _BM25)
    return hasattr(searcher, "index_class") and option in searcher.index_class.options


def candidates_of(searcher: Any, scores: np.ndarray, numbers: np.ndarray) -> list[Candidates]:
    """Return the candidates of each query, without texts that have no word or token of it."""
    by_words = searcher.head == _BM25 or (
        searcher.head == "sparse_embedding" and searcher.model.settings.similarity in INVERTED_SIMILARITIES
    )
    counts = (scores > 0).sum(axis=1) if by_words else [scores.shape[1]] * len(scores)  # a row's greatest come first
    return [
        Candidates(best[:count].tolist(), row[:count].tolist())
        for row, best, count in zip(scores, numbers, counts, strict=True)
    ]


def _names(searchers: Sequence[str]) -> dict[str, str]:
    """Return name -> entry of the searchers that `HybridSearch.open` takes.

    Directories with the same last part, as `dense/model` and `sparse/model`, are `dense-model` and `sparse-model`.

    Raises:
        InputError: an entry is neither known nor a directory, or two have the same name.
    """
    if isinstance(searchers, str):
        raise InputError(f"searchers: expected a list of names, found {searchers!r}")
    names: dict[str, str] = {}
    last_parts = [Path(entry).name or "model" for entry in searchers]
    for entry, name in zip(searchers, last_parts, strict=True):
        if entry not in SEARCHERS and not Path(entry).is_dir() and "/" not in entry:
            expected = "names of searchers and model directories"
            raise InputError(f"searchers: expected {expected}, found {entry!r}{did_you_mean(entry, SEARCHERS)}")
        parent = "" if entry in SEARCHERS else Path(entry).parent.name
        if parent and last_parts.count(name) > 1:
            name = f"{parent}-{name}"
        if name in names:
            raise InputError(f"searchers: expected different names, found {name} twice")
        names[name] = entry
    if not names:
        raise InputError("searchers: expected at least one, found none")
    return names


def _embedding_search(entry: str, model: PathLike | None, dtype: str, options: dict[str, Any]) -> Any:
    """Return the search pipeline of a kind of `model`, or of the directory `entry`."""
    task, head = _KINDS.get(entry, ("search", None))
    opened = pipeline(task, entry if head is None else model, dtype, **options)
    if head not in (None, opened.head):
        raise InputError(f"{model}: {entry} needs a model with a {head} head, found a {opened.head} head")
    return opened
