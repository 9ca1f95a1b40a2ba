"""Late interaction: ColBERT models learn from queries and documents, with a vector for each token.

Khattab and Zaharia 2020 (arXiv:2004.12832), section 3.
"""

import dataclasses
import string
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.config.values import EmbeddingLayer
from bert_jax.conversion.multi_vector_settings import MultiVectorSettings, QueryExpansion
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.features import Features, ragged_features
from bert_jax.data.finetuning.ranked_passages import RankedPassages
from bert_jax.errors import InputError
from bert_jax.inference.similarity import EMPTY_SCORE, max_similarities
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.base import Job
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics import measure
from bert_jax.metrics.retrieval import ranks_among
from bert_jax.modeling import Bert
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.multi_vector.pipeline import encode_behind_markers
from bert_jax.tasks.embedding.query_document_rows import Expansion, QueryDocuments, encode_query_documents
from bert_jax.tasks.embedding.query_documents import (
    QueryDocumentTask,
    check_search_recipe,
    document_columns,
    own_documents,
    read_splits,
    settings_of,
)
from bert_jax.tokenization import Tokenizer

HEAD = "multi_vector"
_DEFAULTS = {"query_length": 32, "query_expansion": True, "attend_to_expansion": False, "skip_punctuation": True}
_TOKEN_DIM = 128
_CHUNK = 8192  # texts that are tokenized at a time


@dataclasses.dataclass(frozen=True)
class MultiVectorTask(QueryDocumentTask):
    """Late interaction: a score sums over the tokens of a query the greatest product with a token of the document.

    Attributes:
        similarity: `maxsim`, or `meanmaxsim`, which divides by the number of tokens of the query.
        skipped_in_queries: ids of tokens of queries that are not scored.
        skipped_in_documents: the same for documents.
    """

    similarity: str = "maxsim"
    skipped_in_queries: tuple[int, ...] = ()
    skipped_in_documents: tuple[int, ...] = ()

    def embed(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> tuple[Any, Any]:
        """Return the vectors and the scored tokens of queries, `[B, Q, D]` and bool `[B, Q]`, and of documents,
        `[B, K, S, D]` and `[B, K, S]`."""
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        ids, mask = batch["input_ids"], batch["attention_mask"]
        documents = self._embed(params, ids.reshape(-1, ids.shape[-1]), mask.reshape(-1, ids.shape[-1]), keys[1])
        queries = self._embed(params, batch["query_ids"], batch["query_mask"], keys[0])
        return (
            (queries, (batch["query_scored"] > 0) & _outside(batch["query_ids"], self.skipped_in_queries)),
            (documents.reshape(*ids.shape, -1), (mask > 0) & _outside(ids, self.skipped_in_documents)),
        )

    def _embed(self, params: Any, ids: jax.Array, mask: jax.Array, dropout_key: jax.Array | None) -> jax.Array:
        positions = None
        if offset := self.model.config.positions.position_offset:  # else positions would count attended tokens only
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

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the chosen metrics over all rows that are not padding."""
        queries: list[np.ndarray] = []
        documents: list[np.ndarray] = []
        for found, batch in zip(predictions, batches, strict=True):
            for row in np.flatnonzero(batch["example_weights"] > 0):
                queries.append(found["queries"][row][found["query_scored"][row]])
                for vectors, scored, label in zip(
                    found["documents"][row], found["document_scored"][row], batch["labels"][row], strict=True
                ):
                    documents.append(vectors[scored & (label > -np.inf)])

        def compare(rows: slice) -> np.ndarray:
            return max_similarities(self.similarity, queries[rows], documents)

        own = own_documents(batches, len(documents) // max(len(queries), 1))
        return measure("ranks", self.metrics, ranks_among(compare, own, relative=True))


def _outside(ids: jax.Array, skipped: tuple[int, ...]) -> jax.Array:
    """Return which ids are none of `skipped`."""
    return jnp.isin(ids, jnp.array(skipped, jnp.int32), invert=True) if skipped else jnp.ones(ids.shape, bool)


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of late interaction names. See `bert_jax.jobs.build`."""
    columns = document_columns(recipe)
    check_search_recipe(recipe, "late interaction")
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, HEAD, HEAD)
    config = _with_projection(recipe, config)
    settings = _settings(recipe, loaded.settings if loaded else TextSettings())
    setup.check_length(settings.max_length or 0, config, "config.data.query_length")
    rows, held = read_splits(recipe, columns)
    train = _encode(tokenizer, rows, settings)
    dev = _encode(tokenizer, held, settings) if held else None
    task = _task(recipe, Bert(config, HEAD, setup.compute(recipe)), settings, tokenizer)
    metadata = TrainingMetadata(dataclasses.replace(columns, more=(), texts="", label=""))
    return fine_tuning.build_job(recipe, task, tokenizer, loaded, train, dev, metadata, settings=settings)


def _with_projection(recipe: Recipe, config: BertConfig) -> BertConfig:
    """Return the config with a projection of tokens, where it has none. Raises InputError for another `token_dim`."""
    dimensions = recipe.data.token_dim
    if config.embedding_layers:
        found = config.sentence_embedding_size
        if dimensions not in (None, found):
            raise InputError(
                f"config.data.token_dim: expected {found}, as in the model of init_from, found {dimensions}"
            )
        return config
    layer = EmbeddingLayer("dense", config.hidden_size, dimensions or _TOKEN_DIM, bias=False)
    return config.replace(pooling="mean", embedding_layers=(layer,), normalize_embeddings=True)


def _settings(recipe: Recipe, given: TextSettings) -> TextSettings:
    """Return the settings of a model, changed by the keys that are set; without settings, by their defaults too."""
    data, found = recipe.data, given.multi_vector
    keys = {name: data[name] for name in _DEFAULTS if data[name] is not None}
    if found is None:
        keys, found = _DEFAULTS | keys, MultiVectorSettings()
    length = keys.get("query_length") or (found.expansion.length if found.expansion else found.query_length)
    expansion = found.expansion
    if keys.get("query_expansion", expansion is not None):
        expansion = expansion or QueryExpansion(length or _DEFAULTS["query_length"])
        expansion = dataclasses.replace(expansion, length=length or expansion.length)
        if "attend_to_expansion" in keys:
            expansion = dataclasses.replace(expansion, attended=keys["attend_to_expansion"])
    else:
        expansion = None
    words = found.skipped_words
    if "skip_punctuation" in keys:
        words = tuple(string.punctuation) if keys["skip_punctuation"] else ()
    prefixes = {role: data[f"{role}_prefix"] for role in ("query", "document") if data[f"{role}_prefix"] is not None}
    markers = dict(found.markers) | prefixes
    found = dataclasses.replace(
        found, query_length=length, document_length=data.max_seq_length, expansion=expansion, skipped_words=words,
        markers=tuple(markers.items()),
    )  # fmt: skip
    return dataclasses.replace(
        given, multi_vector=found, prompts=tuple((dict(given.prompts) | prefixes).items()),
        max_length=max(length or 0, data.max_seq_length),
        similarity=given.similarity if given.similarity in ("maxsim", "meanmaxsim") else "maxsim",
    )  # fmt: skip


def _encode(tokenizer: Tokenizer, rows: list[RankedPassages], settings: TextSettings) -> QueryDocuments:
    """Tokenize queries and documents as inference does."""
    found = settings.multi_vector or MultiVectorSettings()

    def encode(texts: Sequence[str], task: str) -> Features:
        prompt, longest = settings.prompt_of_task(task), found.length_of(task, settings.max_length or 0)
        chunks = (texts[start : start + _CHUNK] for start in range(0, len(texts), _CHUNK))
        encoded = (encode_behind_markers(tokenizer, found, chunk, prompt, longest)[0] for chunk in chunks)
        return ragged_features(row for chunk in encoded for row in chunk)

    expansion = None
    if found.expansion is not None:
        expansion = Expansion(found.expansion.length, found.expansion_id(tokenizer), found.expansion.attended)
    return encode_query_documents(
        rows, lambda texts: encode(texts, "query"), lambda texts: encode(texts, "document"), expansion
    )


def _task(recipe: Recipe, model: Bert, settings: TextSettings, tokenizer: Tokenizer | None) -> MultiVectorTask:
    found = settings.multi_vector or MultiVectorSettings()
    skipped = [tuple(found.skipped_ids(tokenizer, task)) if tokenizer else () for task in ("query", "document")]
    return MultiVectorTask(model, **settings_of(recipe), similarity=settings.similarity, skipped_in_queries=skipped[0],
                           skipped_in_documents=skipped[1])  # fmt: skip
