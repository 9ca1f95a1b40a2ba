"""Texts in, one line at a time, so that neither a file nor a pipe is ever held whole; and how far one has come."""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import IO, Any

from bert_jax.cli.output import complain
from bert_jax.errors import InputError

JSON_LINES = (".jsonl", ".ndjson")


def add_flags(parser: argparse.ArgumentParser, what: str) -> None:
    """Declares where the texts of a verb come from."""
    add = parser.add_argument
    add("texts", metavar=what.upper(), nargs="*", help=f"a {what}; none means one a line from --file or stdin")
    add("--file", metavar="FILE", help=f"of {what}s, maybe compressed: one a line; of .jsonl, objects; - is stdin")
    add("--jsonl", action="store_true", help="lines are JSON objects, whatever the file's name; of stdin too")
    add("--field", default="text", metavar="NAME", help=f"of an object: its {what} (default: %(default)s)")
    add("--skip", action="store_true", help="name lines that cannot be read, and go on; otherwise the first is the end")


class Texts:
    """The texts of a command line, of its file, or of stdin; a blank line is an empty text, but not of JSON lines.

    Attributes:
        passed_over: lines that could not be read.
    """

    def __init__(self, args: argparse.Namespace):
        if args.texts and args.file:
            raise InputError("give texts or --file, not both")
        if not args.texts and not args.file and sys.stdin.isatty():
            raise InputError("no texts: give some, or --file FILE, or pipe lines in")
        self._given, self._file = args.texts, None if args.file == "-" else args.file
        self._where = self._file or "stdin"
        self._field, self._skip = args.field, args.skip
        self._json = args.jsonl or _plain_name(self._where).endswith(JSON_LINES)
        self.passed_over = 0

    def __iter__(self) -> Iterator[str]:
        if self._given:
            yield from self._given
            return
        found = False
        for number, line in self._lines():
            try:
                text = self._text(line)
            except InputError as error:
                message = f"{self._where}: line {number}: {error}"
                if not self._skip:
                    raise InputError(message) from None
                complain(f"bert-jax: {message}; passed over")
                self.passed_over += 1
                continue
            if text is not None:
                found = True
                yield text
        if not found:
            raise InputError(f"{self._where}: expected texts, found none")

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Each line without its end, and its number from 1."""
        with self._opened() as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
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

    def _text(self, line: bytes) -> str | None:
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            byte = line[error.start]
            raise InputError(f"expected UTF-8 text, found byte 0x{byte:02x} at offset {error.start}") from None
        if not self._json:
            return text
        if not text.strip():
            return None
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"expected a JSON object, found {str(error)[:80]}") from None
        if not isinstance(row, dict):
            found = type(row).__name__
        elif self._field not in row:
            found = f"the fields {', '.join(row)[:80]}"
        elif not isinstance(row[self._field], str):
            found = repr(row[self._field])[:80]
        else:
            return row[self._field]
        raise InputError(f"expected an object with a text in {self._field!r}, found {found}")


def _plain_name(name: str) -> str:
    from bert_jax import storage

    return storage.without_compression(name).lower()


@contextlib.contextmanager
def counting(shown: bool) -> Iterator[Any]:
    """Yields what is called with the number of further texts that are done, to show it on stderr where that is a
    terminal and the answers are not."""
    if not shown or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    columns = SpinnerColumn(), "{task.completed:,.0f} texts", TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)
        yield lambda count: progress.advance(task, count)
