"""The tokenizer of ESM: one token per residue of a protein, from `vocab.txt`."""

import re
from collections.abc import Sequence

import tokenizers

from bert_jax.errors import InputError
from bert_jax.tokenization.building import ONE_TYPE_ROWS, finish_tokenizer
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.names import ESM_SPECIALS
from bert_jax.tokenization.settings import NO_TOKEN_TYPES, TokenizerFiles, named_specials


def residue_tokenizer(pieces: Sequence[str], files: TokenizerFiles) -> BackendTokenizer:
    """Return ESM's tokenizer over a vocabulary (facebookresearch/esm `data.py`, `Alphabet`).

    A residue, such as `K`, is a token wherever it occurs; other text between spaces is one unknown token. Rows are
    `<cls> A <eos>` and `<cls> A <eos> B <eos>`, with one token type.

    Args:
        pieces: the vocabulary in the order of its ids.
        files: contents of the files beside the vocabulary; the setting eos_token names the sep token.

    Raises:
        InputError: a special token is missing.
    """
    special = named_specials(ESM_SPECIALS, {"sep_token": files.settings.get("eos_token"), **files.settings})
    ids = {piece: i for i, piece in enumerate(pieces)}
    if (missing := special["unk"]) not in ids:
        raise InputError(f"expected the unknown token {missing!r} in the vocabulary, found none")
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, special["unk"]))
    longest_first = sorted((piece for piece in ids if piece and piece not in special.values()), key=len, reverse=True)
    residue = tokenizers.Regex("|".join(re.escape(piece) for piece in longest_first))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Split(residue, "isolated")]
    )
    defaults = {"tokenizer_class": "EsmTokenizer", **NO_TOKEN_TYPES}
    return finish_tokenizer(backend, special, files, defaults, ONE_TYPE_ROWS)
