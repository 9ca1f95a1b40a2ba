"""Sparse embeddings: SPLADE models learn from queries and documents.

Formal et al. 2021 (arXiv:2107.05720), section 3; the regulariser is that of Paria et al. 2020 (arXiv:2004.05665),
section 3.2.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.values import SPLADE_POOLINGS
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.data.finetuning.features import encode_texts
from bert_jax.data.finetuning.ranked_passages import RankedPassages
from bert_jax.data.finetuning.tables import Example
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.base import Job, Metrics
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics import measure
from bert_jax.metrics.retrieval import ranks_among
from bert_jax.modeling import Bert
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.query_document_rows import QueryDocuments, encode_query_documents
from bert_jax.tasks.embedding.query_documents import (
    QueryDocumentTask,
    check_search_recipe,
    document_columns,
    own_documents,
    read_splits,
    settings_of,
)
from bert_jax.tasks.embedding.sparse.pipeline import as_csr
from bert_jax.tokenization import Tokenizer

HEAD = "sparse_embedding"
_KEPT = 256  # greatest weights of each text that evaluation compares
_FLOPS_SHARE = "flops_share"  # array of a batch: the share of the weights of the FLOPS in this step


@dataclasses.dataclass(frozen=True)
class SparseEmbeddingTask(QueryDocumentTask):
    """Sparse embedding; scores are dot products.

    To the loss are added the FLOPS of queries and documents, weighted: the sum over the vocabulary of the squared mean
    weight.

    Attributes:
        query_flops: weight of the FLOPS of queries.
        document_flops: weight of the FLOPS of documents.
    """

    query_flops: float = 0.0
    document_flops: float = 0.0

    def embed(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return the sparse embeddings of queries `[B, V]` and of documents `[B, K, V]`."""
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        ids, mask = batch["input_ids"], batch["attention_mask"]
        documents = self._embed(params, ids.reshape(-1, ids.shape[-1]), mask.reshape(-1, ids.shape[-1]), keys[1])
        return (
            self._embed(params, batch["query_ids"], batch["query_mask"], keys[0]),
            documents.reshape(*ids.shape[:-1], -1),
        )

    def _embed(self, params: Any, ids: jax.Array, mask: jax.Array, dropout_key: jax.Array | None) -> jax.Array:
        output = self.model.apply(params, ids, mask, dropout_key=dropout_key, output_last_hidden_state=False)
        assert output.sentence_embedding is not None
        return output.sentence_embedding

    def scores(self, queries: jax.Array, documents: jax.Array) -> jax.Array:
        """Return the dot products `[B, n, K]`."""
        return jnp.einsum("bv,nkv->bnk", queries, documents, precision=jax.lax.Precision.HIGHEST)

    def own_scores(self, queries: jax.Array, documents: jax.Array) -> jax.Array:
        """Return the dot products `[B, K]`."""
        return jnp.einsum("bv,bkv->bk", queries, documents, precision=jax.lax.Precision.HIGHEST)

    def regularise(self, queries: jax.Array, documents: jax.Array, batch: Batch) -> tuple[jax.Array, Metrics]:
        """Return the weighted FLOPS, and as metrics the FLOPS and the mean numbers of weights that are not 0."""
        real = batch["example_weights"]
        sides, count = {"query": queries[:, None], "document": documents}, real.sum()
        flops = {name: _flops(vectors, real) for name, vectors in sides.items()}
        sums = {f"{name}_flops": (value * count, count) for name, value in flops.items()}
        for name, vectors in sides.items():
            active = jnp.count_nonzero(vectors, axis=-1) * real[:, None]  # [B, T]
            sums[f"{name}_active"] = (active.sum(), count * vectors.shape[1])
        weighted = self.query_flops * flops["query"] + self.document_flops * flops["document"]
        share = batch[_FLOPS_SHARE].max() if _FLOPS_SHARE in batch else 1.0
        return share * weighted, sums

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return the greatest weights, without dropout: `tokens`, `values` `[B, 1 + K, k]`, the query's first."""
        queries, documents = self.embed(params, batch, None)
        vectors = jnp.concatenate([queries[:, None], documents], axis=1)
        values, tokens = jax.lax.top_k(vectors, min(_KEPT, vectors.shape[-1]))
        return {"tokens": tokens, "values": values}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the chosen metrics over all rows that are not padding."""
        real = np.concatenate([batch["example_weights"] for batch in batches]) > 0
        tokens, values = (np.concatenate([each[name] for each in predictions])[real] for name in ("tokens", "values"))
        size = tokens.shape[1] - 1
        queries = self._csr(tokens[:, 0], values[:, 0])
        documents = self._csr(*(array[:, 1:].reshape(-1, array.shape[-1]) for array in (tokens, values)))
        present = np.concatenate([batch["labels"] for batch in batches])[real].ravel() > -np.inf

        def compare(rows: slice) -> np.ndarray:
            return np.where(present, (queries[rows] @ documents.T).toarray(), -np.inf)

        return measure("ranks", self.metrics, ranks_among(compare, own_documents(batches, size), relative=True))

    def _csr(self, tokens: np.ndarray, values: np.ndarray) -> Any:
        kept = [weights > 0 for weights in values]
        columns = [ids[keep] for ids, keep in zip(tokens, kept, strict=True)]
        weights = [row[keep] for row, keep in zip(values, kept, strict=True)]
        return as_csr(columns, weights, self.model.config.vocab_size)


def _flops(vectors: jax.Array, real: jax.Array) -> jax.Array:
    """Return the sum over the vocabulary of the squared mean weight of vectors `[B, T, V]` of real rows."""
    total = jnp.maximum(real.sum() * vectors.shape[1], 1.0)
    return jnp.square((vectors * real[:, None, None]).sum((0, 1)) / total).sum()


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of sparse embeddings names. See `bert_jax.jobs.build`."""
    data, columns = recipe.data, document_columns(recipe)
    check_search_recipe(recipe, "sparse embeddings")
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, HEAD, HEAD)
    if config.pooling not in SPLADE_POOLINGS:
        config = config.replace(pooling=SPLADE_POOLINGS[0])
    rows, held = read_splits(recipe, columns)
    settings = loaded.settings if loaded else TextSettings(similarity="dot")
    settings = dataclasses.replace(settings, max_length=data.max_seq_length)
    train = _encode(tokenizer, rows, data.max_seq_length, settings)
    dev = _encode(tokenizer, held, data.max_seq_length, settings) if held else None
    task = _task(recipe, Bert(config, HEAD, setup.compute(recipe)))
    metadata = TrainingMetadata(dataclasses.replace(columns, more=(), texts="", label=""))
    job = fine_tuning.build_job(recipe, task, tokenizer, loaded, train, dev, metadata, settings=settings)
    if not data.flops_warmup:
        return job
    rising, source = data.flops_warmup * job.num_steps, job.train_source
    assert isinstance(source, TrainSource)
    return dataclasses.replace(
        job, train_source=source.with_values(lambda step: {_FLOPS_SHARE: min(1.0, ((step + 1) / rising) ** 2)})
    )


def _encode(
    tokenizer: Tokenizer, rows: list[RankedPassages], max_length: int, settings: TextSettings
) -> QueryDocuments:
    """Tokenize queries behind the prompt for queries, and documents behind that for documents."""

    def encode(task: str) -> Any:
        prompt = settings.prompt_of_task(task)
        return lambda texts: encode_texts(
            tokenizer, [Example(0, prompt + text, None, None) for text in texts], np.zeros(len(texts)), max_length
        )

    return encode_query_documents(rows, encode("query"), encode("document"))


def _task(recipe: Recipe, model: Bert) -> SparseEmbeddingTask:
    data = recipe.data
    return SparseEmbeddingTask(
        model, **settings_of(recipe), query_flops=data.query_flops, document_flops=data.document_flops
    )
