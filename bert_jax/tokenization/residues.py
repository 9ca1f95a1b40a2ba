"""The tokenizer of ESM: one token per residue of a protein, from `vocab.txt`."""

import re
from collections.abc import Mapping, Sequence

import tokenizers

from bert_jax.errors import InputError
from bert_jax.tokenization.added_tokens import add_tokens
from bert_jax.tokenization.backends import sep_and_cls
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.names import ESM_SPECIALS
from bert_jax.tokenization.settings import NO_TOKEN_TYPES, TokenizerFiles


def residue_tokenizer(
    pieces: Sequence[str],
    *,
    special: Mapping[str, str] = ESM_SPECIALS,
    max_length: int | None = None,
    files: TokenizerFiles | None = None,
) -> BackendTokenizer:
    """Return ESM's tokenizer over a vocabulary (facebookresearch/esm `data.py`, `Alphabet`).

    A token is a residue, such as `K`, in any place; other text between spaces is one unknown token. Rows are
    `<cls> A <eos>` and `<cls> A <eos> B <eos>`, with one token type.

    Args:
        pieces: the vocabulary in the order of its ids.
        special: names of the special tokens by role; the role sep is that of `<eos>`.
        max_length: most tokens in an input of the model; None = not known.
        files: contents of the files beside the vocabulary: added tokens and settings.

    Raises:
        InputError: a special token is missing.
    """
    ids = {piece: i for i, piece in enumerate(pieces)}
    if (missing := special["unk"]) not in ids:
        raise InputError(f"expected the unknown token {missing!r} in the vocabulary, found none")
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, special["unk"]))
    longest_first = sorted((piece for piece in ids if piece and piece not in special.values()), key=len, reverse=True)
    residue = tokenizers.Regex("|".join(re.escape(piece) for piece in longest_first))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Split(residue, "isolated")]
    )
    files = files or TokenizerFiles()
    special = add_tokens(backend, special, files)
    tokens = sep_and_cls(special, backend)
    (sep, _), (cls, _) = tokens
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=[cls, "$A", sep], pair=[cls, "$A", sep, "$B", sep], special_tokens=list(tokens)
    )
    limit = {} if max_length is None else {"model_max_length": max_length}
    settings = {"tokenizer_class": "EsmTokenizer", **NO_TOKEN_TYPES, **files.settings, **limit}
    return BackendTokenizer(backend, special, settings)
