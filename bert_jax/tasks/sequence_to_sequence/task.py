"""Sequence to sequence: train an encoder-decoder, made of two encoders, to generate a text from a text.

Rothe et al. 2020 (arXiv:1907.12461). The decoder sees the target up to a token and predicts the next one.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.conversion.encoder_decoder import load_encoder_decoder, save_encoder_decoder
from bert_jax.conversion.generation_settings import GenerationSettings
from bert_jax.conversion.load_pretrained import Loaded, load_pretrained
from bert_jax.conversion.model_kinds import is_encoder_decoder
from bert_jax.conversion.text_settings import NO_SETTINGS
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.columns import Columns, recipe_key
from bert_jax.errors import InputError
from bert_jax.jobs import fine_tuning, fingerprints, setup
from bert_jax.jobs.base import Job, Metrics
from bert_jax.jobs.synthetic_rows import WORD, table_rows
from bert_jax.jobs.training_metadata import TrainingMetadata, write_training_metadata
from bert_jax.metrics.ratios import ratios
from bert_jax.modeling import EncoderDecoder, Params
from bert_jax.recipes import Recipe
from bert_jax.storage import PathLike
from bert_jax.tasks.sequence_to_sequence.data import NO_LABEL, encode_source_targets, read_source_targets
from bert_jax.tokenization import Tokenizer, has_tokenizer, load_tokenizer

# Metric -> names of its numerator and denominator in the predictions.
_RATIOS = {"cross_entropy": ("cross_entropies", "tokens"), "accuracy": ("correct", "tokens")}


@dataclasses.dataclass(frozen=True)
class SequenceToSequenceTask:
    """Sequence to sequence; the loss is the cross entropy over the target's tokens.

    Attributes:
        model: encoder and decoder.
        label_smoothing: fraction of a token's probability that is spread evenly over the vocabulary.
    """

    model: EncoderDecoder
    label_smoothing: float = 0.0

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of tokens to predict."""
        return {"tokens": jnp.maximum(_real_labels(batch).sum(), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`)."""
        out, real = self._output(params, batch, dropout_key), _real_labels(batch)
        count = real.sum()
        metrics = {
            "cross_entropy": ((out.cross_entropies * real).sum(), count),
            "accuracy": ((out.correct * real).sum(), count),
        }
        return (out.losses * real).sum() / weights["tokens"], metrics

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return for each row [B] the sums from which the metrics are computed, without dropout."""
        out, real = self._output(params, batch, None), _real_labels(batch)
        sums = {"cross_entropies": out.cross_entropies * real, "correct": out.correct * real, "tokens": real}
        return {name: values.sum(axis=1) for name, values in sums.items()}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return cross entropy, perplexity and accuracy of the next token over all targets."""
        scores = ratios(predictions, _RATIOS)
        return scores | {"perplexity": math.exp(min(scores["cross_entropy"], 700.0))}

    def _output(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> Any:
        return self.model.apply(
            params, batch["input_ids"], batch["attention_mask"], batch["decoder_input_ids"],
            labels=jnp.maximum(batch["labels"], 0), label_smoothing=self.label_smoothing, dropout_key=dropout_key,
        )  # fmt: skip


def _real_labels(batch: Batch) -> jax.Array:
    """Return 1 for labels, 0 for padding, float32 `[B, T]`."""
    real: jax.Array = (batch["labels"] != NO_LABEL).astype(jnp.float32)
    return real


def _columns(recipe: Recipe) -> Columns:
    data = recipe.data
    return Columns(
        data.source_column, "", data.target_column, data.has_header, delimiter=data.delimiter, encoding=data.encoding,
        option=recipe_key, roles={"text": "source", "label": "target"},
    )  # fmt: skip


class _Start(NamedTuple):
    """The model that a recipe starts from: its parameters are None without init_from."""

    model: EncoderDecoder
    params: Params | None
    tokenizer: Tokenizer


def build(recipe: Recipe) -> Job:
    """Read the data and models that a resolved recipe of sequence to sequence names. See `bert_jax.jobs.build`."""
    data = recipe.data
    _check(recipe)
    if not data.train:
        raise InputError("config.data.train: expected a file or tfds:NAME:SPLIT to learn from, found nothing")
    model, params, tokenizer = _start(recipe)
    _check_lengths(recipe, model)
    columns = _columns(recipe)
    rows, held = fine_tuning.train_and_dev(recipe, lambda spec, invalid: read_source_targets(spec, columns, invalid))
    train, *dev = (
        encode_source_targets(tokenizer, part, data.max_seq_length, data.max_target_length)
        for part in (rows, held) if part
    )  # fmt: skip
    task = SequenceToSequenceTask(model, recipe.label_smoothing)
    settings = _settings(recipe, tokenizer)
    job = fine_tuning.build_job(recipe, task, tokenizer, None, train, dev[0] if dev else None)

    def save(directory: PathLike, params: Params) -> None:
        save_encoder_decoder(directory, model, params, settings, tokenizer)
        write_training_metadata(directory, TrainingMetadata(columns))

    def fingerprint() -> dict[str, Any]:
        return job.data() | {"decoder": fingerprints.of_config(model.decoder_config)}

    return dataclasses.replace(job, pretrained=params, save=save, data=fingerprint)


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return rows whose targets have `max_target_length` tokens."""
    target = " ".join([WORD] * recipe.data.max_target_length)
    return table_rows(_columns(recipe), (target,))


def _check(recipe: Recipe) -> None:
    """Raise InputError for settings that this task does not support."""
    for name, value in (("lora.rank", recipe.lora.rank), ("distillation.teacher", recipe.distillation.teacher),
                        ("quantization.mode", recipe.quantization.mode)):  # fmt: skip
        if value:
            raise InputError(f"config.{name}: expected none for sequence to sequence, found {value}")


def _check_lengths(recipe: Recipe, model: EncoderDecoder) -> None:
    data = recipe.data
    setup.check_length(data.max_seq_length, model.config, "config.data.max_seq_length")
    setup.check_length(data.max_target_length, model.decoder_config, "config.data.max_target_length")
    if data.max_target_length > data.max_seq_length:
        raise InputError(f"config.data.max_target_length: expected at most max_seq_length ({data.max_seq_length}), to "
                         f"which sources are padded, found {data.max_target_length}")  # fmt: skip


def _settings(recipe: Recipe, tokenizer: Tokenizer) -> GenerationSettings:
    """Return the generation settings of the trained model."""
    generation = recipe.generation
    try:
        return GenerationSettings(
            decoder_start_token_id=tokenizer.cls_id,
            eos_token_id=tokenizer.sep_id,
            pad_token_id=tokenizer.pad_id,
            max_length=recipe.data.max_target_length,
            num_beams=generation.num_beams,
            length_penalty=generation.length_penalty,
            no_repeat_ngram_size=generation.no_repeat_ngram_size,
        )
    except InputError as error:
        raise InputError(f"config.generation: {error}") from None


def _start(recipe: Recipe) -> _Start:
    """Open the encoder-decoder or the encoders that a recipe starts from, or make a model with random parameters.

    Raises:
        InputError: keys contradict each other, or the models have different vocabularies.
    """
    compute, other = setup.compute(recipe), recipe.decoder_init_from
    if other and (not recipe.init_from or is_encoder_decoder(recipe.init_from)):
        init_from = "an encoder-decoder" if recipe.init_from else "nothing"
        raise InputError(f"config.decoder_init_from: expected an encoder in init_from too, found {init_from}")
    if recipe.init_from and recipe.model.decoder_layers:
        raise InputError(f"config.model.decoder_layers: expected 0 with init_from, found {recipe.model.decoder_layers}")
    if recipe.init_from and is_encoder_decoder(recipe.init_from):
        pretrained = load_encoder_decoder(recipe.init_from)
        parts = [
            Loaded(config, head, {}, [], [], pretrained.directory, NO_SETTINGS, "safetensors", {})
            for config, head in ((pretrained.model.config, "encoder"), (pretrained.model.decoder_config, "decoder"))
        ]
        tokenizer = setup.tokenizer(recipe, loaded=parts[0])
        config, decoder = (setup.config(recipe, tokenizer, part) for part in parts)
        params: Params = {**pretrained.params, "encoder": _without(pretrained.params["encoder"], "pooler")}
        return _Start(EncoderDecoder(config.replace(pooler=False), decoder, compute), params, tokenizer)
    encoder = setup.pretrained(recipe, "encoder")
    tokenizer = setup.tokenizer(recipe, loaded=encoder)
    config = setup.config(recipe, tokenizer, encoder).replace(pooler=False)
    if encoder is None:
        return _Start(EncoderDecoder(config, _fresh_decoder(recipe, config), compute), None, tokenizer)
    place = other or recipe.init_from
    _check_same_tokenizer(place, tokenizer)
    loaded = load_pretrained(place, "decoder", dequantize=True)
    model = EncoderDecoder(config, setup.config(recipe, tokenizer, loaded), compute)
    fresh = ("cross_attention", *(("mlm",) if any(name.startswith("mlm/") for name in loaded.missing) else ()))
    params = {"encoder": _without(encoder.params, "pooler"), "decoder": _without(loaded.params, *fresh)}
    return _Start(model, params, tokenizer)


def _fresh_decoder(recipe: Recipe, config: Any) -> Any:
    """Return the encoder's architecture for a new decoder, with `decoder_layers` layers if set."""
    return config.replace(num_hidden_layers=recipe.model.decoder_layers or config.num_hidden_layers)


def _without(params: Params, *names: str) -> Params:
    return {name: part for name, part in params.items() if name not in names}


def _check_same_tokenizer(place: PathLike, tokenizer: Tokenizer) -> None:
    """Raise InputError when the decoder's directory has another vocabulary than the encoder's."""
    if has_tokenizer(place) and load_tokenizer(place).fingerprint != tokenizer.fingerprint:
        raise InputError(
            f"config.decoder_init_from: expected a model with the vocabulary of the encoder, found another in {place}"
        )
