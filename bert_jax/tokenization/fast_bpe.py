"""The tokenizers of PhoBERT and BERTweet: fastBPE, from `vocab.txt` and `bpe.codes`."""

import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tokenizers

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.storage import PathLike
from bert_jax.tokenization.interface import Encoded, SpecialIds, Tokenizer, check_unicode
from bert_jax.tokenization.layout import RowLayout
from bert_jax.tokenization.names import CODES_FILE, ROBERTA_SPECIALS
from bert_jax.tokenization.saving import saved_settings
from bert_jax.tokenization.settings import NO_TOKEN_TYPES, TokenizerFiles, max_length_of, named_specials

_VOCABULARY_FILE = "vocab.txt"
_FIRST = ("cls", "pad", "sep", "unk")  # roles of the tokens with ids 0 to 3
_JOINER = "@@"  # suffix of a token that the next token continues
_END = "</w>"  # suffix of the last symbol of a word in `bpe.codes`
_WORD = re.compile(r"\S+\n?")  # a newline belongs to the word before it, as in transformers
_WORDS_REMEMBERED = 1 << 17


class FastBpeTokenizer(Tokenizer):
    """A Tokenizer by byte-pair encoding of words between spaces (Sennrich et al. 2016, arXiv:1508.07909).

    Ids are those of fairseq: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the tokens of `vocab.txt`, then `<mask>`.
    Rows are laid out as in RoBERTa. A token does not say whether it begins a word, so `is_continuation` is True for all
    tokens but the special ones.

    Args:
        vocabulary: the content of `vocab.txt`: a token and its count in each line.
        codes: the content of `bpe.codes`: two symbols to merge and an optional count per line, in order of priority.
        files: contents of the files beside these two: settings and added tokens.

    Raises:
        InputError: a line of the vocabulary or of the codes is invalid.
    """

    def __init__(self, vocabulary: str, codes: str, files: TokenizerFiles | None = None):
        self._contents = {_VOCABULARY_FILE: vocabulary, CODES_FILE: codes}
        self._files = files or TokenizerFiles()
        self._settings = {"tokenizer_class": "PhobertTokenizer", **NO_TOKEN_TYPES, **self._files.settings}
        self.lowercase = bool(self._settings.get("do_lower_case", False))
        special = named_specials(ROBERTA_SPECIALS, self._settings)
        ids = {special[role]: i for i, role in enumerate(_FIRST)}
        for token in _tokens(vocabulary):
            ids[token] = len(ids)
        self._model_ids = dict(ids)
        self._ranks = {pair: rank for rank, pair in enumerate(_merges(codes))}
        described = [self._files.added[i] for i in sorted(self._files.added)] + list(self._files.further)
        added = {token: tokenizers.AddedToken(token, special=True) for token in special.values()}
        self._added = added | {token.content: token for token in described}
        for token in self._added:
            ids.setdefault(token, len(ids))
        pieces = [""] * (max(ids.values()) + 1)
        for piece, i in ids.items():
            pieces[i] = piece
        super().__init__(
            pieces,
            SpecialIds(**{role: ids[token] for role, token in special.items()}),
            np.ones(len(pieces), np.bool_),
            max_length_of(self._settings),
            RowLayout.roberta(ids[special["cls"]], ids[special["sep"]]),
            self._settings.get("truncation_side", "right"),
        )
        self._roles = {f"{role}_token": token for role, token in special.items()}
        self._ids |= ids  # as in transformers, a token that `vocab.txt` repeats has its last id
        self._hidden_ids = {ids[content] for content, token in self._added.items() if token.special}
        longest_first = sorted(self._added, key=len, reverse=True)
        self._added_pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self._symbols_of = functools.lru_cache(_WORDS_REMEMBERED)(self._merged)

    def __reduce__(self) -> tuple[type["FastBpeTokenizer"], tuple[str, str, TokenizerFiles]]:
        return FastBpeTokenizer, (self._contents[_VOCABULARY_FILE], self._contents[CODES_FILE], self._files)

    @property
    def saved_files(self) -> tuple[str, ...]:
        return _VOCABULARY_FILE, CODES_FILE, "tokenizer_config.json", "special_tokens_map.json"

    def encode_batch(self, texts: Sequence[str], parse_special: bool = True) -> list[list[int]]:
        check_unicode(texts)
        return [[i for i, _, _ in self._encoded(text, parse_special)] for text in texts]

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        check_unicode(texts)
        rows = [list(self._encoded(text, True)) for text in texts]
        return [([i for i, _, _ in row], [(start, end) for _, start, end in row]) for row in rows]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        kept = (int(i) for i in ids if not (skip_special_tokens and int(i) in self._hidden_ids))
        return " ".join(self.pieces[i] for i in kept).replace(f"{_JOINER} ", "").strip()

    def lowercased(self) -> "FastBpeTokenizer":
        files = TokenizerFiles(self._settings | {"do_lower_case": True}, self._files.added, self._files.further)
        return FastBpeTokenizer(self._contents[_VOCABULARY_FILE], self._contents[CODES_FILE], files)

    def save(self, directory: PathLike) -> None:
        directory = storage.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        settings = saved_settings(self._settings, self._roles)
        settings["added_tokens_decoder"] = {
            str(self._ids[content]): token.__getstate__() for content, token in self._added.items()
        }
        for name, content in self._contents.items():
            storage.write_atomically(directory / name, content)
        storage.write_atomically(directory / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")
        storage.write_atomically(directory / "special_tokens_map.json", json.dumps(self._roles, indent=2) + "\n")

    def _encoded(self, text: str, parse_special: bool) -> Iterator[tuple[int, int, int]]:
        """Yield the id and the character range of each token."""
        is_plain = not parse_special or self._settings.get("split_special_tokens")
        start = 0
        for part in [text] if is_plain else self._added_pattern.split(text):
            if not is_plain and part in self._added:
                yield self._ids[part], start, start + len(part)
            else:
                for word in _WORD.finditer(part):
                    yield from self._of_word(word[0], start + word.start())
            start += len(part)

    def _of_word(self, word: str, start: int) -> Iterator[tuple[int, int, int]]:
        # Lower-case letter by letter, so that character ranges stay valid ("\u0130".lower() has two characters).
        lowered = "".join(c if len(c.lower()) != 1 else c.lower() for c in word) if self.lowercase else word
        symbols = self._symbols_of(lowered)
        for number, symbol in enumerate(symbols, 1):
            token = symbol if number == len(symbols) else f"{symbol}{_JOINER}"
            yield self._model_ids.get(token, self.unk_id), start, start + len(symbol)
            start += len(symbol)

    def _merged(self, word: str) -> tuple[str, ...]:
        """Return the symbols of a word after all merges; each step merges all occurrences of the top-priority pair."""
        symbols = [*word[:-1], word[-1] + _END]
        while len(symbols) > 1:
            known = [pair for pair in itertools.pairwise(symbols) if pair in self._ranks]
            if not known:
                break
            first, second = min(known, key=self._ranks.__getitem__)
            merged: list[str] = []
            for symbol in symbols:
                if merged and (merged[-1], symbol) == (first, second):
                    merged[-1] = first + second
                else:
                    merged.append(symbol)
            symbols = merged
        symbols[-1] = symbols[-1].removesuffix(_END)
        return tuple(symbols)


def _tokens(vocabulary: str) -> Iterator[str]:
    for number, line in enumerate(vocabulary.removesuffix("\n").split("\n"), 1):
        token, space, _ = line.strip().rpartition(" ")
        if not space:
            raise InputError(f"line {number}: expected a token and its count, found {line!r}")
        yield token


def _merges(codes: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(codes.removesuffix("\n").split("\n") if codes else (), 1):
        parts = line.split()
        if len(parts) not in (2, 3):
            raise InputError(f"{CODES_FILE}: line {number}: expected two symbols and a count, found {line!r}")
        yield parts[0], parts[1]
