"""`BackendTokenizer`: a tokenizer of the `tokenizers` library, from any `tokenizer.json`."""

import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers

from bert_jax.errors import InputError
from bert_jax.lazy import LazyModule
from bert_jax.storage import PathLike
from bert_jax.tokenization.backends import (
    backend_of,
    continuation_pieces,
    hide_specials,
    part_of,
    pieces_in_order,
    sep_and_cls,
    words_stand_alone,
)
from bert_jax.tokenization.interface import Encoded, SpecialIds, Tokenizer, check_unicode
from bert_jax.tokenization.layout import RowLayout, layout_of
from bert_jax.tokenization.patterns import PARTS, restore_patterns
from bert_jax.tokenization.settings import max_length_of

if TYPE_CHECKING:
    from bert_jax.tokenization import saving
else:
    saving = LazyModule("bert_jax.tokenization.saving")

_WORDS_REMEMBERED = 1 << 17
_CACHED = ("_plain_backend", "_ids_of_word", "_encoders", "_words")  # not pickled: another process computes them again
LONG_TEXT = 1 << 18  # a text with more characters is encoded in parts
# Spaces that transformers' clean-up removes from decoded text; the library's decoder removes only some of them.
_CLOSED_UP = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


class BackendTokenizer(Tokenizer):
    """A Tokenizer over a `tokenizers.Tokenizer`.

    Args:
        backend: the library's tokenizer. Its post_processor defines the row layout; its padding and truncation are not
            used.
        special: special tokens by role; unk and mask may be missing.
        settings: the content of `tokenizer_config.json`, which `save` writes back. If its model_input_names lack
            token_type_ids, all tokens have type 0.
        sentencepiece_model: bytes of the original SentencePiece model, which `save` writes back.

    Raises:
        InputError: the post_processor has unknown tokens, or a layout that `RowLayout` cannot describe.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special: dict[str, str],
        settings: dict[str, Any],
        sentencepiece_model: bytes | None = None,
    ):
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        # Patterns that may take more than linear time run in a worker process, as the library cannot be interrupted.
        self._only_in_worker = restore_patterns({name: part_of(getattr(backend, name)) for name in PARTS})
        self._special = special
        self._settings = settings
        self._sentencepiece_model = sentencepiece_model
        backend.encode_special_tokens = bool(settings.get("split_special_tokens", False))
        sep, cls = sep_and_cls(special, backend)
        self._model_pieces = pieces_in_order(backend.get_vocab(with_added_tokens=False))
        ids = backend.get_vocab(with_added_tokens=True)
        pieces = pieces_in_order(ids)
        typed = has_token_types(settings)
        layout = layout_of(part_of(backend.post_processor), ids, typed)
        if layout is None:
            layout = RowLayout.bert(cls[1], sep[1])
        if not typed:
            layout = dataclasses.replace(layout, second_type=0)
        super().__init__(
            pieces,
            SpecialIds(**{role: ids[token] for role, token in special.items()}),
            np.zeros(len(pieces), np.bool_)  # all tokens are whole words
            if isinstance(backend.model, tokenizers.models.WordLevel)
            else continuation_pieces(pieces, getattr(backend.model, "continuing_subword_prefix", None)),
            max_length_of(settings),
            layout,
            settings.get("truncation_side", "right"),
        )
        self.marks_continuations = bool(getattr(backend.model, "continuing_subword_prefix", None))

    @property
    def saved_files(self) -> tuple[str, ...]:
        return "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", *self._vocabulary_files()

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """Return the library's tokenizer, which must not be changed.

        If `encode_batch` uses a worker process, strings that match nothing replace its regular expressions.
        """
        return self._backend

    def check_patterns(self) -> None:
        """Compile the regular expressions that only a worker may run. Raises InputError when that fails."""
        if self._only_in_worker:
            self._workers.start(self)

    def in_worker(self) -> "BackendTokenizer":
        if self._only_in_worker:
            content = json.loads(self._backend.to_str())
            restore_patterns(content)
            self._backend, self._only_in_worker = backend_of(content), False
            self._backend.encode_special_tokens = bool(self._settings.get("split_special_tokens", False))
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _CACHED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._backend.encode_special_tokens = bool(self._settings.get("split_special_tokens", False))

    @property
    def is_word_piece(self) -> bool:
        """Return whether the algorithm is WordPiece."""
        return isinstance(self._backend.model, tokenizers.models.WordPiece)

    @property
    def sentencepiece_model(self) -> bytes | None:
        """Return the bytes of the original SentencePiece model, if there is one."""
        return self._sentencepiece_model

    def replaced(self, backend: tokenizers.Tokenizer, sentencepiece_model: bytes | None) -> "BackendTokenizer":
        """Return a tokenizer with the special tokens and settings of this one, over another vocabulary."""
        return type(self)(backend, self._special, dict(self._settings), sentencepiece_model)

    @functools.cached_property
    def _plain_backend(self) -> tokenizers.Tokenizer:
        """Return a copy that tokenizes the names of special tokens in a text like any other characters."""
        content = json.loads(self._backend.to_str())
        if content["model"]["type"] in ("Unigram", "WordLevel"):
            hide_specials(content)
        plain = tokenizers.Tokenizer.from_str(json.dumps(content))
        plain.encode_special_tokens = True
        return plain

    def _encoder(self, parse_special: bool) -> tokenizers.Tokenizer:
        """Return the library's tokenizer that encodes texts; for `parse_special`, see `encode_batch`."""
        return self._backend if parse_special else self._plain_backend

    @functools.cached_property
    def _ids_of_word(self) -> Callable[[str], list[int]] | None:
        """Return a cached function from a word to its ids; None if the ids of a word depend on the text around it."""
        if not isinstance(self._backend.model, tokenizers.models.WordPiece):
            return None
        if not words_stand_alone(json.loads(self._plain_backend.to_str())):
            return None
        encode = self._plain_backend.encode
        return functools.lru_cache(_WORDS_REMEMBERED)(lambda word: encode(word, add_special_tokens=False).ids)

    def words(self, text: str) -> list[str]:
        """Return the words of a text, normalized, as the pre_tokenizer of the library splits them."""
        if self._only_in_worker:
            return self._workers.run(self, "words", [text])[0]
        backend = self._backend
        normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
        return (
            [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal)] if backend.pre_tokenizer else [normal]
        )

    def encode_batch(self, texts: Sequence[str], parse_special: bool = True) -> list[list[int]]:
        if self._only_in_worker:
            check_unicode(texts)
            return self._workers.run(self, "ids", texts, parse_special)
        with named_errors(texts):
            if not parse_special and (ids_of := self._ids_of_word):  # three times as fast on a whole corpus
                return [list(itertools.chain.from_iterable(map(ids_of, text.split(" ")))) for text in texts]
            backend = self._encoder(parse_special)
            if any(len(text) > LONG_TEXT for text in texts):
                return [self._encode_long(backend, text) for text in texts]
            return [e.ids for e in backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    @staticmethod
    def _encode_long(backend: Any, text: str) -> list[int]:
        """Return the ids of a long text, encoded in parts, since the library needs up to 400 bytes per character."""
        ids: list[int] = []
        start = 0
        while start < len(text):
            end = start + LONG_TEXT
            if end < len(text):
                end = max(text.rfind(" ", start + 1, end), 0) or end  # cut at a space, if there is one
            ids += backend.encode_batch_fast([text[start:end]], add_special_tokens=False)[0].ids
            start = end
        return ids

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        if self._only_in_worker:
            check_unicode(texts)
            return self._workers.run(self, "offsets", texts)
        with named_errors(texts):
            return [(e.ids, e.offsets) for e in self._encoder(True).encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        ids = [int(i) for i in ids]
        if self._only_in_worker:
            return self._workers.run(self, "text", [ids], skip_special_tokens)[0]
        text = self._backend.decode(ids, skip_special_tokens=skip_special_tokens)
        is_word_piece = isinstance(self._backend.model, tokenizers.models.WordPiece)
        is_bpe = isinstance(self._backend.model, tokenizers.models.BPE)  # byte-level BPE preserves spaces
        if self._settings.get("clean_up_tokenization_spaces", is_word_piece) and not is_bpe:
            for apart in _CLOSED_UP:
                text = text.replace(apart, apart.strip())
        return text

    def lowercased(self) -> "BackendTokenizer":
        content, settings = json.loads(self._backend.to_str()), dict(self._settings)
        normalizer = content["normalizer"]
        steps = normalizer["normalizers"] if (normalizer or {}).get("type") == "Sequence" else [normalizer]
        bert = [step for step in steps if step and step["type"] == "BertNormalizer"]
        for step in bert:  # transformers rebuilds a BertNormalizer from the settings
            if step["strip_accents"] is None:
                step["strip_accents"] = step["lowercase"]
            step["lowercase"] = True
            settings |= {"do_lower_case": True, "strip_accents": step["strip_accents"]}
        if "do_lower_case" in settings:  # transformers rebuilds ALBERT's normalizer from the settings
            settings["do_lower_case"] = True
        if not bert:
            before = [{"type": "Lowercase"}]
            content["normalizer"] = {"type": "Sequence", "normalizers": before + [step for step in steps if step]}
        backend = tokenizers.Tokenizer.from_str(json.dumps(content))
        return type(self)(backend, self._special, settings, self._sentencepiece_model)

    def save(self, directory: PathLike) -> None:
        saving.save(directory, self._json(), self._special, self._settings, self._vocabulary_files())

    def _json(self) -> str:
        """Return the content of tokenizer.json."""
        if not self._only_in_worker:
            return self._backend.to_str(pretty=True)
        content = json.loads(self._backend.to_str())
        restore_patterns(content)
        return json.dumps(content, indent=2, ensure_ascii=False)

    def _vocabulary_files(self) -> dict[str, str | bytes]:
        """Return name -> content of the family's vocabulary files beside tokenizer.json."""
        return saving.vocabulary_files(self._backend, self._model_pieces, self._settings, self._sentencepiece_model)


def has_token_types(settings: dict[str, Any]) -> bool:
    """Return whether a tokenizer with these settings distinguishes token types."""
    return "token_type_ids" in settings.get("model_input_names", ["token_type_ids"])


@contextlib.contextmanager
def named_errors(texts: Iterable[str]) -> Iterator[None]:
    """Turn an error that a tokenizer library raises in the block into an InputError about one of `texts`."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, InputError) or not (isinstance(error, Exception) or "Panic" in type(error).__name__):
            raise
        check_unicode(texts)
        reason = " ".join(str(error).split())
        raise InputError(f"expected text that the tokenizer can encode, found: {reason}") from None
