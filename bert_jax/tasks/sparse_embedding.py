"""Sparse embeddings: SPLADE models learn from pairs of queries and documents.

Formal et al. 2021 (arXiv:2107.05720), section 3; the regulariser is that of Paria et al. 2020 (arXiv:2004.05665),
section 3.2.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config_values import SPLADE_POOLINGS
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.columns import Columns, recipe_key
from bert_jax.data.finetuning.groups import INPUTS, Groups, encode_groups
from bert_jax.data.finetuning.text_pairs import PairRow, read_pairs
from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference.sparse import as_csr
from bert_jax.modeling import Bert
from bert_jax.modeling.losses import cross_entropy
from bert_jax.tasks import setup
from bert_jax.tasks.base import AbstractTask, Job, Metrics
from bert_jax.tasks.distillation.settings import distillation_of
from bert_jax.tasks.in_batch_negatives import embed_in_parts
from bert_jax.tasks.remembered import Remembered
from bert_jax.tokenization import Tokenizer

HEAD = "sparse_embedding"
_METRICS = ("retrieval_accuracy", "mrr")
_KEPT = 256  # greatest weights of each text that evaluation compares
_ROWS = 512  # queries that are compared with all documents at a time
_EXCLUDED = -1e9  # the logit of a padded row


@dataclasses.dataclass(frozen=True)
class SparseEmbeddingTask:
    """Sparse embedding; each row has a query, its document, and optionally a negative document.

    The loss is the cross entropy of a query's document among all documents of the batch, with dot products times
    `scale` as logits, and the FLOPS of queries and documents, weighted: the sum over the vocabulary of the squared
    mean weight.

    Attributes:
        model: a Bert with head `sparse_embedding`.
        query_flops: weight of the FLOPS of queries.
        document_flops: weight of the FLOPS of documents.
        metrics: names of metrics: `retrieval_accuracy`, `mrr`.
        scale: factor of dot products before the softmax.
        parts: number of parts of the batch whose activations exist at a time.
    """

    model: Bert
    query_flops: float = 0.0
    document_flops: float = 0.0
    metrics: tuple[str, ...] = _METRICS
    scale: float = 1.0
    parts: int = 1

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of rows that are not padding."""
        return {"rows": jnp.maximum(batch["example_weights"].sum(), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a whole batch (see `bert_jax.tasks.base.Task`), which the task splits."""
        inputs, real = {name: batch[name] for name in INPUTS}, batch["example_weights"]
        embed = functools.partial(self._embed, params)
        if self.parts == 1:
            vectors = embed(inputs, dropout_key)
        else:
            vectors = embed_in_parts(embed, inputs, dropout_key, self.parts)
        queries, documents = vectors[:, 0], vectors[:, 1:]
        choices = documents.swapaxes(0, 1).reshape(-1, documents.shape[-1])  # [(T - 1) B, V], the pairs first
        logits = self.scale * jnp.matmul(queries, choices.T, precision=jax.lax.Precision.HIGHEST)
        logits = jnp.where(jnp.tile(real, documents.shape[1]) > 0, logits, _EXCLUDED)
        losses, right = cross_entropy(logits, jnp.arange(len(queries)))
        flops = {"query_flops": _flops(vectors[:, :1], real), "document_flops": _flops(documents, real)}
        count = real.sum()
        sums = {
            name: ((values * real).sum(), count) for name, values in (("cross_entropy", losses), ("accuracy", right))
        }
        active = jnp.count_nonzero(vectors, axis=-1) * real[:, None]  # [B, T]
        sums |= {"query_active": (active[:, 0].sum(), count)}
        sums |= {"document_active": (active[:, 1:].sum(), count * documents.shape[1])}
        sums |= {name: (value * count, count) for name, value in flops.items()}
        regularisers = self.query_flops * flops["query_flops"] + self.document_flops * flops["document_flops"]
        return (losses * real).sum() / weights["rows"] + regularisers, sums

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return the greatest weights of the T texts of each row, without dropout: `tokens`, `values` [B, T, K]."""
        vectors = self._embed(params, {name: batch[name] for name in INPUTS}, None)
        values, tokens = jax.lax.top_k(vectors, min(_KEPT, vectors.shape[-1]))
        return {"tokens": tokens, "values": values}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the chosen metrics over all rows that are not padding."""
        real = np.concatenate([batch["example_weights"] for batch in batches]) > 0
        tokens, values = (np.concatenate([each[name] for each in predictions])[real] for name in ("tokens", "values"))
        ranks = _ranks([self._sparse(tokens[:, i], values[:, i]) for i in range(tokens.shape[1])])
        found = {"retrieval_accuracy": float(np.mean(ranks == 1)), "mrr": float(np.mean(1 / ranks))}
        return {name: found[name] for name in self.metrics}

    def _sparse(self, tokens: np.ndarray, values: np.ndarray) -> Any:
        kept = [weights > 0 for weights in values]
        columns = [ids[keep] for ids, keep in zip(tokens, kept, strict=True)]
        weights = [row[keep] for row, keep in zip(values, kept, strict=True)]
        return as_csr(columns, weights, self.model.config.vocab_size)

    def _embed(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> jax.Array:
        """Return the sparse embeddings [B, T, V] of a batch."""
        rows, texts, length = batch["input_ids"].shape
        inputs = (batch[name].reshape(-1, length) for name in INPUTS)
        output = self.model.apply(params, *inputs, dropout_key=dropout_key, output_last_hidden_state=False)
        assert output.sentence_embedding is not None
        return output.sentence_embedding.reshape(rows, texts, -1)


def _flops(vectors: jax.Array, real: jax.Array) -> jax.Array:
    """Return the sum over the vocabulary of the squared mean weight of vectors `[B, T, V]` of real rows."""
    total = jnp.maximum(real.sum() * vectors.shape[1], 1.0)
    return jnp.square((vectors * real[:, None, None]).sum((0, 1)) / total).sum()


def _ranks(sides: list[Any]) -> np.ndarray:
    """Return the rank, from 1, of each query's own document among all documents; ties get their mean rank.

    Args:
        sides: sparse vectors `[n, V]` of queries, of their documents, and of negatives.
    """
    queries, ranks = sides[0], np.empty(sides[0].shape[0])
    for start in range(0, len(ranks), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(ranks)))
        alike = np.concatenate([(queries[rows] @ side.T).toarray() for side in sides[1:]], axis=1)
        own = alike[np.arange(len(rows)), rows][:, None]
        equal = np.abs(alike - own) <= 1e-6 * np.maximum(np.abs(own), 1)
        ranks[rows] = 1 + ((alike > own) & ~equal).sum(1) + (equal.sum(1) - 1) / 2
    return ranks


def build(recipe: Any) -> Job:
    """Read the data and the model that a resolved recipe of sparse embeddings names. See `bert_jax.tasks.build`."""
    data, columns = recipe.data, _columns(recipe)
    if distillation_of(recipe) is not None:
        raise InputError("config.distillation.teacher: expected none for sparse embeddings, found one")
    loaded, tokenizer, config = setup.starting_model(recipe, HEAD, HEAD)
    if config.pooling not in SPLADE_POOLINGS:
        config = config.replace(pooling=SPLADE_POOLINGS[0])
    rows, held = setup.hold_out(recipe, read_pairs(data.train, columns, bad=setup.invalid_rows(recipe, data.train)))
    settings = loaded.settings if loaded else TextSettings(similarity="dot")
    settings = dataclasses.replace(settings, max_length=data.max_seq_length)
    train = _encode(tokenizer, rows, columns, data.max_seq_length, settings)
    if len(train) * (train.size - 1) < 2:
        raise InputError(f"{data.train}: expected at least 2 rows, which are negatives of each other, found 1")
    if data.dev:
        held = read_pairs(data.dev, columns, bad=setup.invalid_rows(recipe, data.dev))
    dev = _encode(tokenizer, held, columns, data.max_seq_length, settings) if held else None
    remembered = Remembered(dataclasses.replace(columns, more=()))
    task = _task(recipe, Bert(config, HEAD, setup.compute(recipe)))
    return setup.fine_tuning(recipe, task, tokenizer, loaded, train, dev, remembered, settings=settings)


def abstract_task(recipe: Any) -> AbstractTask:
    """Return the abstract task of a resolved recipe of sparse embeddings. See `bert_jax.tasks.abstract_task`."""
    data = recipe.data
    if data.train:
        return setup.abstract_task_of(build(recipe))
    config = setup.config_without_data(recipe, HEAD)
    setup.check_length(data.max_seq_length, config, "config.data.max_seq_length")
    task = _task(recipe, Bert(config, HEAD, setup.compute(recipe)))
    texts = 2 + len(_columns(recipe).more)
    return setup.abstract_groups(recipe, task, texts, jax.ShapeDtypeStruct((1,), jnp.float32))


def _columns(recipe: Any) -> Columns:
    data = recipe.data
    for name in ("text_column", "pair_column"):
        if not data[name]:
            raise InputError(f"config.data.{name}: expected a column, found none")
    return Columns(
        data.text_column, data.pair_column, has_header=data.has_header, delimiter=data.delimiter,
        encoding=data.encoding, option=recipe_key, more=(data.negative_column,) if data.negative_column else (),
    )  # fmt: skip


def _encode(
    tokenizer: Tokenizer, rows: Sequence[PairRow], columns: Columns, max_length: int, settings: TextSettings
) -> Groups:
    """Tokenize rows, the query behind the prompt for queries and the others behind the prompt for documents."""
    query, document = settings.prompt_of_task("query"), settings.prompt_of_task("document")
    texts: list[list[tuple[str, None]]] = []
    for _, values in rows:
        others = [(document + values[name], None) for name in (columns.pair, *columns.more)]
        texts.append([(query + values[columns.text], None), *others])
    return encode_groups(tokenizer, texts, np.zeros(len(rows), np.float32), max_length)


def _task(recipe: Any, model: Bert) -> SparseEmbeddingTask:
    data = recipe.data
    for name in data.metrics:
        if name not in _METRICS:
            raise InputError(f"data.metrics: {name!r} is not a metric of search{did_you_mean(name, _METRICS)}")
    return SparseEmbeddingTask(
        model,
        data.query_flops,
        data.document_flops,
        tuple(data.metrics) or _METRICS,
        scale=data.scale,
        parts=recipe.accumulation_steps,
    )
