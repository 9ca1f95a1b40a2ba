"""The pipeline text2text-generation: an encoder-decoder generates a text from each text, such as a summary."""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import NamedSharding

from bert_jax import sharding, storage
from bert_jax.config import BertConfig
from bert_jax.conversion.encoder_decoder import load_encoder_decoder
from bert_jax.conversion.generation_settings import GenerationSettings
from bert_jax.conversion.model_tokenizer import check_vocabulary
from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_texts
from bert_jax.inference.decoding import generate
from bert_jax.inference.programs import mesh_of
from bert_jax.modeling import Compute, EncoderDecoder, Params, resolved_dtype
from bert_jax.tokenization import Tokenizer, load_tokenizer

_run = jax.jit(generate, static_argnums=(0, 4))


@dataclasses.dataclass(frozen=True, eq=False)
class PretrainedEncoderDecoder:
    """An encoder-decoder with its parameters and its tokenizer.

    Attributes:
        config: the encoder's architecture.
        decoder_config: the decoder's architecture.
        params: the tree of `EncoderDecoder.init`, of jax arrays.
        tokenizer: the tokenizer of sources and generated texts.
        compute: dtype and platform.
        settings: the generation settings.
        max_length: number of tokens to which sources are cut.
    """

    config: BertConfig
    decoder_config: BertConfig
    params: Params = dataclasses.field(repr=False)
    tokenizer: Tokenizer
    compute: Compute
    settings: GenerationSettings
    max_length: int
    head = EncoderDecoder.head

    @property
    def encoder_decoder(self) -> EncoderDecoder:
        """Return the model as a function of parameters."""
        return EncoderDecoder(self.config, self.decoder_config, self.compute)

    @property
    def parts(self) -> int:
        """Return the number of devices among which the rows of a batch are split."""
        return sharding.batch_parts(mesh) if (mesh := mesh_of(self.params)) else 1

    def generate(
        self, input_ids: np.ndarray, attention_mask: np.ndarray, settings: GenerationSettings, keys: Any = None
    ) -> np.ndarray:
        """Generate a text for each source with `decoding.generate`; the number of rows is a multiple of `parts`."""
        check_max_length(settings, self.decoder_config)
        inputs: Any = (input_ids, attention_mask, keys)
        model, mesh = self.encoder_decoder, mesh_of(self.params)
        if mesh is None:
            return np.asarray(_run(model, self.params, *inputs[:2], settings, keys))
        with jax.set_mesh(mesh):
            ids, mask, keys = jax.device_put(inputs, NamedSharding(mesh, sharding.batch_spec()))
            return np.asarray(_run(model, self.params, ids, mask, settings, keys))

    def decode(self, tokens: np.ndarray) -> list[str]:
        """Decode the tokens of `generate` to texts."""
        texts = []
        for row in tokens[:, 1:].tolist():
            end = row.index(self.settings.eos_token_id) if self.settings.eos_token_id in row else len(row)
            texts.append(self.tokenizer.decode(row[:end]))
        return texts


def check_max_length(settings: GenerationSettings, config: BertConfig) -> None:
    """Raise InputError when texts of `max_length` do not fit the decoder's positions."""
    if settings.max_length > config.max_position_embeddings:
        raise InputError(
            f"max_length: expected at most the decoder's {config.max_position_embeddings} positions "
            f"(max_position_embeddings), found {settings.max_length}"
        )


def load_text2text(path: storage.PathLike, dtype: str = "auto") -> PretrainedEncoderDecoder:
    """Load the directory of an encoder-decoder with its tokenizer.

    Args:
        path: as for `load_encoder_decoder`.
        dtype: dtype of matrix products: `float32`, `bfloat16`, or `auto` (bfloat16 on accelerators, float32 on CPU).

    Raises:
        InputError: as for `load_encoder_decoder`, or the tokenizer does not fit encoder or decoder.
    """
    loaded = load_encoder_decoder(path)
    config, decoder_config = loaded.model.config, loaded.model.decoder_config
    tokenizer = load_tokenizer(loaded.directory)
    for part in (config, decoder_config):
        check_vocabulary(tokenizer, part, loaded.directory)
    return PretrainedEncoderDecoder(
        config, decoder_config, jax.device_put(loaded.params), tokenizer, Compute(dtype=resolved_dtype(dtype)),
        loaded.settings, config.max_position_embeddings,
    )  # fmt: skip


class Text2TextGeneration(Pipeline):
    """Generation of a text from each text, such as a summary or a translation."""

    head = EncoderDecoder.head

    @classmethod
    def load_model(cls, path: storage.PathLike, dtype: str, task: str) -> PretrainedEncoderDecoder:
        """Return the encoder-decoder of a directory."""
        return load_text2text(path, dtype)

    def __call__(
        self,
        texts: str | Sequence[str],
        max_length: int | None = None,
        min_length: int | None = None,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        early_stopping: bool | str | None = None,
        no_repeat_ngram_size: int | None = None,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        truncation: bool = True,
    ) -> list[dict[str, str]]:
        """Generate a text from each text; an option of None takes the setting of the model's files.

        Args:
            texts: one text or a list of texts.
            max_length: maximum number of tokens in a generated text, start token included.
            min_length: minimum number of tokens in a generated text.
            num_beams: number of beams of beam search; 1 = greedy search, or sampling.
            length_penalty: exponent of the length by which beam search divides log probabilities.
            early_stopping: when beam search ends: True, False or "never" (`GenerationSettings`).
            no_repeat_ngram_size: no sequence of this number of tokens occurs twice; 0 = no limit.
            do_sample: whether to sample tokens instead of searching for likely texts.
            temperature: divisor of the logits before sampling.
            top_k: number of most likely tokens to sample from; 0 = all.
            top_p: sum of the probabilities of the most likely tokens to sample from.
            seed: seed of samples. A text's sample depends on the seed and its position in the list, not on other texts.
            truncation: whether to cut texts over the model's limit; otherwise they are an error.

        Returns:
            A list of dicts with `generated_text`, also for a single text.

        Raises:
            InputError: an item is not a text or is too long, or an option does not fit.
        """
        model, text_list = cast(PretrainedEncoderDecoder, self.model), as_texts(texts)
        settings = model.settings.changed(
            max_length=max_length, min_length=min_length, num_beams=num_beams, length_penalty=length_penalty,
            early_stopping=early_stopping, no_repeat_ngram_size=no_repeat_ngram_size, do_sample=do_sample,
            temperature=temperature, top_k=top_k, top_p=top_p,
        )  # fmt: skip
        answers: list[dict[str, str]] = [{}] * len(text_list)
        for window, inputs in self._windows(text_list, truncation=truncation):
            lengths = inputs["attention_mask"].sum(axis=1)
            shapes = self._invariant_shapes(inputs, lengths) if self.batch_invariant else self._shapes(lengths)
            for rows, full, padded, _ in shapes:
                count = -(-(full or 1 << (len(rows) - 1).bit_length()) // model.parts) * model.parts
                shape = ((0, count - len(rows)), (0, padded - min(padded, inputs["input_ids"].shape[1])))
                ids, mask = (
                    np.pad(inputs[name][rows, :padded], shape, constant_values=fill)
                    for name, fill in (("input_ids", self.tokenizer.pad_id), ("attention_mask", 0))
                )
                keys = None
                if settings.do_sample:
                    numbers = np.pad(rows + window.start, shape[0])
                    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), numbers)
                texts_of_rows = model.decode(model.generate(ids, mask, settings, keys)[: len(rows)])
                for row, text in zip(rows, texts_of_rows, strict=True):
                    answers[window[row]] = {"generated_text": text}
        return answers
