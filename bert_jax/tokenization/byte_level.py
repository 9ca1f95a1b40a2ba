"""Byte-level BPE (Radford et al. 2019, section 2.2), and the tokenizer of DeBERTa, which has BERT's special tokens."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from bert_jax.errors import InputError
from bert_jax.storage import PathLike
from bert_jax.tokenization.added_tokens import special_token
from bert_jax.tokenization.building import BERT_ROWS, finish_tokenizer
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.names import WORD_PIECE_SPECIALS
from bert_jax.tokenization.settings import TOKEN_TYPES, TokenizerFiles, named_specials
from bert_jax.tokenization.tokenizer_json_settings import sequence_parts

# With this class, every version of transformers uses a saved tokenizer.json as it is.
DEBERTA_CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}


def deberta(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], files: TokenizerFiles | None = None
) -> BackendTokenizer:
    """Return DeBERTa's tokenizer: the byte-level BPE of GPT-2 with BERT's special tokens.

    Rows are laid out as in BERT, with two token types, and `[MASK]` in a text absorbs the space before it, as in
    DeBERTa's own code and transformers 4. The DebertaTokenizer of transformers 5 separates pairs by two `[SEP]`,
    whatever a `tokenizer.json` says, and its `[MASK]` absorbs nothing.

    Args:
        vocabulary: ids of tokens, with bytes written as the printable characters of the paper.
        merges: pairs of tokens to merge, in order of priority.
        files: contents of the files beside the vocabulary.

    Raises:
        InputError: a special token is missing, or a merge has a token that is not in the vocabulary.
    """
    files = files or TokenizerFiles()
    prefix = files.settings.get("add_prefix_space", False)
    files = dataclasses.replace(files, settings=files.settings | DEBERTA_CLASS)
    return finish_tokenizer(
        byte_level_backend(vocabulary, merges, prefix),
        named_specials(WORD_PIECE_SPECIALS, files.settings),
        files,
        {**TOKEN_TYPES, "add_prefix_space": prefix},
        BERT_ROWS,
        special_token,
    )


def byte_level_backend(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], add_prefix_space: bool
) -> tokenizers.Tokenizer:
    """Return a byte-level BPE tokenizer of the library, without special tokens and row layout.

    Raises:
        InputError: a merge has a token that is not in the vocabulary.
    """
    for first, second in merges:
        for piece in (first, second, first + second):
            if piece not in vocabulary:
                raise InputError(f"merge {first!r} {second!r}: expected pieces of the vocabulary, found {piece!r}")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(dict(vocabulary), list(merges)))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return backend


def read_merges(text: str, where: PathLike) -> list[tuple[str, str]]:
    """Return the pairs of tokens to merge, in order, from the lines of a `merges.txt`.

    Raises:
        InputError: a line does not have two tokens.
    """
    merges = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line or line.startswith("#version"):
            continue
        first, _, second = line.partition(" ")
        if not first or not second or " " in second:
            raise InputError(f"{where}: line {number}: expected two tokens with a space between them, found {line!r}")
        merges.append((first, second))
    return merges


def override_byte_level(content: dict[str, Any], settings: dict[str, Any]) -> None:
    """Override add_prefix_space and trim_offsets of a tokenizer.json by the settings; fill missing settings from it."""
    parts = [*sequence_parts(content.get("pre_tokenizer"), "pretokenizers"),
             *sequence_parts(content.get("post_processor"), "processors")]  # fmt: skip
    for part in parts:
        for name in ("add_prefix_space", "trim_offsets"):
            if name in part:
                part[name] = settings.setdefault(name, part[name])
