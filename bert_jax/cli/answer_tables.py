"""Write the answers of verbs as Parquet, in columns whose types do not depend on the answers; needs pyarrow."""

import argparse
import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bert_jax.errors import printable_json

_ROWS = 4096  # rows of a group
_Columns = Mapping[str, Any]  # name -> type: a name of Arrow's, a dict of fields, or a list of the type of its items
_Write = Callable[[Mapping[str, Any]], object]

_SCORED = {"score": "double"}
_SPAN = {"start": "int64", "end": "int64"}
_TOKEN = {"token": "int64", "token_str": "string", "sequence": "string"}
_ANSWERS: dict[str, _Columns] = {
    "fill-mask": {"text": "string", "masks": [[_SCORED | _TOKEN]]},
    "classify": {"text": "string", "scores": [{"label": "string"} | _SCORED]},
    "answer": {"question": "string", "answers": [{"answer": "string"} | _SCORED | _SPAN]},
    "text2text": {"text": "string", "generated_text": "string"},
    "generate": {"prompt": "string", "answers": [{"generated_text": "string", "num_tokens": "int64"} | _SCORED]},
    "rerank": {"query": "string", "answers": [{"corpus_id": "int64", "text": "string"} | _SCORED]},
}
_ENTITY = {"entity_group": "string", "word": "string"} | _SCORED | _SPAN
_TOKEN_ENTITY = {"entity": "string", "word": "string", "index": "int64"} | _SCORED | _SPAN
_NAMED_ENTITY = {"label": "string", "text": "string"} | _SCORED | _SPAN
_LINKED = {"text": "string", "type": "string"} | _SPAN
_RELATION = {"head": _LINKED, "relation": "string", "tail": _LINKED} | _SCORED
_SCORES = {"text": "string"} | _SCORED | {"num_tokens": "int64", "pseudo_perplexity": "double"}
_FILLED_IN = {"text": "string", "sequence": "string", "tokens": ["string"]} | _SCORED
_SCORED_TOKEN = {"word": "string", "token": "int64"} | _SCORED | _SPAN
# Head -> the column of its vectors; the type of a dense vector depends on its size.
SPARSE, MULTI_VECTOR = [{"token": "string", "weight": "float"}], [["float"]]


def answer_columns(verb: str, args: argparse.Namespace) -> _Columns:
    """Return the columns of the answers of a verb with some arguments."""
    if verb == "score":
        return _SCORES | ({"tokens": [_SCORED_TOKEN]} if args.tokens else {})
    if verb == "relations":
        return {"text": "string", "relations": [_RELATION]}
    if verb == "generate" and args.fill:
        return _FILLED_IN
    if verb != "tag":
        return _ANSWERS[verb]
    entity = _NAMED_ENTITY if args.labels is not None else _TOKEN_ENTITY if args.strategy == "none" else _ENTITY
    return {"text": "string", "entities": [entity]}


def is_parquet(path: object) -> bool:
    """Return whether answers are written to a file as Parquet, and not as JSON lines or arrays."""
    return str(path).lower().endswith(".parquet")


@contextlib.contextmanager
def open_answers(path: Any, columns: _Columns) -> Iterator[_Write]:
    """Open a file of answers, Parquet or JSON lines, and yield a function that writes one of them.

    The file appears when the block ends, or not at all.

    Raises:
        InputError: it is Parquet and pyarrow is not installed.
    """
    from bert_jax import storage

    if is_parquet(path):
        with _open_parquet(path, columns) as write:
            yield write
        return
    with storage.open_atomically(path) as file:
        yield lambda answer: file.write(printable_json(answer) + "\n")


@contextlib.contextmanager
def _open_parquet(path: Any, columns: _Columns) -> Iterator[_Write]:
    from bert_jax import storage
    from bert_jax.data.parquet_files import import_pyarrow

    pyarrow = import_pyarrow(path)
    schema = pyarrow.schema([(name, _arrow_type(kind, pyarrow)) for name, kind in columns.items()])
    rows: list[Mapping[str, Any]] = []
    with (
        storage.open_binary_atomically(path) as file,
        importlib.import_module("pyarrow.parquet").ParquetWriter(file, schema) as writer,
    ):

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            rows.clear()

        def write(answer: Mapping[str, Any]) -> None:
            rows.append(answer)
            if len(rows) == _ROWS:
                flush()

        yield write
        flush()


def _arrow_type(kind: Any, pyarrow: Any) -> Any:
    if isinstance(kind, dict):
        return pyarrow.struct([(name, _arrow_type(field, pyarrow)) for name, field in kind.items()])
    if isinstance(kind, list):  # of any size, or of that in its second item
        return pyarrow.list_(_arrow_type(kind[0], pyarrow), *kind[1:])
    return pyarrow.type_for_alias(kind)
