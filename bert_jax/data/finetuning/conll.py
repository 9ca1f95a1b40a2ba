"""Read CoNLL files (one word per line with its tags, a blank line after a sentence) and CoNLL-U.

CoNLL-U (https://universaldependencies.org/format.html) has ten tab-separated columns, and comments that begin with `#`.
Its lines of multiword tokens (`1-2`) and of empty nodes (`1.1`) do not count: each word has a line of its own.
`SpaceAfter=No` in MISC says that a word follows without a space.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bert_jax import storage
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_utf8, place
from bert_jax.data.lines import numbered_lines
from bert_jax.errors import InputError, did_you_mean

CONLL_U_FORMAT = ".conllu"
CONLL_FORMATS = (".conll", CONLL_U_FORMAT, ".txt", ".tsv", ".iob", ".iob2", ".bio")
CONLL_U_COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
MAX_WORDS = 100_000  # words in a sentence: a longer one means that blank lines are missing
_MAX_CHARACTERS = 16 << 20  # characters in the lines of a sentence
_DOCUMENT = "-DOCSTART-"  # the line between two documents
_LOOKED_AT = 1000  # lines searched for the first that is not a comment
_ID = re.compile(r"\d+")
_RANGE = re.compile(r"(\d+)-(\d+)")  # id of a multiword token
_EMPTY_ID = re.compile(r"\d+\.\d+")  # id of an empty node
_MOST_DIGITS = 6  # digits in a word's number
_SETTING = re.compile(r"#\s*[\w.:-]+\s*=(\s|$)")  # "# sent_id = 3"
_REMARK = re.compile(r"#(\s|$|begin |end )")

Lines = list[tuple[int, str]]  # (number, line) of each line of a sentence
_Block = tuple[Lines, list[str]]  # lines of a sentence, and all lines since the end of the previous one


class _Shape(NamedTuple):
    """The layout of a file's lines.

    Attributes:
        is_u: whether the file is CoNLL-U.
        first: the number of the line from which the layout was detected.
        width: the number of columns of every line.
        word, tag: the columns of the words and of their tags, from 0.
    """

    is_u: bool
    first: int
    width: int
    word: int
    tag: int

    def fields(self, line: str) -> list[str]:
        return line.split("\t") if self.is_u else _fields(line)

    def is_comment(self, line: str, opens: bool) -> bool:
        """Return whether a line is a comment; `opens` says whether it precedes the first word of a sentence."""
        if self.is_u or not opens or not line.startswith("#"):
            return self.is_u and line.startswith("#")
        return bool(_SETTING.match(line) or (_REMARK.match(line) and len(_fields(line)) != self.width))


class Sentence(NamedTuple):
    """A sentence of tagged words.

    Attributes:
        line: its first line (1-based; for TFDS, its index).
        words: its words.
        tags: their tags; None where not read.
        joined: the indices of words that follow the previous word without a space.
        source: its lines in the file with line ends, after any lines before it that belong to no sentence; () where
            lines are not kept.
    """

    line: int
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    joined: tuple[int, ...] = ()
    source: tuple[str, ...] = ()


def read_conll(
    spec: str, word_column: str, tag_column: str, tagged: bool, bad: InvalidRows, keep_lines: bool = False
) -> Iterator[Sentence]:
    """Yield the sentences of a CoNLL file in order.

    Args:
        spec: a file of CONLL_FORMATS, possibly compressed. It is read as CoNLL-U if it is named `.conllu`, or has ten
            tab-separated columns, the first of which counts from 1.
        word_column, tag_column: numbers of columns from 0, or names of CoNLL-U's columns; "" = FORM and UPOS in
            CoNLL-U, otherwise the first and the last column.
        tagged: whether tags are read; otherwise the file needs none.
        bad: counts invalid sentences.
        keep_lines: whether sentences keep their `source`, for `fill_column`; the file must then be CoNLL-U.

    Raises:
        InputError: as `numbered_lines`; a column is missing, or a sentence has more than MAX_WORDS words.
    """
    lines = numbered_lines(spec)
    head = list(itertools.islice(_until_a_word(lines), _LOOKED_AT))
    shape = _shape(spec, head, word_column, tag_column, tagged)
    if shape:
        if keep_lines and not shape.is_u:
            raise InputError(f"{place(spec, shape.first)}: expected the ten columns of CoNLL-U, found {shape.width}")

        def sentence(block: _Block) -> Sentence:
            parsed = _sentence(spec, block[0], shape, tagged)
            return parsed._replace(source=tuple(block[1])) if keep_lines else parsed

        yield from bad.each(_with_last_lines(_blocks(spec, itertools.chain(head, lines), shape, keep_lines)), sentence)


def fill_column(source: Sequence[str], column: str, values: Iterable[str]) -> str:
    """Return the lines of a CoNLL-U sentence with one column of its words replaced and all else unchanged.

    Args:
        source: `Sentence.source`.
        column: one of CONLL_U_COLUMNS.
        values: the new values, one for each word.
    """
    number, new = CONLL_U_COLUMNS.index(column), iter(values)
    filled = []
    for line in source:
        fields = line.split("\t")
        if not _is_between(line) and not line.startswith("#") and _ID.fullmatch(fields[0]):
            end = fields[number][len(fields[number].rstrip("\r\n")) :]  # the line end, if this is the last column
            line = "\t".join([*fields[:number], next(new) + end, *fields[number + 1 :]])
        filled.append(line)
    return "".join(filled)


def _until_a_word(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the lines up to and including the first that is neither blank nor a possible comment."""
    for number, line in lines:
        yield number, line
        if not _is_between(line) and not line.startswith("#"):
            return


def _shape(spec: str, head: Lines, word_column: str, tag_column: str, tagged: bool) -> _Shape | None:
    """Detect the layout of a file from its first lines; None when they have no words."""
    numbered = [(number, line.strip("\r\n")) for number, line in head if not _is_between(line)]
    if not numbered:
        return None
    # Where all lines look like comments, they may be words.
    first, line = numbered[-1] if not numbered[-1][1].startswith("#") else numbered[0]
    named_u = storage.without_compression(spec).lower().endswith(CONLL_U_FORMAT)
    fields = line.split("\t")
    where = place(spec, first)
    if named_u and len(fields) != len(CONLL_U_COLUMNS):
        raise InputError(f"{where}: expected the {len(CONLL_U_COLUMNS)} columns of CoNLL-U, found {len(fields)}")
    is_u = named_u or (len(fields) == len(CONLL_U_COLUMNS) and fields[0] in ("1", "1-2", "0.1"))
    width = len(fields if is_u else _fields(line))
    word = _number(spec, word_column, is_u, 1 if is_u else 0)
    tag = _number(spec, tag_column, is_u, 3 if is_u else -1)
    last = max(word, tag if tagged else 0)
    if last >= width:
        raise InputError(f"{where}: expected a column {last}, found {width} columns (0 is the first)")
    if tagged and tag == -1 and width - 1 == word:
        raise InputError(f"{where}: expected a tag after the word, found {width} columns")
    return _Shape(is_u, first, width, word, tag)


def _number(spec: str, column: str, is_u: bool, usual: int) -> int:
    if not column:
        return usual
    if is_u and column.upper() in CONLL_U_COLUMNS:
        return CONLL_U_COLUMNS.index(column.upper())
    if not column.isascii() or not column.isdigit() or len(column) > 6:
        hint = did_you_mean(column.upper(), CONLL_U_COLUMNS) if is_u else ""
        raise InputError(f"{spec}: columns of a CoNLL file are numbers from 0, found {column!r}{hint}")
    return int(column)


def _blocks(spec: str, numbered: Iterator[tuple[int, str]], shape: _Shape, keep: bool) -> Iterator[_Block]:
    """Yield the lines of each sentence without line ends and comments, and, if `keep`, all raw lines up to its end.

    Lines after the last sentence become a final block without a sentence.
    """
    lines: Lines = []
    source: list[str] = []
    size = 0
    for number, raw in numbered:
        line = raw.strip("\r\n")
        if keep:
            source.append(raw)
        if _is_between(line):
            if lines:
                yield lines, source
                lines, source, size = [], [], 0
        elif not shape.is_comment(line, opens=not lines):
            lines.append((number, line))
            size += len(line)
            if len(lines) > MAX_WORDS or size > _MAX_CHARACTERS:
                found = f"{len(lines):,} lines of {size:,} characters without one"
                raise InputError(
                    f"{place(spec, lines[0][0])}: expected a blank line after each sentence, found {found}"
                )
    if lines:
        yield lines, source
    elif source:
        yield [], source


def _with_last_lines(blocks: Iterator[_Block]) -> Iterator[_Block]:
    """Yield the blocks, with any lines after the last sentence added to its block."""
    before: _Block | None = None
    for lines, source in blocks:
        if before is not None:
            if not lines:
                before = before[0], before[1] + source
                continue
            yield before
        before = lines, source
    if before is not None and before[0]:
        yield before


def _sentence(spec: str, lines: Lines, shape: _Shape, tagged: bool) -> Sentence:
    words: list[str] = []
    tags: list[str] = []
    spaces = _Spaces()
    for number, line in lines:
        where, fields = place(spec, number), shape.fields(line)
        check_utf8(where, line)
        if len(fields) != shape.width:
            message = f"{where}: expected {shape.width} columns as in line {shape.first}, found {len(fields)}"
            raise InvalidRow(message, "a wrong number of columns")
        if shape.is_u and not _is_word(where, fields, len(words), tagged, shape.tag):
            spaces.skip(fields)
            continue
        if not fields[shape.word]:
            raise InvalidRow(f"{where}: expected a word, found an empty column", "an empty word")
        if tagged and not fields[shape.tag]:
            raise InvalidRow(f"{where}: expected a tag, found an empty column", "an empty tag")
        if shape.is_u:
            spaces.add(fields)
        words.append(fields[shape.word])
        tags.append(fields[shape.tag])
    if not words:
        raise InvalidRow(f"{place(spec, lines[0][0])}: expected words, found a sentence without any", "no words")
    joined = spaces.joined() if shape.word == CONLL_U_COLUMNS.index("FORM") else ()
    return Sentence(lines[0][0], tuple(words), tuple(tags) if tagged else None, joined)


def _is_word(where: str, fields: list[str], words: int, tagged: bool, tag: int) -> bool:
    """Return whether a CoNLL-U line after `words` words is a word; False for multiword tokens and empty nodes.

    Raises:
        InvalidRow: its number is not the next one, or it has no part of speech although UPOS is read.
    """
    name = fields[0]
    if _EMPTY_ID.fullmatch(name):
        return False
    numbers = _RANGE.fullmatch(name)
    if not numbers and not _ID.fullmatch(name):
        message = f"{where}: expected the number of a word, such as 1, found {name!r}"
        raise InvalidRow(message, "a wrong word number")
    first = numbers[1] if numbers else name
    if len(first) > _MOST_DIGITS or int(first) != words + 1:
        message = f"{where}: expected the number {words + 1}, which is the next word's, found {name!r}"
        raise InvalidRow(message, "a number that is not the next word's")
    if numbers:
        return False
    if tagged and CONLL_U_COLUMNS[tag] == "UPOS" and fields[tag] == "_":
        raise InvalidRow(
            f"{where}: expected a part of speech in UPOS, found '_', which means none", "no part of speech"
        )
    return True


class _Spaces:
    """Find the words of a CoNLL-U sentence that follow the previous word without a space.

    Words of a multiword token have spaces between them, unless their forms joined together are that of the token.
    """

    def __init__(self) -> None:
        self._forms: list[str] = []
        self._after: list[bool] = []  # whether a space follows each word
        self._tokens: list[tuple[int, int, str, bool]] = []  # first word, end, form, whether a space follows

    def skip(self, fields: list[str]) -> None:
        """Add the line of a multiword token; ignore that of an empty node, which is not in the text."""
        if numbers := _RANGE.fullmatch(fields[0]):
            end = int(numbers[2][:_MOST_DIGITS])
            self._tokens.append((int(numbers[1]) - 1, end, fields[1], _space_follows(fields)))

    def add(self, fields: list[str]) -> None:
        """Add the line of a word."""
        self._forms.append(fields[1])
        self._after.append(_space_follows(fields))

    def joined(self) -> tuple[int, ...]:
        """Return the indices of the words without a space before them."""
        for first, end, form, space in self._tokens:
            parts = self._forms[first:end]
            inner = "".join(parts) != form
            self._after[first:end] = [*[inner] * (len(parts) - 1), space][: len(parts)]
        return tuple(i + 1 for i, space in enumerate(self._after[:-1]) if not space)


def _space_follows(fields: list[str]) -> bool:
    return "SpaceAfter=No" not in fields[-1].split("|")


def _is_between(line: str) -> bool:
    """Return whether a line separates sentences: a blank line or -DOCSTART-."""
    return not line.strip(" \t\r\n") or _fields(line.strip("\r\n"))[0] == _DOCUMENT


def _fields(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
