"""Prompts before the queries and documents of training, from a recipe and from the files of the model.

The prompts of queries and of documents differ, so that a model reads a text in its role (E5, Wang et al. 2022,
arXiv:2212.03533, section 3). All functions depend on a recipe's `data` section and on text settings alone, so each data
set of a run may have prompts of its own.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.conversion.text_settings import CORPUS_PROMPTS, QUERY_PROMPTS, TextSettings
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.groups import Groups
from bert_jax.tasks.embedding.text_pairs import PairRow, encode_pairs, text_columns
from bert_jax.tokenization import Tokenizer

_NAMES = {"query": QUERY_PROMPTS, "document": CORPUS_PROMPTS}  # role -> names of its prompt in a model's files


def sets_prompts(data: Any) -> bool:
    """Return whether a recipe's data section sets the prompt of queries or of documents."""
    return any(data.get(f"{role}_prefix") is not None for role in _NAMES)


def with_recipe_prompts(settings: TextSettings, data: Any) -> TextSettings:
    """Return text settings with the prompts of a recipe's data section, as they are written into the model's files.

    If `query_prefix` or `document_prefix` is set, the settings have the prompts `query` and `document` and no default
    prompt, so that `search`, and `encode_query` and `encode_document` of sentence-transformers, use these two. The role
    whose key is not set keeps the model's prompt. `pool_prompts` sets `include_prompt`.

    Args:
        settings: the settings of the model to train.
        data: the data section; a key that it lacks is not set.
    """
    if data.get("pool_prompts") is not None:
        settings = dataclasses.replace(settings, include_prompt=data.pool_prompts)
    if not sets_prompts(data):
        return settings
    prompts = dict(settings.prompts)
    for role, names in _NAMES.items():
        text = data.get(f"{role}_prefix")
        text = settings.prompt_of_task(role) if text is None else text
        prompts |= {name: text for name in names if name == role or name in prompts}
    return dataclasses.replace(settings, prompts=tuple(prompts.items()), default_prompt="")


def role_prompts(settings: TextSettings) -> tuple[str, str]:
    """Return the prompts that `search` puts before queries and before documents."""
    return settings.prompt_for(QUERY_PROMPTS), settings.prompt_for(CORPUS_PROMPTS)


@dataclasses.dataclass(frozen=True)
class PromptedRows:
    """Rows of texts, and which prompts of a model are put before them.

    Attributes:
        rows: the rows of `read_pairs`.
        columns: the columns of their texts and labels.
        by_role: whether the first text of a row is a query and the others are documents, which get the prompts that
            `search` uses; otherwise the model's default prompt is put before every text.
        label_limit: as for `encode_pairs`.
    """

    rows: Sequence[PairRow]
    columns: Columns
    by_role: bool
    label_limit: float = math.inf

    def prompts(self, settings: TextSettings) -> tuple[str, str]:
        """Return the prompt before the first text of a row, and that before each of the others."""
        return role_prompts(settings) if self.by_role else (settings.prompt(), settings.prompt())

    def pooling_skips(self, tokenizer: Tokenizer, settings: TextSettings, max_length: int) -> tuple[int, int]:
        """Return the number of leading tokens of the first text, and of each of the others, that are not pooled."""
        first, other = (settings.pooling_skip(tokenizer, text, max_length) for text in self.prompts(settings))
        return first, other

    def encode(self, tokenizer: Tokenizer, settings: TextSettings, max_length: int, pooling_skip: int = 0) -> Groups:
        """Tokenize the rows for a model, each text after its prompt.

        Args:
            tokenizer: the model's tokenizer.
            settings: the model's text settings.
            max_length: maximum number of tokens in a text.
            pooling_skip: number of leading tokens that the model itself leaves out of pooling; if a text has another
                number, the batches have a `pooling_mask`.
        """
        first, other = self.prompts(settings)
        groups = encode_pairs(tokenizer, self.rows, self.columns, max_length, self.label_limit, first, other)
        skip, skip_other = self.pooling_skips(tokenizer, settings, max_length)
        skips = [skip, *[skip_other] * (len(text_columns(self.columns)) - 1)]
        if all(each == pooling_skip for each in skips):
            return groups
        return dataclasses.replace(groups, pooling_skips=np.tile(np.array(skips, np.int32), (len(groups), 1)))
