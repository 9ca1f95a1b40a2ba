"""Late interaction: ColBERT models learn from queries and documents, with a vector for each token.

Khattab and Zaharia 2020 (arXiv:2004.12832), section 3.
"""

import dataclasses
import string
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.config.values import EmbeddingLayer
from bert_jax.conversion.multi_vector_settings import MultiVectorSettings, QueryExpansion, TokenPooling
from bert_jax.conversion.text_settings import MULTI_VECTOR_SIMILARITIES, TextSettings
from bert_jax.data.batches import Batch
from bert_jax.errors import InputError
from bert_jax.inference.similarity import EMPTY_SCORE
from bert_jax.jobs import setup
from bert_jax.jobs.base import Job
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.query_documents import QueryDocumentTask, build_retrieval_job
from bert_jax.tokenization import Tokenizer

HEAD = "multi_vector"
_DEFAULTS = {"query_length": 32, "query_expansion": True, "attend_to_expansion": False, "skip_punctuation": True}
_TOKEN_DIM = 128


@dataclasses.dataclass(frozen=True)
class MultiVectorTask(QueryDocumentTask):
    """Late interaction: the score is the sum, over a query's tokens, of the greatest product with a document's token.

    Attributes:
        similarity: `maxsim`, or `meanmaxsim`, which divides by the number of tokens of the query.
        skipped_in_queries: ids of tokens that are not scored in queries.
        skipped_in_documents: the same for documents.
    """

    similarity: str = "maxsim"
    skipped_in_queries: tuple[int, ...] = ()
    skipped_in_documents: tuple[int, ...] = ()

    def embed(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> tuple[Any, Any]:
        """Return the vectors and the scored tokens of queries, `[B, Q, D]` and bool `[B, Q]`, and of documents,
        `[B, K, S, D]` and `[B, K, S]`."""
        queries, documents = super().embed(params, batch, dropout_key)
        query_scored = (batch["query_scored"] > 0) & _outside(batch["query_ids"], self.skipped_in_queries)
        scored = (batch["attention_mask"] > 0) & _outside(batch["input_ids"], self.skipped_in_documents)
        return (queries, query_scored), (documents, scored)

    def vectors(self, params: Any, ids: jax.Array, mask: jax.Array, dropout_key: jax.Array | None) -> jax.Array:
        """Return the vectors of tokens `[n, S, D]`."""
        positions = None
        if offset := self.model.config.positions.position_offset:  # default positions count attended tokens only
            positions = jnp.broadcast_to(jnp.arange(ids.shape[1]) + offset, ids.shape)
        options: dict[str, Any] = {"dropout_key": dropout_key, "output_last_hidden_state": False}
        vectors = self.model.apply(params, ids, mask, position_ids=positions, **options).token_embeddings
        assert vectors is not None
        return vectors

    def scores(self, queries: Any, documents: Any) -> jax.Array:
        """Return the scores `[B, n, K]`."""
        return self._late_interaction("bqd,nksd->bnkqs", queries, documents, 2)

    def own_scores(self, queries: Any, documents: Any) -> jax.Array:
        """Return the scores `[B, K]`."""
        return self._late_interaction("bqd,bksd->bkqs", queries, documents, 1)

    def _late_interaction(self, axes: str, queries: Any, documents: Any, leading: int) -> jax.Array:
        (query, query_scored), (document, document_scored) = queries, documents
        products = jnp.einsum(axes, query, document, precision=jax.lax.Precision.HIGHEST)
        best = jnp.where(document_scored[..., None, :], products, EMPTY_SCORE).max(-1)  # [B, ..., Q]
        scored = jnp.expand_dims(query_scored, range(1, 1 + leading))
        total = jnp.where(scored, best, 0).sum(-1)
        if self.similarity == "meanmaxsim":
            total = total / jnp.maximum(scored.sum(-1), 1)
        return jnp.maximum(total, EMPTY_SCORE)

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return `queries` `[B, Q, D]`, `query_scored`, `documents` `[B, K, S, D]` and `document_scored`."""
        (queries, query_scored), (documents, document_scored) = self.embed(params, batch, None)
        return {"queries": queries, "query_scored": query_scored, "documents": documents,
                "document_scored": document_scored}  # fmt: skip

    def predicted(self, predictions: list[dict[str, np.ndarray]], real: list[np.ndarray]) -> tuple[Any, Any]:
        """Return lists of the vectors of scored tokens, `[T, D]`, of the queries and of the documents."""
        queries: list[np.ndarray] = []
        documents: list[np.ndarray] = []
        for arrays, rows in zip(predictions, real, strict=True):
            for row in np.flatnonzero(rows):
                queries.append(arrays["queries"][row][arrays["query_scored"][row]])
                of_row = zip(arrays["documents"][row], arrays["document_scored"][row], strict=True)
                documents += [vectors[scored] for vectors, scored in of_row]
        return queries, documents


def _outside(ids: jax.Array, skipped: tuple[int, ...]) -> jax.Array:
    """Return a mask of the ids that are not in `skipped`."""
    return jnp.isin(ids, jnp.array(skipped, jnp.int32), invert=True) if skipped else jnp.ones(ids.shape, bool)


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of late interaction names. See `bert_jax.jobs.build`."""
    return build_retrieval_job(recipe, HEAD, _config_and_settings, _task)


def _config_and_settings(
    recipe: Recipe, config: BertConfig, of_model: TextSettings | None
) -> tuple[BertConfig, TextSettings]:
    config, settings = _with_projection(recipe, config), _settings(recipe, of_model or TextSettings())
    setup.check_length(settings.max_length or 0, config, "config.data.query_length")
    return config, settings


def _with_projection(recipe: Recipe, config: BertConfig) -> BertConfig:
    """Return the config with a projection of tokens, added if missing. Raises InputError for another `token_dim`."""
    dimensions = recipe.data.token_dim
    if config.embedding_layers:
        width = config.sentence_embedding_size
        if dimensions not in (None, width):
            raise InputError(
                f"config.data.token_dim: expected {width}, as in the model of init_from, found {dimensions}"
            )
        return config
    layer = EmbeddingLayer("dense", config.hidden_size, dimensions or _TOKEN_DIM, bias=False)
    return config.replace(pooling="mean", embedding_layers=(layer,), normalize_embeddings=True)


def _settings(recipe: Recipe, of_model: TextSettings) -> TextSettings:
    """Return the model's settings, or the defaults if it has none, changed by the keys that the recipe sets."""
    data, settings = recipe.data, of_model.multi_vector
    keys = {name: data[name] for name in _DEFAULTS if data[name] is not None}
    if settings is None:
        keys, settings = _DEFAULTS | keys, MultiVectorSettings()
    expansion = settings.expansion
    length = keys.get("query_length") or (expansion.length if expansion else settings.query_length)
    if keys.get("query_expansion", expansion is not None):
        expansion = expansion or QueryExpansion(length or _DEFAULTS["query_length"])
        expansion = dataclasses.replace(expansion, length=length or expansion.length)
        if "attend_to_expansion" in keys:
            expansion = dataclasses.replace(expansion, attended=keys["attend_to_expansion"])
    else:
        expansion = None
    words = settings.skipped_words
    if "skip_punctuation" in keys:
        words = tuple(string.punctuation) if keys["skip_punctuation"] else ()
    prefixes = {role: data[f"{role}_prefix"] for role in ("query", "document") if data[f"{role}_prefix"] is not None}
    markers = dict(settings.markers) | prefixes
    pooling = settings.pooling if data.pool_factor is None else TokenPooling(data.pool_factor)
    settings = dataclasses.replace(
        settings, query_length=length, document_length=data.max_seq_length, expansion=expansion, skipped_words=words,
        markers=tuple(markers.items()), pooling=pooling,
    )  # fmt: skip
    return dataclasses.replace(
        of_model, multi_vector=settings, prompts=tuple((dict(of_model.prompts) | prefixes).items()),
        max_length=max(length or 0, data.max_seq_length),
        similarity=of_model.similarity if of_model.similarity in MULTI_VECTOR_SIMILARITIES else "maxsim",
    )  # fmt: skip


def _task(options: Any, recipe: Recipe, tokenizer: Tokenizer | None, settings: TextSettings) -> MultiVectorTask:
    of_tokens = settings.multi_vector or MultiVectorSettings()
    skipped = [tuple(of_tokens.skipped_ids(tokenizer, task)) if tokenizer else () for task in ("query", "document")]
    return MultiVectorTask(
        **options, similarity=settings.similarity, skipped_in_queries=skipped[0], skipped_in_documents=skipped[1]
    )
