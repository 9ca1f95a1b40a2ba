"""Sentence embeddings that learn from queries with lists of documents, and perhaps scores of a teacher.

Lin et al. 2020 (arXiv:2010.11386), section 3; Hofstatter et al. 2020 (arXiv:2010.02666), section 4.1.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import Batch
from bert_jax.errors import InputError
from bert_jax.inference.similarity import comparable
from bert_jax.jobs.base import Job
from bert_jax.modeling.pooling import l2_normalize
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.dense.recipe import KEYS
from bert_jax.tasks.embedding.prompts import with_recipe_prompts
from bert_jax.tasks.embedding.query_documents import QueryDocumentTask, build_retrieval_job, synthetic_rows
from bert_jax.tasks.embedding.retrieval_keys import SEARCH_KEYS, SEARCH_LOSSES
from bert_jax.tokenization import Tokenizer

_HEAD = "sentence_embedding"


@dataclasses.dataclass(frozen=True)
class RankedDocumentsTask(QueryDocumentTask):
    """Sentence embedding of queries and documents.

    Scores of a query's own documents are dot products. `in_batch_negatives` compares cosines.
    """

    similarity: str = "cosine"

    def vectors(self, params: Any, ids: jax.Array, mask: jax.Array, dropout_key: jax.Array | None) -> jax.Array:
        """Return the sentence embeddings `[n, D]`."""
        output = self.model.apply(params, ids, mask, dropout_key=dropout_key, output_last_hidden_state=False)
        assert output.sentence_embedding is not None
        return output.sentence_embedding

    def scores(self, queries: jax.Array, documents: jax.Array) -> jax.Array:
        """Return the cosines `[B, n, K]`."""
        sides = l2_normalize(queries), l2_normalize(documents)
        return jnp.einsum("bd,nkd->bnk", *sides, precision=jax.lax.Precision.HIGHEST)

    def own_scores(self, queries: jax.Array, documents: jax.Array) -> jax.Array:
        """Return the dot products `[B, K]`."""
        return jnp.einsum("bd,bkd->bk", queries, documents, precision=jax.lax.Precision.HIGHEST)

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return `queries` `[B, D]` and `documents` `[B, K, D]`, without dropout."""
        queries, documents = self.embed(params, batch, None)
        return {"queries": queries, "documents": documents}

    def predicted(self, predictions: list[dict[str, np.ndarray]], real: list[np.ndarray]) -> tuple[Any, Any]:
        """Return the vectors of the queries, `[n, D]`, and of the documents, `[n * K, D]`."""
        queries, documents = (
            np.concatenate([each[name][rows] for each, rows in zip(predictions, real, strict=True)])
            for name in ("queries", "documents")
        )
        documents = documents.reshape(-1, queries.shape[1])
        return comparable(self.similarity, queries), comparable(self.similarity, documents)


def build_ranked(recipe: Recipe) -> Job:
    """Read the data and the model of a resolved recipe of sentence embeddings whose rows have lists of documents."""
    data = recipe.data
    if data.loss not in SEARCH_LOSSES:
        raise InputError(f"config.data.loss: expected one of {', '.join(SEARCH_LOSSES)} for lists of documents "
                         f"(passages_column), found {data.loss!r}")  # fmt: skip
    for key in KEYS.keys() - SEARCH_KEYS.keys() - {"data.pool_prompts"}:
        value, default = data[key.removeprefix("data.")], KEYS[key].value
        if value != default:
            raise InputError(f"config.{key}: expected {default!r} with passages_column, found {value!r}")
    return build_retrieval_job(recipe, _HEAD, _settings, _task)


def synthetic_ranked_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return two rows with lists of documents and, if the loss needs them, of scores."""
    data = recipe.data
    for name in ("passages_column", *(() if data.loss == "in_batch_negatives" else ("label_column",))):
        data[name] = data[name] or name
    return synthetic_rows(recipe)


def _settings(recipe: Recipe, config: BertConfig, of_model: TextSettings | None) -> tuple[BertConfig, TextSettings]:
    settings = with_recipe_prompts(of_model or TextSettings(), recipe.data)
    if not settings.include_prompt and any(settings.prompt_of_task(task) for task in ("query", "document")):
        raise InputError(
            "config.data.pool_prompts: expected True for lists of documents (passages_column) with prompts, found False"
        )
    settings = dataclasses.replace(settings, max_length=recipe.data.max_seq_length)
    return config, settings


def _task(options: Any, recipe: Recipe, tokenizer: Tokenizer, settings: TextSettings) -> RankedDocumentsTask:
    return RankedDocumentsTask(**options, similarity=settings.similarity)
