"""Stream texts line by line from files or stdin in constant memory, and show progress."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import IO, Any

from bert_jax.cli.output import complain
from bert_jax.errors import InputError

JSON_LINES = (".jsonl", ".ndjson")


def add_flags(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare the arguments for a verb's texts, which come from the command line, --file or stdin."""
    add = parser.add_argument
    add(
        "texts",
        metavar=what.upper(),
        nargs="*",
        help=f"a {what}; if none is given, {what}s are read from --file or stdin",
    )
    add("--file", metavar="FILE",
        help=f"file with one {what} per line (.jsonl: one JSON object per line; .parquet: one row); may be compressed; "
        "'-' reads stdin")  # fmt: skip
    add(
        "--jsonl",
        action="store_true",
        help="parse each line as a JSON object, even if the input is stdin or a file without the suffix .jsonl",
    )
    add(
        "--field",
        default="text",
        metavar="NAME",
        help=f"name of the JSON field or the column that holds the {what} (default: %(default)s)",
    )
    add("--skip", action="store_true", help=f"skip invalid {what}s and report each (default: stop at the first)")


class Texts:
    """The input texts of a verb: from the command line, a file or stdin.

    A blank line is an empty text, but in JSON lines blank lines are ignored.

    Attributes:
        skipped: number of invalid texts that were skipped.
    """

    def __init__(self, args: argparse.Namespace, may_be_empty: bool = False):
        if args.texts and args.file:
            raise InputError("expected texts or --file, found both")
        if not args.texts and not args.file and sys.stdin.isatty():
            raise InputError("expected texts, --file FILE or lines on stdin, found none")
        self._given, self._file = args.texts, None if args.file == "-" else args.file
        self._where = self._file or "stdin"
        self._field, self._skip = args.field, args.skip
        self._has_rows = bool(self._file) and _has_rows(self._where)
        self._may_be_empty = may_be_empty
        self._json = args.jsonl or _plain_name(self._where).endswith(JSON_LINES)
        self.skipped = 0

    def skip(self, error: InputError) -> None:
        """Report an invalid text. Raises the error unless invalid texts are skipped."""
        if not self._skip:
            raise error
        complain(f"bert-jax: {error}; skipped")
        self.skipped += 1

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield (place, text) for each text; the place is for error messages."""
        from bert_jax.data.invalid_rows import check_utf8, place

        for number, text in enumerate(self._given, 1):
            where = f"text {number} of the command line"
            check_utf8(where, text)
            yield where, text
        if self._given:
            return
        has_texts = False
        for number, line in self._rows() if self._has_rows else self._lines():
            where = place(self._where, number)
            try:
                text = self._text(where, line)
            except InputError as error:
                self.skip(error)
                continue
            if text is not None:
                has_texts = True
                yield where, text
        if not has_texts and not self._may_be_empty:
            raise InputError(f"{self._where}: expected texts, found none")

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each line, counted from 1, and the line without its line break."""
        from bert_jax.data.lines import stream_lines
        from bert_jax.data.signatures import HEAD_BYTES, check_is_text

        with self._opened() as file:
            for number, line in stream_lines(file, self._where):
                if number == 1:
                    check_is_text(self._where, line[:HEAD_BYTES])
                yield number, line.removesuffix(b"\n").removesuffix(b"\r")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        from bert_jax import storage

        if not self._file:
            yield sys.stdin.buffer
            return
        path = storage.existing(self._file)
        try:
            with storage.open_decompressed(path) as (file, _):
                yield file
        except storage.DamagedError as error:
            raise InputError(f"{path}: {error}") from None

    def _rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number of each row of a table, counted from 1, and its values by column name."""
        from bert_jax.data.parquet_files import read_parquet
        from bert_jax.data.table_formats import has_registered_format, registered_rows

        if has_registered_format(str(self._file)):
            yield from registered_rows(str(self._file))
            return
        for row in read_parquet(str(self._file), (self._field,)):
            yield row.number, row.values

    def _text(self, where: str, line: bytes | dict[str, Any]) -> str | None:
        """Return the text of a line or of a row, or None for a blank line of a JSON lines file."""
        from bert_jax.data.invalid_rows import check_utf8
        from bert_jax.data.lines import parse_object

        if isinstance(line, dict):
            return self._of_field(where, line)
        text = line.decode("utf-8", "surrogateescape")
        check_utf8(where, text)
        if not self._json:
            return text
        if not text.strip():
            return None
        return self._of_field(where, parse_object(where, text))

    def _of_field(self, where: str, row: dict[str, Any]) -> str:
        from bert_jax.data.invalid_rows import check_utf8

        if self._field not in row:
            content = f"the fields {', '.join(row)[:80]}"
        elif not isinstance(row[self._field], str):
            content = repr(row[self._field])[:80]
        else:
            check_utf8(where, row[self._field])
            return row[self._field]
        raise InputError(f"{where}: expected an object with a text in {self._field!r}, found {content}")


def _has_rows(name: str) -> bool:
    from bert_jax.data.table_formats import has_registered_format

    return name.lower().endswith(".parquet") or has_registered_format(name)


def _plain_name(name: str) -> str:
    from bert_jax import storage

    return storage.without_compression(name).lower()


@contextlib.contextmanager
def counting(shown: bool) -> Iterator[Any]:
    """Yield a function that adds a number of texts to a counter on stderr.

    The counter is shown only if `shown`, stderr is a terminal and stdout is not.
    """
    if not shown or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    columns = SpinnerColumn(), "{task.completed:,.0f} texts", TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)
        yield lambda count: progress.advance(task, count)
