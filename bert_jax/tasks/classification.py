"""Sequence classification and regression: one label or one number for a text or a pair of texts.

Devlin et al. 2018 (arXiv:1810.04805), section 4.1.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.data.examples import Columns
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.modeling.losses import cross_entropy
from bert_jax.tasks import metrics, start
from bert_jax.tasks.classification_data import EvalSource, TrainSource, buckets_of, few_buckets, load
from bert_jax.tasks.job import Batch, Job, Metrics, Outline, Stage

HEAD = "sequence_classification"


@dataclasses.dataclass(frozen=True)
class ClassificationTask:
    """Cross entropy over classes, or the squared error of one number when the config's problem_type is regression.

    Attributes:
        model: a Bert with head `sequence_classification`.
        metrics: names of `bert_jax.tasks.metrics` to score by.
        token_dropout: share of the tokens that a step of training hides behind `mask_id`, so that an answer comes to
            rest on more than one word (Iyyer et al. 2015, ACL P15-1162, section 3.1).
        r_drop: weight of the divergence between the answers of two passes, each with dropout of its own, whose losses
            are averaged (Liang et al. 2021, arXiv:2106.14448); 0 = one pass.
        mask_id: the id of [MASK].
        special_ids: those that are never hidden.
    """

    model: Bert
    metrics: tuple[str, ...]
    token_dropout: float = 0.0
    r_drop: float = 0.0
    mask_id: int = 0
    special_ids: tuple[int, ...] = ()

    @property
    def regression(self) -> bool:
        """Whether the label is a number."""
        return self.model.config.problem_type == "regression"

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The number of real rows."""
        return {"labels": jnp.maximum(batch["example_weights"].sum(), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """The summed loss of these rows over `weights`, and its metrics (see `bert_jax.tasks.job.Task`)."""
        passes = 1
        if dropout_key is not None and self.r_drop:
            passes = 2  # as rows beside one another, which stay on their device
            batch = {name: jnp.repeat(array, passes, axis=0) for name, array in batch.items()}
        if dropout_key is not None and self.token_dropout:
            batch = batch | {"input_ids": self._hide_tokens(batch["input_ids"], dropout_key)}
        logits = self._logits(params, batch, dropout_key)
        labels, real = batch["labels"], batch["example_weights"] / passes
        count = real.sum()
        if self.regression:
            total = (jnp.square(logits[:, 0] - labels) * real).sum()
            metrics = {"mse": (total, count)}
        else:
            losses, right = cross_entropy(logits, labels)
            total, correct = (losses * real).sum(), (right * real).sum()
            metrics = {"cross_entropy": (total, count), "accuracy": (correct, count)}
        if passes > 1:
            total += self.r_drop * (self._divergence(logits) * real).sum()
        return total / weights["labels"], metrics

    def _divergence(self, logits: jax.Array) -> jax.Array:
        """For each of the rows [2B], how far the answers of its two passes are apart: the mean of both Kullback-Leibler
        divergences, or the square of the difference."""
        pairs = logits.reshape(-1, 2, logits.shape[-1])
        if self.regression:
            apart = jnp.square(pairs[:, 0, 0] - pairs[:, 1, 0])
        else:
            (p, q), (log_p, log_q) = (f(pairs).swapaxes(0, 1) for f in (jax.nn.softmax, jax.nn.log_softmax))
            apart = ((p - q) * (log_p - log_q)).sum(-1) / 2
        return jnp.repeat(apart, 2)

    def _hide_tokens(self, input_ids: jax.Array, dropout_key: jax.Array) -> jax.Array:
        # Folded with a number that no layer is counted by, so that these draws are apart from those of the model.
        hidden = jax.random.bernoulli(jax.random.fold_in(dropout_key, 2**31), self.token_dropout, input_ids.shape)
        return jnp.where(hidden & ~jnp.isin(input_ids, jnp.array(self.special_ids)), self.mask_id, input_ids)

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """`logits` [B, C] float32 without dropout; for regression C is 1."""
        return {"logits": self._logits(params, batch, None)}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """The chosen metrics over all rows that are not padding."""
        logits = np.concatenate([prediction["logits"] for prediction in predictions])
        labels, real = (np.concatenate([batch[name] for batch in batches]) for name in ("labels", "example_weights"))
        answers = logits[:, 0] if self.regression else logits.argmax(-1)
        return metrics.scores(self.metrics, labels[real > 0], answers[real > 0])

    def _logits(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> jax.Array:
        inputs = (batch[name] for name in ("input_ids", "attention_mask", "token_type_ids"))
        logits = self.model.apply(params, *inputs, dropout_key=dropout_key).logits
        assert logits is not None
        return logits


def columns(recipe: Any) -> Columns:
    """The columns that a recipe's data section names."""
    data = recipe.data
    return Columns(data.text_column, data.pair_column, data.label_column, data.has_header)


def build(recipe: Any, workdir: str) -> Job:
    """Reads the data and the model that a resolved classification recipe names. See `bert_jax.tasks.build`."""
    data, regression = recipe.data, recipe.data.task_type == "regression"
    loaded = start.pretrained(recipe, "encoder")
    tokenizer = start.tokenizer(recipe, loaded=loaded)
    config = start.config(recipe, tokenizer, loaded)
    start.check_length(data.max_seq_length, config, "config.data.max_seq_length")
    if not data.train:
        raise InputError("config.data.train: expected a file or tfds:NAME:SPLIT to learn from, found nothing")
    read = functools.partial(load, columns=columns(recipe), tokenizer=tokenizer, max_length=data.max_seq_length)
    train, names = read(data.train, names=None, regression=regression)
    dev = read(data.dev, names=names, regression=regression)[0] if data.dev else None
    config = config.replace(
        pooler=True,
        num_labels=1 if regression else len(names),
        id2label=None if regression else names,
        problem_type="regression" if regression else "single_label_classification",
    )
    model = Bert(config, HEAD, start.compute(recipe))
    buckets = buckets_of(data.length_buckets, train.lengths, data.max_seq_length)
    source = TrainSource(train, recipe.global_batch_size, buckets, tokenizer.pad_id, recipe.seed)
    eval_source = None
    if dev is not None:
        eval_source = EvalSource(
            dev, recipe.eval_batch_size, few_buckets(dev.lengths, data.max_seq_length), tokenizer.pad_id
        )
    return Job(
        task=ClassificationTask(
            model,
            metrics.choose(data.metrics, regression, len(names)),
            token_dropout=data.token_dropout,
            r_drop=recipe.r_drop,
            mask_id=tokenizer.mask_id,
            special_ids=tokenizer.special_ids,
        ),
        tokenizer=tokenizer,
        init_params=model.init,
        pretrained=loaded.params if loaded else None,
        train_source=source,
        eval_source=eval_source,
        num_steps=start.num_steps(recipe, len(train), recipe.global_batch_size),
        save=functools.partial(_save, model=model, tokenizer=tokenizer),
    )


def outline(recipe: Any) -> Outline:
    """The steps of a resolved classification recipe, by length. See `bert_jax.tasks.outline`."""
    if recipe.data.train:
        return start.outline_of(build(recipe, ""))
    length, regression = recipe.data.max_seq_length, recipe.data.task_type == "regression"
    config = start.config_without_data(recipe, "encoder")
    start.check_length(length, config, "config.data.max_seq_length")
    config = config.replace(
        pooler=True, num_labels=1 if regression else 2, problem_type="regression" if regression else None
    )
    task = ClassificationTask(Bert(config, HEAD, start.compute(recipe)), (), r_drop=recipe.r_drop)
    ids, number = jax.ShapeDtypeStruct((1, length), jnp.int32), jax.ShapeDtypeStruct((1,), jnp.float32)
    row = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ids)
    row |= {"labels": number if regression else jax.ShapeDtypeStruct((1,), jnp.int32), "example_weights": number}
    return Outline(task, task.model.init, (Stage.of_rows(recipe.num_steps, recipe.global_batch_size, row),))


def _save(directory: Any, params: Any, *, model: Bert, tokenizer: Any) -> None:
    save_pretrained(directory, model.config, HEAD, params, tokenizer)
