"""Print vectors of texts, and write them to files."""

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bert_jax.cli import answer_tables
from bert_jax.cli.output import print_json, print_table, say
from bert_jax.errors import InputError

if TYPE_CHECKING:
    from bert_jax.tasks.embedding.index_files import IndexWriter

_MOST_COMPARED = 10  # maximum number of texts in a similarity table
_ROWS_QUANTIZED = 1 << 14  # vectors that are quantized together
_SHOWN_TOKENS = 8  # maximum number of tokens in a table of weights
# Parquet types of vectors; the type of a dense vector depends on its size.
_SPARSE, _MULTI_VECTOR = [{"token": "string", "weight": "float"}], [["float"]]
Answers = Iterator[tuple[str, Any]]  # each text with its vector


def show_dense(args: argparse.Namespace, answers: Answers, similarity: str, size: int) -> None:
    """Print vectors of `size` dimensions, or write them to `args.out` as a .npy array or as Parquet."""
    if args.precision != "float32":
        _show_quantized(args, answers, size)
    elif answer_tables.is_parquet(args.out):
        _write_table(args, answers, ["float", size])
    elif args.out:
        count = _write_dense(args.out, (vector for _, vector in answers), size)
        _tell(args, f"{args.out}: {count:,} vectors of {size} dimensions")
    elif args.json:
        for text, vector in answers:
            print_json({"text": text, "embedding": _numbers(vector)})
    else:
        import numpy as np

        texts, vectors = zip(*answers, strict=True)
        _print_dense(list(texts), np.stack(vectors), similarity)


def _show_quantized(args: argparse.Namespace, answers: Answers, size: int) -> None:
    """Print or write vectors as bytes or bits (`dense.quantization`), with the ranges of --calibration."""
    from bert_jax.tasks.embedding.dense.quantization import calibration_ranges, quantize_vectors

    calibration = calibration_vectors(args)
    ranges = None if calibration is None else calibration_ranges(calibration, size)
    if answer_tables.is_parquet(args.out) or not (args.out or args.json):
        raise InputError(f"--precision: expected --out FILE.npy or --json for {args.precision}, found another output")
    if args.precision.endswith("int8") and ranges is None and (args.shards or not args.out):
        raise InputError(
            f"--precision: expected --calibration or one --out FILE.npy for {args.precision}, found neither"
        )
    if not args.out:
        for text, vector in answers:
            print_json({"text": text, "embedding": quantize_vectors(vector[None], args.precision, ranges)[0].tolist()})
        return
    count = _write_dense(args.out, (vector for _, vector in answers), size, args.precision, ranges)
    _tell(args, f"{args.out}: {count:,} vectors of {size} dimensions in {args.precision}")


def show_chunks(args: argparse.Namespace, answers: Answers) -> None:
    """Print the vectors of the chunks of texts, or write them to `args.out`.

    The file is a .npz of `vectors`, float32 `[chunks of all texts, D]`, `starts`, int64 `[texts + 1]`: the chunks of
    text i are those from `starts[i]` to `starts[i + 1]`; and `spans`, int64 `[chunks, 2]`, their ranges of characters.
    """
    if answer_tables.is_parquet(args.out):
        raise InputError(f"{args.out}: expected a .npz for chunks, found .parquet")
    if args.out:
        import numpy as np

        spans = [np.zeros((0, 2), np.int64)]

        def of_texts() -> Iterator[Any]:
            for _, (vectors, of_text) in answers:
                spans.append(of_text)
                yield vectors

        count, chunks, size = _write_multi_vector(args.out, of_texts(), lambda: {"spans": np.concatenate(spans)})
        _tell(args, f"{args.out}: {count:,} texts with {chunks:,} chunks of {size} dimensions")
        return
    for text, (vectors, of_text) in answers:
        if args.json:
            chunks_of_text = [{"start": int(start), "end": int(end), "embedding": _numbers(vector)}
                              for (start, end), vector in zip(of_text, vectors, strict=True)]  # fmt: skip
            print_json({"text": text, "chunks": chunks_of_text})
        else:
            rows = [(str(i), text[start:end], " ".join(f"{x: .4f}" for x in vector[:4]) + " ...")
                    for i, ((start, end), vector) in enumerate(zip(of_text, vectors, strict=True), 1)]  # fmt: skip
            print_table(f"{len(vectors):,} chunks", ("chunk", "text", "vector"), rows)


def add_calibration_vectors(parser: Any) -> None:
    """Declare `--calibration`."""
    parser.add_argument("--calibration", metavar="FILE",
        help="a .npy of float vectors of other texts, from `bert-jax embed --out FILE`, whose least and greatest "
        "values are the range of each dimension for int8 (default: those of the texts)")  # fmt: skip


def calibration_vectors(args: argparse.Namespace) -> Any:
    """Return the array of --calibration; None = not given. Raises InputError when the file has none."""
    if args.calibration is None:
        return None
    import numpy as np

    from bert_jax import storage

    try:
        with storage.existing(args.calibration).open("rb") as file:
            return np.load(file, allow_pickle=False)
    except (ValueError, EOFError):
        raise InputError(f"{args.calibration}: expected a .npy of vectors, found another file") from None


def show_sparse(args: argparse.Namespace, answers: Answers, decode: Callable[[Any], Any], size: int) -> None:
    """Print sparse vectors, each a CSR array of one row, or write them to `args.out`.

    The file is a .npz in the layout of `scipy.sparse.save_npz`: CSR arrays `data` (float32), `indices` (int32),
    `indptr` (int64), `shape` and `format`; or Parquet with the tokens and their weights.
    """
    if answer_tables.is_parquet(args.out):
        tokens_of = ((text, decode(vector)[0]) for text, vector in answers)
        _write_table(
            args,
            ((text, [{"token": token, "weight": weight} for token, weight in tokens]) for text, tokens in tokens_of),
            _SPARSE,
        )
        return
    if args.out:
        count, weights = _write_sparse(args.out, (vector for _, vector in answers), size)
        _tell(args, f"{args.out}: {count:,} sparse vectors with {weights:,} weights of {size:,} tokens")
        return
    for text, vector in answers:
        (tokens,) = decode(vector)
        if args.json:
            print_json({"text": text, "embedding": {token: float(f"{weight:.6g}") for token, weight in tokens}})
        else:
            rows = [(token, f"{weight:.4f}") for token, weight in tokens[:_SHOWN_TOKENS]]
            print_table(f"{text}  ({len(tokens):,} tokens)", ("token", "weight"), rows)


def show_multi_vector(args: argparse.Namespace, answers: Answers) -> None:
    """Print the vectors of tokens, arrays `[T, D]`, or write them to `args.out`.

    The file is a .npz of `vectors`, float32 `[tokens of all texts, D]`, and `starts`, int64 `[texts + 1]`: the vectors
    of text i are those from `starts[i]` to `starts[i + 1]`; or Parquet.
    """
    if answer_tables.is_parquet(args.out):
        _write_table(args, ((text, list(vectors)) for text, vectors in answers), _MULTI_VECTOR)
        return
    if args.out:
        count, tokens, size = _write_multi_vector(args.out, (vectors for _, vectors in answers))
        _tell(args, f"{args.out}: {count:,} texts with {tokens:,} vectors of {size} dimensions")
        return
    for text, vectors in answers:
        if args.json:
            print_json({"text": text, "embedding": [_numbers(vector) for vector in vectors]})
        else:
            rows = [(str(i), " ".join(f"{x: .4f}" for x in vector[:4]) + " ...") for i, vector in enumerate(vectors, 1)]
            print_table(f"{text}  ({len(vectors):,} vectors)", ("token", "vector"), rows)


def _write_table(args: argparse.Namespace, answers: Answers, kind: Any) -> None:
    """Write texts and vectors as Parquet."""
    count = 0
    with answer_tables.open_answers(args.out, {"text": "string", "embedding": kind}) as write:
        for text, vector in answers:
            write({"text": text, "embedding": vector})
            count += 1
    _tell(args, f"{args.out}: {count:,} embeddings")


def _tell(args: argparse.Namespace, written: str) -> None:
    if not args.shards:
        say(written)


def _numbers(vector: Any) -> list[float]:
    return [float(str(x)) for x in vector]


def _write_dense(path: str, vectors: Iterable[Any], size: int, precision: str = "float32", ranges: Any = None) -> int:
    """Write vectors as one .npy array of a precision, in constant memory; return their number."""
    import numpy as np

    from bert_jax import storage

    with _arrays_on_disk() as arrays:
        arrays.append("vectors", np.zeros((0, size), "<f4"))
        for vector in vectors:
            arrays.append("vectors", vector[None])
        written = arrays.read("vectors")
        if precision != "float32":
            written = _quantized(arrays, written, precision, ranges)
        with storage.open_binary_atomically(path) as file:
            np.save(file, written)
        return len(written)


def _quantized(arrays: "IndexWriter", vectors: Any, precision: Any, ranges: Any) -> Any:
    """Return vectors in bytes or bits, in a file of `arrays`; without ranges of int8, those of all vectors."""
    import numpy as np

    from bert_jax.tasks.embedding.dense.quantization import quantization_ranges, quantize_vectors

    blocks = [slice(start, start + _ROWS_QUANTIZED) for start in range(0, len(vectors), _ROWS_QUANTIZED)]
    if ranges is None and precision.endswith("int8") and len(vectors):
        if len(vectors) == 1:
            raise InputError("--precision: expected --calibration or at least two texts, found one text")
        ends = [(vectors[block].min(axis=0), vectors[block].max(axis=0)) for block in blocks]
        ranges = quantization_ranges(np.concatenate([np.stack(pair) for pair in ends]))
    arrays.append("quantized", quantize_vectors(vectors[:0], precision))
    for block in blocks:
        arrays.append("quantized", quantize_vectors(vectors[block], precision, ranges))
    return arrays.read("quantized")


def _write_sparse(path: str, vectors: Iterable[Any], size: int) -> tuple[int, int]:
    """Write CSR arrays of one row each as one array, in constant memory; return the numbers of rows and weights."""
    import numpy as np

    with _arrays_on_disk() as arrays:
        arrays.append("data", np.zeros(0, "<f4"))
        arrays.append("indices", np.zeros(0, "<i4"))
        starts = [0]
        for vector in vectors:
            arrays.append("data", vector.data)
            arrays.append("indices", vector.indices)
            starts.append(starts[-1] + vector.nnz)
        shape, indptr = np.array([len(starts) - 1, size], "<i8"), np.array(starts, "<i8")
        data, indices = arrays.read("data"), arrays.read("indices")
        _write_archive(path, format=b"csr", shape=shape, _is_array=True, data=data, indices=indices, indptr=indptr)
    return len(starts) - 1, starts[-1]


def _write_multi_vector(
    path: str, texts: Iterable[Any], more: Callable[[], dict[str, Any]] = dict
) -> tuple[int, int, int]:
    """Write arrays `[T, D]` as one array, in constant memory; return the numbers of texts, rows and columns.

    `more` returns further arrays of the file, by name, after all texts are read.
    """
    import numpy as np

    starts, size = [0], 0
    with _arrays_on_disk() as arrays:
        for vectors in texts:
            arrays.append("vectors", vectors.astype("<f4", copy=False))
            starts.append(starts[-1] + len(vectors))
            size = vectors.shape[1]
        written = arrays.read("vectors") if starts[1:] else np.zeros((0, 0), "<f4")
        _write_archive(path, vectors=written, starts=np.array(starts, "<i8"), **more())
    return len(starts) - 1, starts[-1], size


@contextlib.contextmanager
def _arrays_on_disk() -> Iterator["IndexWriter"]:
    """Yield a writer of arrays in temporary files, as a .npy file begins with the final number of rows."""
    from bert_jax import storage
    from bert_jax.tasks.embedding.index_files import IndexWriter

    with tempfile.TemporaryDirectory() as directory:
        arrays = IndexWriter(storage.Path(directory))
        yield arrays
        arrays.close_files()


def _write_archive(path: str, **arrays: Any) -> None:
    """Write a .npz of arrays by name."""
    import numpy as np

    from bert_jax import storage

    with storage.open_binary_atomically(path) as file:
        np.savez(file, **arrays)


def _print_dense(texts: list[str], vectors: Any, similarity: str) -> None:
    """Print the first four numbers of each vector and, for up to _MOST_COMPARED texts, their similarities."""
    from bert_jax.inference.similarity import similarities

    shown = [(str(i), text, " ".join(f"{x: .4f}" for x in vector[:4]) + " ...")
            for i, (text, vector) in enumerate(zip(texts, vectors, strict=True), 1)]  # fmt: skip
    print_table(f"{vectors.shape[1]} dimensions", ("", "text", "vector"), shown)
    if 1 < len(texts) <= _MOST_COMPARED:
        alike = similarities(similarity, vectors, vectors)
        names = [str(i) for i in range(1, len(texts) + 1)]
        rows = [(name, *(f"{x:.3f}" for x in row)) for name, row in zip(names, alike, strict=True)]
        print_table(f"{similarity} similarity", ("", *names), rows)
