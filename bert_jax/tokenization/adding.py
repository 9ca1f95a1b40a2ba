"""Add words to a tokenizer's vocabulary; the ids of all other pieces stay the same.

A word becomes a piece of WordPiece's vocabulary, so that longer words which begin with it use it too. For other
algorithms, or if the tokenizer splits the word at punctuation or spaces, it becomes an added token, which matches the
whole word alone, and takes the space before it.
"""

import json
from collections.abc import Iterable

import tokenizers

from bert_jax.errors import InputError
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.interface import Tokenizer


def with_added_tokens(tokenizer: Tokenizer, words: Iterable[str]) -> tuple[Tokenizer, dict[int, list[int]]]:
    """Return a tokenizer with further words, and for each new id the ids of the word's pieces before.

    Words that are one piece already are left out, as are repeated ones.

    Args:
        tokenizer: a tokenizer of the library `tokenizers`.
        words: the words.

    Raises:
        InputError: a word is empty or has no known piece, or the tokenizer is of another kind.
    """
    if not isinstance(tokenizer, BackendTokenizer):
        raise InputError(f"expected a tokenizer of the library tokenizers, found {type(tokenizer).__name__}")
    content = json.loads(tokenizer.backend.to_str())
    vocabulary, first = content["model"]["vocab"], tokenizer.vocab_size
    # Pieces of the model come before added tokens, so a model gets none once there are added tokens after it.
    takes_pieces = tokenizer.is_word_piece and len(vocabulary) == first
    pieces: dict[str, list[int]] = {}
    added: dict[str, list[int]] = {}
    for word in dict.fromkeys(words):
        before = tokenizer.encode(word)
        if not before or not word.strip():
            raise InputError(f"expected words with at least one piece each, found {word!r}")
        parts = tokenizer.words(word)
        if len(before) == 1 and not tokenizer.is_unknown(before[0]):
            continue
        if takes_pieces and len(parts) == 1:
            pieces.setdefault(parts[0], before)
        else:
            added.setdefault(word, before)
    for i, piece in enumerate(pieces):
        vocabulary[piece] = first + i
    backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    # Words are found before normalization, which may replace the spaces, unless it makes capitals small.
    options = {
        "single_word": True,
        "lstrip": not tokenizer.is_word_piece,
        "normalized": backend.normalizer is not None and backend.normalizer.normalize_str("A") == "a",
    }
    backend.add_tokens([tokenizers.AddedToken(word, **options) for word in added])
    extended = tokenizer.replaced(backend, tokenizer.sentencepiece_model)
    return extended, {first + i: before for i, before in enumerate([*pieces.values(), *added.values()])}
