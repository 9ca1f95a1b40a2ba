"""What vectors in bytes and bits cost a search: nDCG@10, bytes per document, and milliseconds per query.

`python -m benchmarks.quantized_search MODEL DATA` embeds a retrieval set in the layout of BEIR once, writes an index of
each kind, and searches it one query at a time. Times are medians over the queries, without embedding them.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import bert_jax
from bert_jax.data.retrieval_sets import read_retrieval_set
from bert_jax.tasks.embedding.search.evaluation import score_rankings
from bert_jax.tasks.embedding.segmented_index import SegmentedIndex

_TOP_K = 10
# Name -> options of `write_index`, and the multipliers of candidates; None = the index does not score again.
INDEXES: dict[str, tuple[dict[str, Any], tuple[int | None, ...]]] = {
    "float32": ({}, (None,)),
    "float16": ({"precision": "float16"}, (None,)),
    "int8": ({"precision": "int8"}, (None,)),
    "binary": ({"precision": "binary"}, (0, 2, 4, 10)),
    "binary + int8": ({"precision": "binary", "rescore_precision": "int8"}, (2, 4, 10)),
    "binary + float32": ({"precision": "binary", "rescore_precision": "float32"}, (2, 4, 10)),
    "float32, graph": ({"approximate": True}, (None,)),
    "int8, graph": ({"precision": "int8", "approximate": True}, (None,)),
    "binary + int8, graph": ({"precision": "binary", "rescore_precision": "int8", "approximate": True}, (4,)),
}


def main(model: str, data: str, repeat: int, sizes: list[int | None], vectors: str = "") -> None:
    """Print a row for each index and multiplier.

    Args:
        model: a model directory.
        data: directory of a retrieval set.
        repeat: number of times that each document is indexed, with noise, to measure times with more documents.
        sizes: numbers of leading dimensions; None = all.
        vectors: a .npz that keeps the vectors for a later run; "" = none.
    """
    search = bert_jax.pipeline("search", model)
    dataset = read_retrieval_set(data)
    ids, texts = zip(*dataset.documents(), strict=True)
    if not vectors or not Path(vectors).exists():
        documents = search._vectors(list(texts), search._prompt("document", None, None), None, "document")
        queries = search._vectors(list(dataset.queries.values()), search._prompt("query", None, None), None, "query")
        if vectors:
            np.savez(vectors, documents=documents, queries=queries)
    else:
        with np.load(vectors) as arrays:
            documents, queries = arrays["documents"], arrays["queries"]
    rng = np.random.default_rng(0)
    noisy = [_unit(documents + rng.normal(size=documents.shape).astype("f4") * 0.05) for _ in range(repeat - 1)]
    every = np.concatenate([documents, *noisy])
    print(f"{len(every):,} documents, {len(queries):,} queries, {every.shape[1]} dimensions")
    print(
        "| vectors | dimensions | candidates | nDCG@10 | bytes per document | ms per query |\n|---|---|---|---|---|---|"
    )
    for size in sizes:
        of_documents, of_queries = _unit(every[:, :size]), _unit(queries[:, :size])
        for name, (options, multipliers) in INDEXES.items():
            with tempfile.TemporaryDirectory() as folder:
                index, size_of_vectors = _index(search, Path(folder) / "index", of_documents, options)
                for multiplier in multipliers:
                    rankings, took = {}, []
                    for query, vector in zip(dataset.queries, of_queries, strict=True):
                        begun = time.perf_counter()
                        scores, numbers = index.nearest(vector[None], _TOP_K, multiplier)
                        took.append(time.perf_counter() - begun)
                        found = zip(numbers[0].tolist(), scores[0].tolist(), strict=True)
                        rankings[query] = {ids[number % len(ids)]: score for number, score in reversed([*found])}
                    ndcg = score_rankings(dataset, rankings, ["ndcg@10"])["ndcg@10"]
                    candidates = "" if multiplier is None else f"{multiplier * _TOP_K}"
                    figures = f"{ndcg:.3f} | {size_of_vectors / len(every):,.0f} | {np.median(took) * 1000:.2f}"
                    print(f"| {name} | {of_documents.shape[1]} | {candidates} | {figures} |", flush=True)


def _index(search: Any, path: Path, vectors: np.ndarray, options: dict[str, Any]) -> tuple[SegmentedIndex, int]:
    """Write an index of vectors, and return it with the size of its vectors and its graph in bytes."""
    from bert_jax.tasks.embedding.index_files import new_index

    similarity = search.model.settings.similarity
    expected = {"kind": search.head, "width": vectors.shape[1], "similarity": similarity}
    with new_index(str(path)) as files:
        files.append_texts([""] * len(vectors))
        about = search.index_class.write(files, [vectors], similarity, **options)
        files.close(search.head, about | expected)
    names = ("vectors.bin", "rescore_vectors.bin", "ranges.bin", "graph.bin")
    size = sum((path / name).stat().st_size for name in names if (path / name).exists())
    return SegmentedIndex(str(path), search.index_class, expected), size


def _unit(vectors: np.ndarray) -> np.ndarray:
    unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a model directory")
    parser.add_argument("data", help="directory of a retrieval set")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="index each document N times, with noise")
    parser.add_argument("--dims", type=int, nargs="+", default=[], metavar="D", help="also keep D leading dimensions")
    parser.add_argument("--vectors", default="", metavar="FILE", help="a .npz that keeps the vectors for a later run")
    arguments = parser.parse_args()
    main(arguments.model, arguments.data, arguments.repeat, [None, *arguments.dims], arguments.vectors)
