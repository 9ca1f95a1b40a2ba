"""Build BERT's tokenizer (WordPiece) over a vocabulary."""

from collections.abc import Sequence

import tokenizers

from bert_jax.tokenization.added_tokens import add_tokens_of_files
from bert_jax.tokenization.backends import bert_normalizer, sep_and_cls, word_piece_backend
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.names import WORD_PIECE_SPECIALS
from bert_jax.tokenization.settings import NO_TOKEN_TYPES, TokenizerFiles

_MAX_CHARS_PER_WORD = 200  # longer words are unknown, as in the original; the library's default is 100


def word_piece(
    pieces: Sequence[str],
    *,
    special: dict[str, str] = WORD_PIECE_SPECIALS,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    chinese_chars: bool = True,
    max_length: int | None = None,
    token_types: bool = True,
    files: TokenizerFiles | None = None,
) -> BackendTokenizer:
    """Return BERT's tokenizer (google-research/bert `tokenization.py`) over a vocabulary.

    Args:
        pieces: the vocabulary in the order of its ids; "##" marks tokens that continue a word. If a token occurs
            twice, its last id is used.
        special: names of the special tokens by role; `unk` and `mask` may be missing from the vocabulary.
        lowercase: whether text is lower-cased (uncased models).
        strip_accents: whether accents are dropped; None means as `lowercase`.
        chinese_chars: whether each CJK ideograph is a word of its own.
        max_length: maximum number of tokens in an input of the model; None = not known.
        token_types: whether the second segment has token type 1; DistilBERT has no token types.
        files: contents of the files beside the vocabulary: added tokens and settings.

    Raises:
        InputError: a special token is missing.
    """
    backend = word_piece_backend(pieces, special.get("unk", "[UNK]"), _MAX_CHARS_PER_WORD)
    backend.normalizer = bert_normalizer(lowercase, strip_accents, chinese_chars)
    files = files or TokenizerFiles()
    special = add_tokens_of_files(backend, special, files)
    backend.post_processor = tokenizers.processors.BertProcessing(*sep_and_cls(special, backend))
    settings = files.settings | {
        "tokenizer_class": files.settings.get("tokenizer_class", "BertTokenizer"),
        "do_lower_case": lowercase,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": chinese_chars,
        **({} if max_length is None else {"model_max_length": max_length}),
        **({} if token_types else NO_TOKEN_TYPES),
    }
    return BackendTokenizer(backend, special, {k: v for k, v in settings.items() if v is not None})
