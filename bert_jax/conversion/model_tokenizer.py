"""The tokenizer of a model, whose vocabulary must fit the model's word embedding."""

from typing import TYPE_CHECKING

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.tokenization import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from bert_jax.conversion.load_pretrained import Loaded

# Embeddings may be padded to a round number of rows. With this number of extra rows, the vocabulary is another model's.
_PADDING_ROWS = 1024


def open_tokenizer(loaded: "Loaded") -> Tokenizer:
    """Load the tokenizer of a model, and apply the model's setting of lower-casing.

    Raises:
        InputError: there is no tokenizer, or its vocabulary does not fit the model.
    """
    tokenizer = loaded.settings.tokenizer(load_tokenizer(loaded.directory))
    check_vocabulary(tokenizer, loaded.config, loaded.directory)
    return tokenizer


def check_vocabulary(tokenizer: Tokenizer, config: BertConfig, where: object) -> None:
    """Raise InputError when the size of a tokenizer's vocabulary does not fit the model's word embedding."""
    rows, size = config.vocab_size, tokenizer.vocab_size
    least = max(1, rows - _PADDING_ROWS + 1)
    if not least <= size <= rows:
        raise InputError(
            f"{where}: the vocabulary does not fit the embedding: expected {least} to {rows} pieces, for the {rows} "
            f"rows of the model's word embedding (vocab_size), found {size}"
        )
