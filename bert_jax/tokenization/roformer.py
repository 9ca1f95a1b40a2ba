"""The tokenizer of Chinese RoFormers: words of rjieba, and WordPiece for words that the vocabulary lacks."""

import functools
from collections.abc import Collection, Sequence
from typing import Any

import tokenizers

from bert_jax.errors import InputError
from bert_jax.extras import how_to_install
from bert_jax.tokenization.added_tokens import add_tokens_of_files
from bert_jax.tokenization.backends import sep_and_cls, word_piece_backend
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.names import WORD_PIECE_SPECIALS
from bert_jax.tokenization.settings import TokenizerFiles, named_specials

_MAX_CHARS_PER_WORD = 100  # longer words are unknown, as in transformers


class RoFormerTokenizer(BackendTokenizer):
    """A `BackendTokenizer`, in which rjieba segments words in place of the backend's pre_tokenizer."""

    _ids_of_word = None  # the words depend on the text around them

    @functools.cached_property
    def _words(self) -> tokenizers.pre_tokenizers.PreTokenizer:
        vocabulary = frozenset(self._backend.get_vocab(with_added_tokens=False))
        return tokenizers.pre_tokenizers.PreTokenizer.custom(_RjiebaWords(vocabulary))

    @functools.cached_property
    def _encoders(self) -> dict[bool, tokenizers.Tokenizer]:
        """Return copies that split words by rjieba; the backend does not, as a custom pre_tokenizer cannot be saved."""
        encoders = {}
        for parse_special, backend in ((True, self._backend), (False, self._plain_backend)):
            encoders[parse_special] = tokenizers.Tokenizer.from_str(backend.to_str())
            encoders[parse_special].encode_special_tokens = backend.encode_special_tokens
            encoders[parse_special].pre_tokenizer = self._words
        return encoders

    def _encoder(self, parse_special: bool) -> tokenizers.Tokenizer:
        return self._encoders[parse_special]


class _RjiebaWords:
    """A custom pre_tokenizer: words of rjieba; words that the vocabulary lacks are split around CJK ideographs."""

    def __init__(self, vocabulary: Collection[str]):
        self._vocabulary = vocabulary
        self._apart = tokenizers.normalizers.BertNormalizer(
            clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
        )
        self._segment = _rjieba().tokenize

    def pre_tokenize(self, text: tokenizers.PreTokenizedString) -> None:
        text.split(self._split)

    def _split(self, number: int, text: tokenizers.NormalizedString) -> list[tokenizers.NormalizedString]:
        words = []
        for word, start, end in self._segment(str(text), hmm=False):
            if word in self._vocabulary:
                words.append(_part(text, start, end))
                continue
            for part in self._apart.normalize_str(word).split():
                words.append(_part(text, start, start + len(part)))
                start += len(part)
        return words


def _part(text: tokenizers.NormalizedString, start: int, end: int) -> tokenizers.NormalizedString:
    part = text[start:end]
    assert part is not None
    return part


def _rjieba() -> Any:
    try:
        import rjieba
    except ImportError:
        message = "expected the package rjieba, which segments the words of RoFormerTokenizer, found none"
        raise InputError(f"{message}: {how_to_install('rjieba')}") from None
    return rjieba


def roformer(pieces: Sequence[str], files: TokenizerFiles) -> RoFormerTokenizer:
    """Return RoFormer's tokenizer over its vocabulary, whose words may have several ideographs.

    Args:
        pieces: the vocabulary in the order of its ids; "##" marks tokens that continue a word.
        files: contents of the files beside the vocabulary.

    Raises:
        InputError: a special token is missing, or the package rjieba is not installed.
    """
    _rjieba()
    lowercase = files.settings.get("do_lower_case", True)
    named = named_specials(WORD_PIECE_SPECIALS, files.settings)
    backend = word_piece_backend(pieces, named["unk"], _MAX_CHARS_PER_WORD)
    backend.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=False,
        strip_accents=files.settings.get("strip_accents"),
        lowercase=lowercase,
    )
    special = add_tokens_of_files(backend, named, files)
    backend.post_processor = tokenizers.processors.BertProcessing(*sep_and_cls(special, backend))
    settings = {**files.settings, "tokenizer_class": "RoFormerTokenizer", "do_lower_case": lowercase}
    return RoFormerTokenizer(backend, special, settings)
