"""Text classification from few labels (SetFit; Tunstall et al. 2022, arXiv:2209.11055).

Pairs of texts train a model of sentence embeddings: the cosine of two texts is 1 for one class, and 0 for two classes.
A logistic regression over the embeddings of the training texts is the classifier of the finished model.
"""

import dataclasses
import functools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import sharding
from bert_jax.conversion.save_pretrained import save_pretrained
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import INPUTS, Batch
from bert_jax.data.finetuning.batching import EvalSource, TrainSource, few_buckets
from bert_jax.data.finetuning.features import Features, encode_texts
from bert_jax.data.finetuning.labelled_rows import count_classes, labels_of, read_labelled
from bert_jax.data.finetuning.labels import LabelRules
from bert_jax.data.finetuning.tables import Example
from bert_jax.errors import InputError
from bert_jax.jobs import fine_tuning, fingerprints, setup
from bert_jax.jobs.base import Job, Metrics, real_rows
from bert_jax.jobs.synthetic_rows import table_rows
from bert_jax.jobs.training_metadata import TrainingMetadata, write_training_metadata
from bert_jax.metrics import scores as metrics
from bert_jax.modeling import Bert, Params
from bert_jax.modeling.pooling import l2_normalize
from bert_jax.recipes import Recipe
from bert_jax.storage import PathLike
from bert_jax.tasks.few_labels.data import FITTED, FittedAndEvaluated, draw_pairs
from bert_jax.tasks.few_labels.logistic_regression import fit_classifier

HEAD = "sentence_embedding"
_EMBEDDED = 64  # texts of a batch when the finished model embeds its training texts


@dataclasses.dataclass(frozen=True)
class FewLabelsTask:
    """Sentence embeddings in which texts of one class are alike, evaluated by a classifier over them.

    Attributes:
        model: a Bert with head `sentence_embedding`.
        metrics: names of `bert_jax.metrics.scores`.
        num_classes: number of classes.
        regularization_c: C of the logistic regression.
    """

    model: Bert
    metrics: tuple[str, ...]
    num_classes: int
    regularization_c: float = 1.0

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of pairs that are not padding."""
        return {"rows": jnp.maximum(batch["example_weights"].sum(), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the squared error of cosines, and its metric (see `bert_jax.jobs.base.Task`)."""
        units = l2_normalize(self._embed(params, batch, dropout_key))  # [B, 2, D]
        losses = jnp.square((units[:, 0] * units[:, 1]).sum(-1) - batch["labels"])
        real = batch["example_weights"]
        total = (losses * real).sum()
        return total / weights["rows"], {"mse": (total, real.sum())}

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return the `embeddings` [B, D] of texts, float32, without dropout."""
        return {"embeddings": self._embed(params, batch, None)}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the metrics of a classifier that is fitted on the training texts, over the other texts."""
        embeddings, labels = real_rows(predictions, "embeddings", batches), real_rows(batches, "labels", batches)
        fitted = real_rows(batches, FITTED, batches) > 0
        layer = fit_classifier(embeddings[fitted], labels[fitted], self.regularization_c)
        answers = (embeddings[~fitted] @ layer["kernel"] + layer["bias"]).argmax(-1)
        return metrics.compute_metrics(self.metrics, labels[~fitted], answers, self.num_classes)

    def classifier(self, params: Params, texts: Features, pad_id: int) -> Params:
        """Return the classifier over the embeddings of its training texts, on one device of this process."""
        source = EvalSource(texts, _EMBEDDED, few_buckets(texts.lengths, int(texts.lengths.max())), pad_id)
        with jax.set_mesh(sharding.make_mesh(devices=jax.local_devices()[:1])):
            predict = jax.jit(self.predict)
            batches = [source.batch(i) for i in range(source.num_batches)]
            rows = [np.asarray(predict(params, batch)["embeddings"]) for batch in batches]
        return fit_classifier(source.restore(rows), texts.labels, self.regularization_c)

    def _embed(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> jax.Array:
        """Return the embeddings [..., D] of texts [..., S]."""
        shape = batch["input_ids"].shape
        inputs = [batch[name].reshape(-1, shape[-1]) for name in INPUTS]
        output = self.model.apply(params, *inputs, dropout_key=dropout_key, output_last_hidden_state=False)
        embeddings = output.sentence_embedding
        assert embeddings is not None
        return embeddings.reshape(*shape[:-1], -1)


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of few labels names. See `bert_jax.jobs.build`."""
    data, columns = recipe.data, fine_tuning.table_columns(recipe)
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, HEAD, HEAD)
    setup.check_head(config, "sequence_classification")
    settings = dataclasses.replace(loaded.settings if loaded else TextSettings(), max_length=data.max_seq_length)
    prompt = settings.prompt()
    if settings.pooling_skip(tokenizer, prompt, data.max_seq_length):
        raise InputError(f"{recipe.init_from}: expected include_prompt true for a classifier, found false")
    rules = LabelRules(data.near_duplicate_labels, data.missing_labels, tuple(map(str, data.label_names)))
    rows, names = read_labelled(
        data.train, columns, None, regression=False, bad=fine_tuning.invalid_rows(recipe, data.train), rules=rules
    )
    rows, held = fine_tuning.hold_out(recipe, rows, classes=labels_of(rows, columns, names))
    if data.dev:
        bad = fine_tuning.invalid_rows(recipe, data.dev)
        held, _ = read_labelled(data.dev, columns, names, regression=False, bad=bad, rules=rules)

    def encoded(side: list[Example]) -> Features:
        prompted = [row._replace(text=prompt + row.text) for row in side]
        return encode_texts(tokenizer, prompted, labels_of(side, columns, names), data.max_seq_length)

    texts, dev = encoded(rows), FittedAndEvaluated(encoded(rows + held), len(rows)) if held else None
    best = recipe.best_metric.removeprefix("eval/")
    task = FewLabelsTask(
        Bert(config.replace(pooler=False), HEAD, setup.compute(recipe)),
        metrics.choose_metrics(data.metrics, False, len(names), False, best),
        len(names),
        data.regularization_c,
    )
    if loaded:
        loaded = loaded._replace(params={name: part for name, part in loaded.params.items() if name != "pooler"})
    pairs = draw_pairs(texts, texts.labels, data.pairs_per_text, recipe.seed)
    metadata = TrainingMetadata(columns, count_classes(rows, columns, names), rules.missing)
    job = fine_tuning.build_job(recipe, task, tokenizer, loaded, pairs, dev, metadata)
    classifier = task.model.config.replace(
        classifies_embedding=True,
        num_labels=len(names),
        id2label=names,
        problem_type="single_label_classification",
    )

    def save(directory: PathLike, params: Params) -> None:
        """Fit the classifier, and write the model with it as a sequence classifier."""
        whole = params | {"classifier": task.classifier(params, texts, tokenizer.pad_id)}
        save_pretrained(directory, classifier, "sequence_classification", whole, tokenizer, settings=settings)
        write_training_metadata(directory, metadata)

    lengths = cast(TrainSource, job.train_source).buckets
    data_of_run = functools.partial(fingerprints.of_fine_tuning, tokenizer, classifier, texts, dev, lengths)
    return dataclasses.replace(job, save=save, data=data_of_run)


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return two rows of each of two classes."""
    return table_rows(fine_tuning.table_columns(recipe), ("0", "1", "0", "1"))
