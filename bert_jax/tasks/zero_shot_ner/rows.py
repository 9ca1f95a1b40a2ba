"""The rows of a GLiNER: the names of entity types, each behind a special token, and the words of a text."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.config.gliner import GlinerConfig
from bert_jax.errors import InputError, printable
from bert_jax.tokenization import Tokenizer

# Words as in words_splitter_type `whitespace` of github.com/urchade/GLiNER.
_WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")


class TypePrompt(NamedTuple):
    """The beginning of a row: special tokens and the names of entity types.

    Attributes:
        ids: the token ids, with the special tokens before the text.
        positions: the position of each type (one of its tokens).
    """

    ids: tuple[int, ...]
    positions: tuple[int, ...]


class WordWindow(NamedTuple):
    """A window of a text's words, and the words whose spans are taken from this window: two half-open ranges."""

    start: int
    stop: int
    own_start: int
    own_stop: int


class GlinerRow(NamedTuple):
    """A row of a GLiNER.

    Attributes:
        ids: the token ids.
        word_positions: the position of each word (one of its tokens).
        type_positions: the position of each type (one of its tokens).
    """

    ids: list[int]
    word_positions: list[int]
    type_positions: tuple[int, ...]


def word_ranges(text: str) -> list[tuple[int, int]]:
    """Return the character range [start, end) of each word of a text; each punctuation mark is a word."""
    return [match.span() for match in _WORD.finditer(text)]


def check_types(types: Sequence[str], where: str = "labels") -> tuple[str, ...]:
    """Return names of entity types as a tuple.

    Raises:
        InputError: there are no names, a name is blank or not a string, or a name occurs twice.
    """
    names = tuple(types)
    if not names:
        raise InputError(f"{where}: expected at least one entity type, found none")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"{where}: expected names of entity types, found {printable(repr(name), 60)}")
        if names.count(name) > 1:
            raise InputError(f"{where}: expected each entity type once, found {printable(name, 60)!r} twice")
    return names


class RowMaker:
    """Builder of the rows of a GLiNER.

    Args:
        tokenizer: the tokenizer, with the special tokens of the prompts.
        config: the settings of prompts and words.

    Raises:
        InputError: the tokenizer lacks a special token, has another id for it, or begins rows without one.
    """

    def __init__(self, tokenizer: Tokenizer, config: GlinerConfig):
        self.tokenizer, self.config, self.layout = tokenizer, config, tokenizer.layout
        token_ids = {token: tokenizer.token_to_id(token) for token in (config.ent_token, config.sep_token)}
        for token, i in token_ids.items():
            if i is None:
                raise InputError(f"expected a tokenizer with the special token {printable(token, 40)!r}, found none")
        self._ent, self._sep = (i or 0 for i in token_ids.values())
        if config.class_token_index not in (-1, self._ent):
            raise InputError(
                f"class_token_index: expected {self._ent}, the id of {printable(config.ent_token, 40)!r} in the "
                f"tokenizer, found {config.class_token_index}"
            )
        if not self.layout.start:  # position 0 means padding
            raise InputError("expected a tokenizer whose rows begin with a special token, found one without")
        self._names: dict[str, list[int]] = {}

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each word; a word may have none."""
        return self.tokenizer.encode_batch(words, parse_special=False) if words else []

    def prompt(self, types: Sequence[str]) -> TypePrompt:
        """Return the beginning of a row for these entity types.

        Raises:
            InputError: the tokenizer has no token for a name.
        """
        new = [name for name in types if name not in self._names]
        self._names |= zip(new, self.encode_words(new), strict=True)
        ids, positions = [*self.layout.start], []
        for name in types:
            if not self._names[name]:
                raise InputError(f"expected names of entity types that have tokens, found {printable(repr(name), 60)}")
            positions.append(len(ids) + (not self.config.embed_ent_token))
            ids += [self._ent, *self._names[name]]
        return TypePrompt((*ids, self._sep), tuple(positions))

    def room(self, prompt: TypePrompt, max_length: int) -> int:
        """Return the number of tokens of a text that fit into a row of `max_length` tokens.

        Raises:
            InputError: no token fits.
        """
        room = max_length - len(prompt.ids) - len(self.layout.end)
        if room < 1:
            raise InputError(
                f"expected entity types whose names leave room for a text in {max_length} tokens, found "
                f"{len(prompt.positions)} types of {len(prompt.ids)} tokens"
            )
        return room

    def row(self, prompt: TypePrompt, words: Sequence[Sequence[int]], max_length: int) -> GlinerRow:
        """Return the row of a text's words, each with at least one token; tokens over `max_length` are left out.

        Args:
            prompt: the beginning of the row.
            words: the token ids of each word.
            max_length: maximum number of tokens in the row.
        """
        ids, positions = [*prompt.ids], []
        limit = max_length - len(self.layout.end)
        for word in words:
            if len(ids) >= limit:
                break
            kept = word[: limit - len(ids)]
            positions.append(len(ids) if self.config.subtoken_pooling == "first" else len(ids) + len(kept) - 1)
            ids += kept
        return GlinerRow([*ids, *self.layout.end], positions, prompt.positions)


def word_windows(lengths: Sequence[int], room: int, config: GlinerConfig) -> list[WordWindow]:
    """Cut the words of a text into overlapping windows of at most `room` tokens and `config.max_len` words.

    Each word is owned by one window. A span is taken from the window that owns its first word. Windows overlap so that
    this window holds the whole of even the longest span, if `room` allows it.

    Args:
        lengths: number of tokens of each word.
        room: maximum number of tokens in a window; a longer word has a window of its own.
        config: limits of words and of spans.
    """
    windows, start, own_start = [], 0, 0
    while start < len(lengths):
        stop, tokens = start, 0
        while (
            stop < len(lengths) and stop - start < config.max_len and (stop == start or tokens + lengths[stop] <= room)
        ):
            tokens += lengths[stop]
            stop += 1
        if stop == len(lengths):
            windows.append(WordWindow(start, stop, own_start, stop))
            break
        shared = min(max((stop - start) // 4, 2 * config.max_width), (stop - start) // 2)
        following = max(start + 1, stop - shared)
        border = min(max(following, stop - max(shared // 2, config.max_width)), stop)
        border = max(border, own_start)
        windows.append(WordWindow(start, stop, own_start, border))
        start, own_start = following, border
    return windows
