"""Sentence embeddings: texts with similar meanings get similar vectors.

Reimers and Gurevych 2019 (arXiv:1908.10084), section 3; Henderson et al. 2017 (arXiv:1705.00652), section 4.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import POOLING_MASK, TEXT_INPUTS, Batch
from bert_jax.data.finetuning.columns import Columns
from bert_jax.errors import InputError
from bert_jax.inference.similarity import pair_similarities
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.base import Job, Metrics
from bert_jax.jobs.retrieval_dev import separate_retrieval_sets
from bert_jax.jobs.synthetic_rows import table_rows
from bert_jax.jobs.teaching import with_teacher_outputs
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics import measure
from bert_jax.modeling import Bert
from bert_jax.recipes import Recipe
from bert_jax.recipes.keys import compares_rows
from bert_jax.tasks.embedding.dense import class_batches, label_losses, tsdae
from bert_jax.tasks.embedding.dense.adaptive_layers import AdaptiveLayers
from bert_jax.tasks.embedding.dense.columns import (
    check_embedding_keys,
    has_similarities,
    needed_columns,
    pair_columns,
)
from bert_jax.tasks.embedding.dense.guide import GUIDE, with_guide
from bert_jax.tasks.embedding.dense.losses import angle_similarities, cosent, cosines, score_margins, triplet, truncated
from bert_jax.tasks.embedding.dense.matryoshka import matryoshka_cuts
from bert_jax.tasks.embedding.dense.metrics import choose_embedding_metrics, embedding_scores
from bert_jax.tasks.embedding.dense.query_lengths import QUERY_NAMES, queries_of, with_query_lengths
from bert_jax.tasks.embedding.dense.ranked_documents import build_ranked, synthetic_ranked_rows
from bert_jax.tasks.embedding.dense.recipe import EMBEDDING_LOSSES
from bert_jax.tasks.embedding.dense.text_settings import reads_by_role, training_text_settings
from bert_jax.tasks.embedding.in_batch_negatives import Contrast, embed_in_parts, in_batch_negatives, text_numbers
from bert_jax.tasks.embedding.prompts import PromptedRows, sets_prompts
from bert_jax.tasks.embedding.text_pairs import read_pairs

HEAD = "sentence_embedding"


@dataclasses.dataclass(frozen=True)
class SentenceEmbeddingTask:
    """Sentence embedding; each row has a text, its pair, and optionally a negative.

    Attributes:
        model: a Bert with head `sentence_embedding`.
        loss_name: `in_batch_negatives`: cross entropy of a text's pair among all pairs and negatives of the batch, with
            cosines times `scale` as logits. `simcse`: the same, with a text as its own pair (Gao et al. 2021,
            arXiv:2104.08821, section 3). `cosine`: squared error between cosine and label. `cosent`, `angle`:
            CoSENT over cosines or AnglE's similarities, times `scale`. `triplet`: max(distance to pair - distance to
            negative + margin, 0). `margin_mse`: squared error between the label and the dot product of text and pair
            minus that of text and negative. `none`: 0, for distillation. The others are those of
            `bert_jax.tasks.embedding.dense.label_losses`, over labels or classes.
        labelled: whether the evaluation data has labels.
        metrics: names of metrics of similarities or, without labels, of ranks (`bert_jax.metrics.KINDS`).
        scale: factor of similarities in `in_batch_negatives`, `cosent` and `angle`.
        distance: distance of triplets: `euclidean` or `cosine` (1 - cosine).
        margin: margin of triplets.
        similarity: similarity for evaluation (`bert_jax.inference.similarity.similarities`).
        contrast: further negatives of `in_batch_negatives`, and the rule by which a guide masks false ones.
        mask_duplicates: whether texts equal to a row's text or pair are not its negatives.
        guided: whether batches have a guide's embeddings (`bert_jax.tasks.embedding.dense.guide`).
        truncate_dim: number of leading dimensions for evaluation; None = all.
        parts: number of parts of the batch that are embedded one at a time, for losses that compare its rows.
        matryoshka: (dimensions, weight) of each truncation of the embeddings that is trained; () = whole embeddings.
        adaptive: settings of adaptive layers; None = only the last layer's embeddings are trained.
    """

    model: Bert
    loss_name: str
    labelled: bool = False
    metrics: tuple[str, ...] = ()
    scale: float = 20.0
    distance: str = "euclidean"
    margin: float = 1.0
    contrast: Contrast = dataclasses.field(default_factory=Contrast)
    guided: bool = False
    mask_duplicates: bool = False
    similarity: str = "cosine"
    truncate_dim: int | None = None
    parts: int = 1
    matryoshka: tuple[tuple[int, float], ...] = ()
    adaptive: AdaptiveLayers | None = None

    @property
    def compares_rows(self) -> bool:
        """Return whether the loss compares the rows of a batch with each other."""
        return EMBEDDING_LOSSES[self.loss_name].whole_batch

    @property
    def has_classes(self) -> bool:
        """Return whether each row is a text with a class."""
        return EMBEDDING_LOSSES[self.loss_name].classes

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of rows that are not padding."""
        return {"rows": jnp.maximum(batch["example_weights"].sum(), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch (see `bert_jax.jobs.base.Task`).

        A loss that compares rows (`EmbeddingLoss.whole_batch`) is not the sum of the losses of micro-batches, so the
        task gets the whole batch and splits it itself.
        """
        inputs = {name: batch[name] for name in (*TEXT_INPUTS, *QUERY_NAMES.values()) if name in batch}
        if self.loss_name == "simcse":  # a text is its own pair, with another dropout mask
            inputs = {name: jnp.repeat(array, 2, axis=1) for name, array in inputs.items()}
        layers = self.adaptive.layers(batch) if self.adaptive else []
        embed = functools.partial(self._embed, params, layers=layers)
        if self.parts == 1:
            embeddings = embed(inputs, dropout_key)
        else:
            embeddings = embed_in_parts(embed, inputs, dropout_key, self.parts)
        objective = functools.partial(self._of_cuts, batch=batch | inputs, rows=weights["rows"])
        if self.adaptive:
            return self.adaptive.loss(embeddings, objective, batch["example_weights"], weights["rows"])
        return objective(embeddings)

    def _of_cuts(self, embeddings: jax.Array, batch: Batch, rows: jax.Array) -> tuple[jax.Array, Metrics]:
        """Return the loss of embeddings [B, T, D], summed over their Matryoshka truncations, and its metrics."""
        if not self.matryoshka:
            return self._objective(embeddings, batch, rows)
        total = jnp.float32(0)
        sums: Metrics = {}
        for dimension, weight in self.matryoshka:
            loss, sums_of_cut = self._objective(truncated(embeddings, dimension), batch, rows)
            total += weight * loss
            sums |= {f"{name}_{dimension}": value for name, value in sums_of_cut.items()}
        return total, sums

    def _objective(self, embeddings: jax.Array, batch: Batch, rows: jax.Array) -> tuple[jax.Array, Metrics]:
        """Return the loss of embeddings [B, T, D], a sum over rows divided by `rows`, and its metrics."""
        real = batch["example_weights"]
        match self.loss_name:
            case _ if self.loss_name in label_losses.LABEL_LOSSES:
                options = (self.distance, self.margin, self.scale)
                losses, metrics = label_losses.label_loss(self.loss_name, embeddings, batch["labels"], real, *options)
                if not losses.ndim:  # a loss of the whole batch
                    return losses, {name: (value, jnp.float32(1)) for name, value in metrics.items()}
            case "cosent" | "angle":
                similarities = cosines if self.loss_name == "cosent" else angle_similarities
                scores = self.scale * similarities(embeddings[:, 0], embeddings[:, 1])
                loss = cosent(scores, batch["labels"], real)
                return loss, {f"{self.loss_name}_loss": (loss, jnp.float32(1))}
            case "in_batch_negatives" | "simcse":
                guide = batch[GUIDE] if self.guided else None
                texts = _numbers(batch) if self.mask_duplicates else None
                options = (self.scale, self.parts, self.contrast, guide, texts)
                losses, right = in_batch_negatives(embeddings, real, *options)
                metrics = {"cross_entropy": losses, "accuracy": right}
            case "margin_mse":
                losses = jnp.square(score_margins(embeddings) - batch["labels"])
                metrics = {"margin_mse": losses}
            case "none":
                losses, metrics = jnp.zeros_like(real), {}
            case "cosine":
                losses = jnp.square(cosines(embeddings[:, 0], embeddings[:, 1]) - batch["labels"])
                metrics = {"mse": losses}
            case _:
                losses, right = triplet(embeddings, self.distance, self.margin)
                metrics = {"triplet_loss": losses, "triplet_accuracy": right}
        count = real.sum()
        sums = {name: ((values * real).sum(), count) for name, values in metrics.items()}
        return (losses * real).sum() / rows, sums

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return `embeddings` [B, T, D] of the T texts of each row, float32, without dropout."""
        return {"embeddings": self._embed(params, batch, None)}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the chosen metrics over all rows that are not padding, and those of each Matryoshka dimension."""
        real = np.concatenate([batch["example_weights"] for batch in batches]) > 0
        embeddings = np.concatenate([prediction["embeddings"] for prediction in predictions])[real]
        labels = None
        if self.labelled or self.has_classes:
            labels = np.concatenate([batch["labels"] for batch in batches])[real]
        scores = self._scores(embeddings[..., : self.truncate_dim], labels)
        for dimension, _ in self.matryoshka:
            of_cut = self._scores(embeddings[..., :dimension], labels)
            scores |= {f"{name}_{dimension}": value for name, value in of_cut.items()}
        return scores

    def _scores(self, embeddings: np.ndarray, labels: np.ndarray | None) -> dict[str, float]:
        """Return the chosen metrics of embeddings `[n, T, D]`."""
        if labels is not None and self.has_classes:
            return measure("ranks", self.metrics, class_batches.class_ranks(embeddings[:, 0], labels, self.similarity))
        return embedding_scores(embeddings, labels, self.similarity, self.metrics)

    def alike(self, embeddings: np.ndarray) -> np.ndarray:
        """Return the similarity of the first two vectors of each row `[n, T, D]`, float64 `[n]`."""
        kept = embeddings[..., : self.truncate_dim]
        return pair_similarities(self.similarity, kept[:, 0], kept[:, 1])

    def _embed(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, layers: Sequence[jax.Array] = ()
    ) -> jax.Array:
        """Return the embeddings [B, T, D] of a batch; with n `layers`, [B, T, 1 + n, D], the last layer first."""
        if QUERY_NAMES["input_ids"] not in batch:
            return self._embed_texts(params, batch, dropout_key, layers)
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        queries = self._embed_texts(params, queries_of(batch), keys[0], layers)
        return jnp.concatenate([queries, self._embed_texts(params, batch, keys[1], layers)], axis=1)

    def _embed_texts(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, layers: Sequence[jax.Array]
    ) -> jax.Array:
        """Return the embeddings of texts of one padded length; see `_embed`."""
        rows, texts, length = batch["input_ids"].shape
        inputs = {name: batch[name].reshape(-1, length) for name in TEXT_INPUTS if name in batch}
        options: dict[str, Any] = {"output_last_hidden_state": False, "output_hidden_states": bool(layers)}
        output = self.model.apply(params, **inputs, dropout_key=dropout_key, **options)
        embeddings = output.sentence_embedding
        assert embeddings is not None
        if not layers:
            return embeddings.reshape(rows, texts, -1)
        assert output.hidden_states is not None
        states = jnp.stack(output.hidden_states[1:-1])
        masks = inputs["attention_mask"], inputs.get(POOLING_MASK)
        earlier = [self.model.embed_hidden_state(params, states[layer], *masks) for layer in layers]
        return jnp.stack([embeddings, *earlier], axis=1).reshape(rows, texts, 1 + len(layers), -1)


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of sentence embeddings names. See `bert_jax.jobs.build`."""
    if recipe.data.passages_column:
        return build_ranked(recipe)
    recipe, retrieval = separate_retrieval_sets(recipe)
    data = recipe.data
    check_embedding_keys(recipe)
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, HEAD, HEAD)
    learned, scored = pair_columns(recipe)
    limit = data.label_scale if data.loss == "cosine" else math.inf
    read = learned
    if data.validation_split:  # held-out rows need the columns of evaluation too
        read = dataclasses.replace(learned, label=scored.label or learned.label, more=learned.more or scored.more)
    if EMBEDDING_LOSSES[data.loss].classes:
        rows, held = class_batches.read_rows_with_classes(recipe, learned)
    else:
        rows, held = fine_tuning.hold_out(
            recipe, read_pairs(data.train, read, limit, fine_tuning.invalid_rows(recipe, data.train))
        )
    class_batches.check_pair_labels(rows, data)
    settings = dataclasses.replace(training_text_settings(recipe, loaded), max_length=data.max_seq_length)
    if data.loss == "simcse" and not (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
        raise InputError("config.model.hidden_dropout_prob: expected dropout above 0 for loss 'simcse', found 0")
    texts = PromptedRows(rows, learned, reads_by_role(data), limit)
    first, other = texts.pooling_skips(tokenizer, settings, data.max_seq_length)
    # Batches have a pooling mask if the config does not say it: data sets of a run may have prompts of their own.
    same = first == other and not recipe.get(fine_tuning.OPEN_MODEL)
    config = config.replace(pooling_skip=first if same else 0)
    train = texts.encode(tokenizer, settings, data.max_seq_length, config.pooling_skip)
    if compares_rows(recipe) and len(train) * max(train.size - 1, 1) < 2:
        raise InputError(f"{data.train}: expected at least 2 rows, which loss {data.loss!r} compares, found 1")
    task = dataclasses.replace(
        _task(recipe, Bert(config, HEAD, setup.compute(recipe))),
        similarity=settings.similarity,
        truncate_dim=settings.truncate_dim,
    )

    numbers = train.labels
    if data.guide:
        train = with_guide(recipe, task.model.compute, train, texts.encode)
    else:
        train = with_teacher_outputs(recipe, task.model, tokenizer, train, texts.encode)
    if data.dev and not task.has_classes:
        held = read_pairs(data.dev, scored, bad=fine_tuning.invalid_rows(recipe, data.dev))
    by_role = sets_prompts(data) or (reads_by_role(data) and not scored.label)
    held_texts = PromptedRows(held, scored, by_role)
    dev = held_texts.encode(tokenizer, settings, data.max_seq_length, config.pooling_skip) if held else None
    metadata = _metadata(learned, Columns() if task.has_classes else scored)
    metadata = dataclasses.replace(metadata, search_prompts=sets_prompts(data))
    job = fine_tuning.build_job(recipe, task, tokenizer, loaded, train, dev, metadata, settings=settings)
    query, document = texts.prompts(settings)
    if query != document:
        job = dataclasses.replace(
            job, notes=(*job.notes, f"prompts: {query!r} for queries, {document!r} for documents")
        )
    job = with_query_lengths(job, recipe)
    if task.has_classes:
        job = class_batches.with_class_batches(job, recipe, numbers)
    if retrieval is not None:
        from bert_jax.tasks.embedding.search.dev_evaluation import with_search_evaluation

        job = with_search_evaluation(job, recipe, retrieval, settings, task)
    if task.adaptive:
        job = task.adaptive.with_layers(job, config.num_hidden_layers, recipe.seed)
    return tsdae.with_decoder(job, recipe) if data.loss == "tsdae" else job


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return two rows with the columns that the loss needs."""
    if recipe.data.passages_column or EMBEDDING_LOSSES[recipe.data.loss].lists:
        return synthetic_ranked_rows(recipe)
    for name in needed_columns(recipe.data):
        recipe.data[name] = recipe.data[name] or name
    return table_rows(pair_columns(recipe)[0], ("0", "0"))


def _numbers(batch: Batch) -> jax.Array:
    """Return a number for each text, `[B, T]`; equal texts have equal numbers."""
    parts = [queries_of(batch), batch] if QUERY_NAMES["input_ids"] in batch else [batch]
    return jnp.concatenate([text_numbers(part["input_ids"], part["attention_mask"]) for part in parts], axis=1)


def _metadata(learned: Columns, scored: Columns) -> TrainingMetadata:
    """Return the metadata to save: the columns of evaluation, without negatives."""
    return TrainingMetadata(dataclasses.replace(scored, more=()))


def _task(recipe: Recipe, model: Bert) -> SentenceEmbeddingTask:
    data, labelled = recipe.data, has_similarities(recipe.data)
    matryoshka = matryoshka_cuts(data, model.config.sentence_embedding_size)
    return SentenceEmbeddingTask(
        model,
        data.loss,
        labelled,
        choose_embedding_metrics(data.metrics, labelled, bool(fine_tuning.negative_columns(data))),
        scale=data.scale,
        distance=data.distance,
        margin=data.margin,
        parts=recipe.accumulation_steps if compares_rows(recipe) else 1,
        matryoshka=matryoshka,
        adaptive=AdaptiveLayers.of_recipe(data, model.config.num_hidden_layers),
        contrast=Contrast(
            data.contrast_anchors, data.contrast_positives, data.guide_margin, data.guide_margin_strategy
        ),
        guided=bool(data.guide),
        mask_duplicates=data.mask_duplicates,
    )
