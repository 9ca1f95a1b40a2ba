"""Quantize a finished model directory."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import storage
from bert_jax.config.quantization import Quantization
from bert_jax.conversion.file_names import RECORD
from bert_jax.conversion.load_pretrained import load_pretrained
from bert_jax.conversion.model_tokenizer import open_tokenizer
from bert_jax.conversion.save_pretrained import save_pretrained
from bert_jax.errors import InputError
from bert_jax.jobs.training_metadata import read_training_metadata, write_training_metadata
from bert_jax.modeling import Bert, Params
from bert_jax.modeling.quantized import quantize_params
from bert_jax.parameter_sharding import parameter_name
from bert_jax.tokenization import Tokenizer, has_tokenizer

Text = str | tuple[str, str]  # a text, or a pair of texts
CALIBRATION_ROWS = 512
_ROWS = 32  # number of texts per forward pass of calibration
# Calibration texts are cut to these lengths, so that no batch has padding, which would change scales but no results.
_LENGTHS = (3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


class QuantizedModel(NamedTuple):
    """A summary of a quantized model.

    Attributes:
        parameters: number of parameters of the model.
        quantized: number of quantized parameters.
        bytes_before: bytes of the parameters in float32.
        bytes_after: bytes of the quantized model's arrays.
        calibrated: number of texts of the calibration; 0 without calibration.
    """

    parameters: int
    quantized: int
    bytes_before: int
    bytes_after: int
    calibrated: int


def quantize(
    model: storage.PathLike,
    out: storage.PathLike,
    quantization: Quantization,
    calibration: Iterable[Text] = (),
    rows: int = CALIBRATION_ROWS,
) -> QuantizedModel:
    """Quantize a model directory, and write the quantized model with its tokenizer and settings.

    Symmetric quantization after training, with a scale for each output of a dense layer and each row of a table
    (Wu et al. 2020, arXiv:2004.09602, sections 3 and 4). `from_pretrained` and every command open the result;
    transformers cannot.

    Args:
        model: a model directory whose parameters are floating point.
        out: a new or empty directory.
        quantization: mode, patterns of parameters that stay float32, and group size.
        calibration: texts or pairs like those of later inference, for mode int8_static.
        rows: number of texts of `calibration` to use.

    Raises:
        InputError: the model is quantized already, a pattern matches no parameter, the calibration set is missing,
            empty or not needed, or the group size does not divide the inputs of a layer.
    """
    loaded = load_pretrained(model)
    if loaded.config.quantization is not None:
        raise InputError(f"{model}: expected a model that is not quantized, found mode "
                         f"{loaded.config.quantization.mode}; quantize the model that it was made from")  # fmt: skip
    before = {parameter_name(path): leaf.size for path, leaf in jax.tree_util.tree_leaves_with_path(loaded.params)}
    quantization.check_keep(before, "--keep")
    quantized = [path for path in before if quantization.quantizes(path)]
    if not quantized:
        raise InputError("--keep: expected patterns that leave a parameter to quantize, found none left")
    tokenizer = open_tokenizer(loaded) if has_tokenizer(loaded.directory) else None
    config = loaded.config.replace(quantization=quantization)
    params, calibrated = quantize_params(loaded.params, quantization), 0
    if quantization.inputs == "static":
        texts = list(itertools.islice(calibration, rows))
        if not texts:
            raise InputError("--calibration: expected texts, from which mode int8_static takes the scales of inputs, "
                             "found none")  # fmt: skip
        if tokenizer is None:
            raise InputError(f"{loaded.directory}: expected a tokenizer for the calibration texts, found none")
        scales = input_scales(Bert(config, loaded.head), params, tokenizer, texts)
        params, calibrated = merge_scales(params, scales), len(texts)
    params = jax.tree.map(np.asarray, params)
    with storage.directory_atomically(storage.Path(out)) as beside:
        save_pretrained(beside, config, loaded.head, params, tokenizer, settings=loaded.settings)
        if (loaded.directory / RECORD).exists():
            write_training_metadata(beside, read_training_metadata(loaded.directory))
    total = sum(before.values())
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    return QuantizedModel(total, sum(before[path] for path in quantized), 4 * total, size, calibrated)


def input_scales(model: Bert, params: Params, tokenizer: Tokenizer, texts: Sequence[Text]) -> Params:
    """Return the scale of each quantized dense layer's input: the largest absolute value in all texts / 127.5.

    Args:
        model: a model of mode int8_static.
        params: its parameters; their own input scales are ignored.
        tokenizer: the model's tokenizer.
        texts: at least one text or pair.

    Returns:
        The parts of the tree with an `input_scale`; a layer that the model's head does not use has scale 1.
    """
    assert model.config.quantization is not None
    quantization = model.config.quantization.replace(stage="calibrating")
    model = Bert(model.config.replace(quantization=quantization), model.head, model.compute)
    start, largest = jax.tree.map(jnp.asarray, _scales_of(params)), None
    for batch in _batches(model, tokenizer, texts):
        scales = jax.device_get(_largest(model, start, params, batch))
        largest = scales if largest is None else jax.tree.map(np.maximum, largest, scales)
    if largest is None:
        raise InputError("--calibration: expected a text of at least one token, found only empty texts")
    return jax.tree.map(lambda scale: np.where(scale > 0, scale, np.float32(1)), largest)


def merge_scales(params: Params, scales: Params) -> Params:
    """Return the parameters with the input scales of `input_scales`."""
    return params | {
        name: merge_scales(params[name], value) if isinstance(value, dict) else value for name, value in scales.items()
    }


def _scales_of(params: Params) -> Params:
    """Return the parts of a tree that have an `input_scale`."""
    parts = {name: _scales_of(value) for name, value in params.items() if isinstance(value, dict)}
    nonempty_parts = {name: part for name, part in parts.items() if part}
    return nonempty_parts | ({"input_scale": params["input_scale"]} if "input_scale" in params else {})


@functools.partial(jax.jit, static_argnums=0)
def _largest(model: Bert, scales: Params, params: Params, batch: dict[str, Any]) -> Params:
    """Return the input scales of a batch, which a model with stage `calibrating` returns as gradients of the scales."""

    def total(scales: Params) -> jax.Array:
        output = model.apply(merge_scales(params, scales), **batch)
        return sum((leaf.astype(jnp.float32).sum() for leaf in jax.tree.leaves(output)), jnp.float32(0))

    return jax.grad(total)(scales)


def _batches(model: Bert, tokenizer: Tokenizer, texts: Sequence[Text]) -> Iterator[dict[str, Any]]:
    """Yield batches of texts of one length, without padding: each text is cut to the longest of `_LENGTHS` it fills."""
    by_length: dict[int, list[Text]] = {}
    lengths = [length for length in _LENGTHS if length <= model.config.max_position_embeddings]
    for text in texts:
        num_tokens = tokenize_texts(tokenizer, [text])["input_ids"].shape[1]
        if fitting := [length for length in lengths if length <= num_tokens]:
            by_length.setdefault(fitting[-1], []).append(text)
    for length, members in sorted(by_length.items()):
        for start in range(0, len(members), _ROWS):
            # Texts are repeated so that all batches of one length have the same shape.
            rows = list(itertools.islice(itertools.cycle(members[start : start + _ROWS]), _ROWS))
            inputs = tokenize_texts(tokenizer, rows, max_length=length)
            names = ["input_ids"] + ["token_type_ids"] * (model.config.type_vocab_size > 1)
            expand = model.head == "multiple_choice"
            yield {name: inputs[name][:, None] if expand else inputs[name] for name in names}


def tokenize_texts(tokenizer: Tokenizer, texts: Sequence[Text], **options: Any) -> dict[str, Any]:
    """Tokenize texts, or pairs, with options of `Tokenizer.__call__`."""
    if isinstance(texts[0], str):
        return tokenizer(texts, **options)  # type: ignore[arg-type]
    firsts, seconds = zip(*texts, strict=True)
    return tokenizer(firsts, seconds, **options)
