"""Complete a tokenizer built over a vocabulary: add its special tokens, its row layout and its settings."""

from collections.abc import Callable, Mapping
from typing import Any

import tokenizers

from bert_jax.tokenization.added_tokens import add_tokens_of_files, plain_special
from bert_jax.tokenization.backends import sep_and_cls
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.settings import TokenizerFiles

# The row layout: a template for pairs, or a function (backend, special tokens) -> post_processor.
RowsDescription = str | Callable[[tokenizers.Tokenizer, dict[str, str]], tokenizers.processors.PostProcessor]
BERT_ROWS = "{cls} $A {sep} $B:1 {sep}:1"
ONE_TYPE_ROWS = "{cls} $A {sep} $B {sep}"
ROBERTA_ROWS = "{cls} $A {sep} {sep} $B {sep}"


def finish_tokenizer(
    backend: tokenizers.Tokenizer,
    special: Mapping[str, str],
    files: TokenizerFiles,
    defaults: Mapping[str, Any],
    rows: RowsDescription,
    special_token: Callable[[str, str], tokenizers.AddedToken] = plain_special,
    sentencepiece_model: bytes | None = None,
) -> BackendTokenizer:
    """Add special tokens and a row layout to a backend, and return its tokenizer.

    Args:
        backend: the library's tokenizer of the vocabulary, changed in place.
        special: names of the special tokens by role.
        files: contents of the files beside the vocabulary: added tokens and settings.
        defaults: settings that the files may override.
        rows: template of the row of a pair, with `{cls}` and `{sep}`, which begins with the row of a single text; or a
            function that makes the post_processor.
        special_token: as for `add_tokens_of_files`.
        sentencepiece_model: bytes of the SentencePiece model, if the vocabulary is one.

    Raises:
        InputError: a special token is missing.
    """
    known = add_tokens_of_files(backend, special, files, special_token)
    backend.post_processor = _template(backend, known, rows) if isinstance(rows, str) else rows(backend, known)
    return BackendTokenizer(backend, known, {**defaults, **files.settings}, sentencepiece_model)


def _template(backend: tokenizers.Tokenizer, special: dict[str, str], rows: str) -> tokenizers.processors.PostProcessor:
    tokens = sep_and_cls(special, backend)
    (sep, _), (cls, _) = tokens
    pair = [part.format(cls=cls, sep=sep) for part in rows.split()]
    return tokenizers.processors.TemplateProcessing(single=pair[:3], pair=pair, special_tokens=list(tokens))
