"""Add words to the vocabulary of a loaded model."""

import dataclasses
from collections.abc import Iterable

from bert_jax.conversion.added_tokens import extend_vocabulary
from bert_jax.inference.model import PretrainedModel


def add_tokens(
    model: PretrainedModel, words: Iterable[str], new_rows: str = "pieces", multiple: int = 1
) -> PretrainedModel:
    """Return a model with further words in its vocabulary; for arguments and errors, see `extend_vocabulary`."""
    config, params, tokenizer = extend_vocabulary(
        model.config, model.params, model.tokenizer, words, new_rows, multiple
    )
    return dataclasses.replace(model, config=config, params=params, tokenizer=tokenizer)
