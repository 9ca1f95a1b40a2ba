"""Zero-shot named entity recognition: a GLiNER learns to score spans for entity types that are named in its prompt.

Zaratiana et al. 2023 (arXiv:2311.08526), section 2.3: binary cross entropy over spans and types.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.gliner import GlinerConfig
from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.conversion.model_kinds import is_gliner
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.data.finetuning.columns import Columns
from bert_jax.errors import InputError, did_you_mean
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.added_rows import with_word_rows
from bert_jax.jobs.base import Job, Metrics
from bert_jax.jobs.synthetic_rows import WORD
from bert_jax.jobs.teaching import distillation_of
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics import entities
from bert_jax.modeling import Bert
from bert_jax.recipes import Recipe
from bert_jax.tasks.zero_shot_ner.batches import GlinerSource, encode_span_texts
from bert_jax.tasks.zero_shot_ner.data import SPAN_COLUMNS, read_span_texts, type_counts, types_of
from bert_jax.tasks.zero_shot_ner.rows import RowMaker
from bert_jax.tasks.zero_shot_ner.span_decoding import ScoredSpans, choose_spans
from bert_jax.tokenization import Tokenizer
from bert_jax.tokenization.special_tokens import with_special_tokens

HEAD = "zero_shot_ner"
SPAN_METRICS = (*entities.ENTITY_METRICS, "types")
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "word_positions", "type_positions")
# Settings that determine the parameters of a trained head, or their meaning.
_SHAPING = ("hidden_size", "num_rnn_layers", "embed_ent_token")
_FIELDS = ("max_width", "dropout", "max_types", "max_neg_type_ratio", *_SHAPING)
_USUAL_TYPES, _USUAL_SPANS = 25, 16  # types, and spans per row, of synthetic rows


@dataclasses.dataclass(frozen=True)
class ZeroShotNerTask:
    """Zero-shot NER; the loss is the binary cross entropy over spans and types, summed over types.

    Attributes:
        model: a Bert with head `zero_shot_ner`.
        names: names of the types of the data.
        metrics: names of `SPAN_METRICS`.
    """

    model: Bert
    names: tuple[str, ...]
    metrics: tuple[str, ...] = entities.ENTITY_METRICS

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of spans."""
        return {"spans": jnp.maximum(self._count(batch), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`)."""
        logits = self._logits(params, batch, dropout_key)  # logits of padding are so low that their loss is 0
        labels = span_labels(batch["spans"], logits.shape)
        total = (jax.nn.softplus(logits) - labels * logits).sum()
        return total / weights["spans"], {"binary_cross_entropy": (total, self._count(batch))}

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return for each span its most probable type, `kinds` [B, W, K] int32, and its `logits` [B, W, K]."""
        logits = self._logits(params, batch, None)
        return {"kinds": logits.argmax(-1).astype(jnp.int32), "logits": logits.max(-1)}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the chosen metrics of non-overlapping entities over all types."""
        gold, predicted = gold_spans(batches), chosen_spans(predictions, batches)
        return entities.span_scores(self.metrics, self.names, gold, predicted)

    def _logits(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> jax.Array:
        inputs = {name: batch[name] for name in _INPUTS}
        logits = self.model.apply(params, **inputs, dropout_key=dropout_key).logits
        assert logits is not None
        return logits  # [B, W, K, T]

    def _count(self, batch: Batch) -> jax.Array:
        assert self.model.config.gliner is not None
        words = (batch["word_positions"] > 0).sum(axis=1, keepdims=True)
        widths = jnp.clip(words - jnp.arange(batch["word_positions"].shape[1]), 0, self.model.config.gliner.max_width)
        return widths.sum().astype(jnp.float32)


def span_labels(spans: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Return float32 labels `[B, W, K, T]` = `shape`, 1 for each of `spans [B, E, 3]`: first word, end, type.

    Padding (-1) and spans wider than K words are left out.
    """
    row = jnp.arange(spans.shape[0])[:, None]
    start, stop, kind = (spans[..., i] for i in range(3))
    start = jnp.where(start < 0, shape[1], start)  # an index out of range: nothing is written there
    labels = jnp.zeros(shape, jnp.float32)
    return labels.at[row, start, stop - start - 1, kind].set(1.0, mode="drop")


def gold_spans(batches: Sequence[Batch]) -> np.ndarray:
    """Return the gold spans of evaluation batches, int `[m, 4]`: text, first word, word after the last, type."""
    spans = []
    for batch in batches:
        row, at = np.nonzero(batch["spans"][..., 0] >= 0)
        start, stop, kind = batch["spans"][row, at].T
        first = batch["windows"][row, 0]
        kinds = batch["type_numbers"][row, kind]
        spans.append(np.stack([batch["documents"][row], start + first, stop + first, kinds], axis=1))
    return np.unique(np.concatenate(spans), axis=0)


def chosen_spans(predictions: Sequence[Mapping[str, np.ndarray]], batches: Sequence[Batch]) -> np.ndarray:
    """Return non-overlapping spans with a probability above 0.5 in evaluation batches, in the form of `gold_spans`."""
    parts = []
    for prediction, batch in zip(predictions, batches, strict=True):
        row, word, width = np.nonzero(prediction["logits"] > 0)
        first, own_start, own_stop = batch["windows"][row].T
        start, document = word + first, batch["documents"][row]
        kinds = batch["type_numbers"][row, prediction["kinds"][row, word, width]]
        predicted = np.stack([document, start, start + width + 1, kinds], axis=1)
        used = (own_start <= start) & (start < own_stop) & (document >= 0)
        parts.append((predicted[used], prediction["logits"][row, word, width][used]))
    spans, logits = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((spans[:, 3], spans[:, 2], spans[:, 1], spans[:, 0]))
    spans, logits = spans[order], logits[order]
    chosen = [np.zeros((0, 4), np.int64)]
    for document in np.unique(spans[:, 0]):
        rows = spans[:, 0] == document
        picked = choose_spans(ScoredSpans(spans[rows, 1], spans[rows, 2], spans[rows, 3], logits[rows]))
        chosen.append(np.stack([np.full(len(picked.start), document), *picked[:3]], axis=1))
    return np.concatenate(chosen)


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of zero-shot NER names. See `bert_jax.jobs.build`."""
    data = recipe.data
    if distillation_of(recipe):
        teacher = recipe.distillation.teacher
        raise InputError(f"config.distillation.teacher: expected none for zero-shot NER, found {teacher}")
    if not data.train:
        raise InputError("config.data.train: expected a file or tfds:NAME:SPLIT to learn from, found nothing")
    model, tokenizer, loaded = _starting_model(recipe)
    columns = Columns(data.text_column, "", data.label_column)
    renamed = types_of(tuple(data.type_names), "config.data.type_names")
    texts = read_span_texts(data.train, columns, renamed, fine_tuning.invalid_rows(recipe, data.train, "text"))
    texts, held = fine_tuning.hold_out(recipe, texts)
    if data.dev:
        held = read_span_texts(data.dev, columns, renamed, fine_tuning.invalid_rows(recipe, data.dev, "text"))
    counts, evaluated = type_counts(texts), type_counts(held)
    if not counts:
        raise InputError(f"{data.train}: expected spans with types, found none")
    for name in data.metrics:
        if name not in SPAN_METRICS:
            raise InputError(f"data.metrics: {name!r} is not a metric of entities{did_you_mean(name, SPAN_METRICS)}")
    assert model.config.gliner is not None
    maker = RowMaker(tokenizer, model.config.gliner)
    train = encode_span_texts(maker, texts, tuple(counts), data.max_seq_length, training=True)
    dev = None
    if held and evaluated:
        dev = encode_span_texts(maker, held, tuple(evaluated), data.max_seq_length, training=False)
    task = ZeroShotNerTask(model, tuple(evaluated), tuple(data.metrics) or entities.ENTITY_METRICS)
    job = fine_tuning.build_job(recipe, task, tokenizer, loaded, train, dev, TrainingMetadata(columns))
    plain = job.train_source
    assert isinstance(plain, TrainSource)
    source = GlinerSource(train, plain.batch_size, plain.buckets, tokenizer.pad_id, recipe.seed)
    return dataclasses.replace(job, train_source=source)


def _starting_model(recipe: Recipe) -> tuple[Bert, Tokenizer, Loaded | None]:
    """Return the model, the tokenizer with the tokens of prompts, and the parameters to start from.

    Raises:
        InputError: a key of the recipe does not fit the trained head of init_from.
    """
    trained = bool(recipe.init_from) and is_gliner(recipe.init_from)
    loaded = setup.pretrained(recipe, HEAD if trained else "encoder")
    tokenizer = setup.tokenizer(recipe, loaded=loaded)
    before = (loaded.config.gliner if loaded else None) or GlinerConfig()
    named_settings = {name: recipe.data[name] for name in _FIELDS if recipe.data[name] is not None}
    for name in _SHAPING if trained else ():
        if named_settings.get(name, getattr(before, name)) != getattr(before, name):
            expected = f"{getattr(before, name)}, as in the model of init_from"
            raise InputError(f"config.data.{name}: expected {expected}, found {named_settings[name]}")
    gliner = dataclasses.replace(before, **named_settings)
    if tokenizer.token_to_id(gliner.ent_token) is None or tokenizer.token_to_id(gliner.sep_token) is None:
        tokenizer = with_special_tokens(tokenizer, gliner.added_tokens)
    if loaded:
        loaded = with_word_rows(loaded, tokenizer.vocab_size, recipe.seed)
        loaded = loaded._replace(config=loaded.config.replace(gliner=gliner))
    config = setup.config(recipe, tokenizer, loaded).replace(gliner=gliner)
    setup.check_head(config, HEAD)
    setup.check_length(recipe.data.max_seq_length, config, "config.data.max_seq_length")
    return Bert(config, HEAD, setup.compute(recipe)), tokenizer, loaded


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return one text per synthetic type, each with the same number of spans."""
    columns = Columns(recipe.data.text_column, "", recipe.data.label_column).filled(SPAN_COLUMNS)
    types = map(str, range(_USUAL_TYPES))
    return [{columns.text: [WORD], columns.label: [[0, 0, name]] * _USUAL_SPANS} for name in types]
