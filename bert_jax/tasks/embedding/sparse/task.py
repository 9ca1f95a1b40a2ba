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
from bert_jax.conversion.query_weights import weights_of_tokens
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.data.finetuning.ranked_passages import MISSING
from bert_jax.errors import InputError
from bert_jax.jobs.base import Job, Metrics
from bert_jax.jobs.fine_tuning import OPEN_MODEL
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.prompts import with_recipe_prompts
from bert_jax.tasks.embedding.query_document_rows import QueryDocuments
from bert_jax.tasks.embedding.query_documents import QueryDocumentTask, build_retrieval_job
from bert_jax.tasks.embedding.sparse.static_queries import inverse_document_frequencies, weigh_tokens
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

    def query_vectors(self, params: Any, ids: jax.Array, mask: jax.Array, dropout_key: jax.Array | None) -> jax.Array:
        """Return the sparse embeddings of queries `[n, V]`, from the table of their weights if the model has one."""
        kind = self.model.config.query_weights
        if not kind:
            return self.vectors(params, ids, mask, dropout_key)
        weights = params["query_weights"]["weight"]
        # No gradient and no decay (`training.optimizers.decay_mask`): frozen weights stay bitwise the same.
        return weigh_tokens(jax.lax.stop_gradient(weights) if kind == "frozen" else weights, ids, mask)

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
    if recipe.data.query_idf:
        job = _with_query_idf(recipe, job)
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
    longest = recipe.data.max_seq_length
    if kind := recipe.data.query_weights:
        config = config.replace(query_weights="" if kind == "encoder" else kind)
    if recipe.data.query_idf and not config.query_weights:
        raise InputError(
            f"config.data.query_idf: expected none without config.data.query_weights, found {recipe.data.query_idf!r}"
        )
    return config, dataclasses.replace(
        settings, max_length=longest, query_length=longest if config.query_weights else None
    )  # fmt: skip


def _with_query_idf(recipe: Recipe, job: Job) -> Job:
    """Return the job with the first weights of queries that `data.query_idf` names."""
    source, size = job.train_source, job.task.model.config.vocab_size
    if recipe.data.query_idf == "documents":
        if recipe.get(OPEN_MODEL):
            raise InputError("config.data.query_idf: expected a file of weights with data.sets, found 'documents'")
        rows = getattr(source, "features", None)
        if not isinstance(rows, QueryDocuments):
            raise InputError("config.data.query_idf: expected a file of weights with a teacher, found 'documents'")
        present = np.flatnonzero(rows.labels.ravel() > MISSING)
        tokens, starts = rows.documents.tokens, rows.documents.starts
        documents = (tokens[starts[i] : starts[i + 1]].tolist() for i in present)
        weights = inverse_document_frequencies(documents, job.tokenizer, size)
    else:
        weights = weights_of_tokens(recipe.data.query_idf, job.tokenizer, size)
    return dataclasses.replace(
        job,
        pretrained=(job.pretrained or {}) | {"query_weights": {"weight": weights}},
        notes=tuple(note for note in job.notes if note != "freshly initialised: query_weights"),
    )


def _task(options: Any, recipe: Recipe, tokenizer: Tokenizer, settings: TextSettings) -> SparseEmbeddingTask:
    weights = {name: recipe.data[name] for name in ("query_flops", "document_flops")}
    return SparseEmbeddingTask(**options, **weights)
