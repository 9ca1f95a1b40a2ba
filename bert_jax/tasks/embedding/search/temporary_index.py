"""`TemporaryIndex`, search in an index on disk that is removed afterwards, to evaluate what an index finds."""

import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax import storage


class TemporaryIndex:
    """Search in an index that is written for one call.

    Attributes:
        bytes_per_document: size of the vectors of the last index, with its graph, divided by its number of documents.

    Args:
        search: the pipeline.
        options: options of `CorpusSearch.write_index`.
    """

    def __init__(self, search: Any, **options: Any):
        self._search, self._options = search, options
        self.bytes_per_document = 0.0

    def nearest(
        self,
        queries: Sequence[str],
        corpus: Iterable[str],
        top_k: int = 10,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        truncate_dim: int | None = None,
        max_active_dims: int | None = None,
        rescore_multiplier: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and numbers, as `CorpusSearch.nearest` does, of an index of the corpus."""
        sizes = {"truncate_dim": truncate_dim, "max_active_dims": max_active_dims}
        with tempfile.TemporaryDirectory() as folder:
            directory = storage.Path(folder) / "index"
            prompts = {"prompt_name": corpus_prompt_name, "prompt": corpus_prompt}
            texts = self._search.write_index(corpus, directory, **prompts, **sizes, **self._options)
            files = directory.sizes_below().items()
            self.bytes_per_document = sum(size for name, size in files if not _is_text(name)) / texts
            self._search.open_index(directory)
            prompts = {"prompt_name": prompt_name, "prompt": prompt}
            found: tuple[np.ndarray, np.ndarray] = self._search.nearest(
                queries, None, top_k, rescore_multiplier=rescore_multiplier, **prompts
            )
            return found


def _is_text(name: str) -> bool:
    return name.rpartition("/")[2] in ("texts.bin", "text_lengths.bin", "index.json")
