"""Sparse embeddings: SPLADE models learn from queries and documents.

Formal et al. 2021 (arXiv:2107.05720), section 3; the regulariser is that of Paria et al. 2020 (arXiv:2004.05665),
section 3.2.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.config.values import SPLADE_POOLINGS
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.jobs.base import Job, Metrics
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.prompts import with_recipe_prompts
from bert_jax.tasks.embedding.query_documents import QueryDocumentTask, build_retrieval_job
from bert_jax.tokenization import Tokenizer

HEAD = "sparse_embedding"
_KEPT = 256  # number of greatest weights per text that evaluation compares
_FLOPS_SHARE = "flops_share"  # batch array: fraction of the FLOPS regulariser's weights that applies in this step


@dataclasses.dataclass(frozen=True)
class SparseEmbeddingTask(QueryDocumentTask):
    """Sparse embedding; scores are dot products.

    The weighted FLOPS of queries and documents are added to the loss. FLOPS are the sum over the vocabulary of the
    squared mean weight.

    Attributes:
        query_flops: weight of the FLOPS of queries.
        document_flops: weight of the FLOPS of documents.
    """

    query_flops: float = 0.0
    document_flops: float = 0.0

    def vectors(self, params: Any, ids: jax.Array, mask: jax.Array, dropout_key: jax.Array | None) -> jax.Array:
        """Return the sparse embeddings `[n, V]`."""
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
        """Return the weighted FLOPS; as metrics, the FLOPS and the mean number of weights that are not 0."""
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
        """Return the greatest weights, without dropout: `tokens` and `values` `[B, 1 + K, k]`, the query first."""
        queries, documents = self.embed(params, batch, None)
        vectors = jnp.concatenate([queries[:, None], documents], axis=1)
        values, tokens = jax.lax.top_k(vectors, min(_KEPT, vectors.shape[-1]))
        return {"tokens": tokens, "values": values}

    def predicted(self, predictions: list[dict[str, np.ndarray]], real: list[np.ndarray]) -> tuple[Any, Any]:
        """Return CSR arrays `[n, V]` of the queries and `[n * K, V]` of the documents."""
        from scipy import sparse  # slow to import

        tokens, values = (
            np.concatenate([each[name][rows] for each, rows in zip(predictions, real, strict=True)])
            for name in ("tokens", "values")
        )  # [n, 1 + K, k]

        def matrix(texts: slice) -> Any:
            starts = np.arange(tokens[:, texts, 0].size + 1) * tokens.shape[-1]
            entries = values[:, texts].ravel(), tokens[:, texts].ravel(), starts
            return sparse.csr_array(entries, shape=(len(starts) - 1, self.model.config.vocab_size))

        return matrix(slice(1)), matrix(slice(1, None))


def _flops(vectors: jax.Array, real: jax.Array) -> jax.Array:
    """Return the sum over the vocabulary of the squared mean weight in vectors `[B, T, V]`, without padding rows."""
    total = jnp.maximum(real.sum() * vectors.shape[1], 1.0)
    return jnp.square((vectors * real[:, None, None]).sum((0, 1)) / total).sum()


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of sparse embeddings names. See `bert_jax.jobs.build`."""
    job = build_retrieval_job(recipe, HEAD, _settings, _task)
    if not recipe.data.flops_warmup:
        return job
    warmup, source = recipe.data.flops_warmup, job.train_source
    assert isinstance(source, TrainSource)

    def values(step: int, num_steps: int) -> dict[str, float]:
        return {_FLOPS_SHARE: min(1.0, ((step + 1) / (warmup * num_steps)) ** 2)}

    return dataclasses.replace(job, train_source=source.with_values(values, job.num_steps))


def _settings(recipe: Recipe, config: BertConfig, of_model: TextSettings | None) -> tuple[BertConfig, TextSettings]:
    """Return the config with SPLADE's pooling, and the model's text settings (for a new model, defaults)."""
    if config.pooling not in SPLADE_POOLINGS:
        config = config.replace(pooling=SPLADE_POOLINGS[0])
    settings = with_recipe_prompts(of_model or TextSettings(similarity="dot"), recipe.data)
    return config, dataclasses.replace(settings, max_length=recipe.data.max_seq_length)


def _task(options: Any, recipe: Recipe, tokenizer: Tokenizer, settings: TextSettings) -> SparseEmbeddingTask:
    weights = {name: recipe.data[name] for name in ("query_flops", "document_flops")}
    return SparseEmbeddingTask(**options, **weights)
