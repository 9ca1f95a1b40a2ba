"""Load, save and convert model directories: config.json, weights and tokenizer in the Hugging Face layout."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion import state_dict
from bert_jax.conversion.model_kinds import ConfigLike, is_encoder_decoder
from bert_jax.conversion.open_checkpoint import open_model
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError, logger
from bert_jax.head_names import ENCODER_DECODER_HEAD
from bert_jax.modeling import Bert, Params

if TYPE_CHECKING:
    from bert_jax.conversion.write_checkpoint import SavesItself

_log = logger(__name__)


class Loaded(NamedTuple):
    """The contents of a model directory.

    Attributes:
        config: the architecture.
        head: one of `modeling.HEADS`.
        params: the canonical parameter tree of numpy arrays: float32, and quantized arrays of a quantized model.
        missing: Hugging Face names of tensors that the files lack and that were freshly initialised.
        unused: names of tensors in the files that this head does not use.
        directory: the directory of the model and its tokenizer; of a file of weights, the place of its tokenizer.
        settings: prompts, similarity and other settings from sentence-transformers' files.
        format: the format of the weights: safetensors, torch, tf1 or flax.
        read: name -> (dtype, shape) of each tensor that was read, as in the files.
    """

    config: BertConfig
    head: str
    params: Params
    missing: list[str]
    unused: list[str]
    directory: storage.Path
    settings: TextSettings
    format: str
    read: dict[str, tuple[str, tuple[int, ...]]]


def load_pretrained(
    path: storage.PathLike,
    head: str | None = None,
    seed: int = 0,
    family: str = "",
    base: storage.PathLike | None = None,
    classes: int | tuple[str, ...] | None = None,
    dequantize: bool = False,
    task: str | None = None,
    config: ConfigLike | None = None,
    tokenizer: storage.PathLike | None = None,
) -> Loaded:
    """Read a model directory, tensor by tensor, without PyTorch and without running code in the files.

    Args:
        path: a directory (local or `gs://`) with `config.json` (or TensorFlow's `bert_config.json`) and weights in
            safetensors, PyTorch, Flax or TensorFlow format; a LoRA adapter written by peft, which is merged into its
            base model; a name on the hub (`hub.locate`); or one file of weights, such as `model.pt` of a training
            script (`bare_files`).
        head: one of `modeling.HEADS`; None means the saved head. For another head, the parameters that the files lack
            are freshly initialised and listed in `missing`.
        seed: seed of that initialisation.
        family: one of `bert_jax.families.FAMILIES`, which overrides config.json; "" = from config.json.
        base: directory of the base model of an adapter; None = the path in the adapter's config.
        classes: number or names of a classifier's classes; for a trained classifier, new names of its classes.
        dequantize: whether to dequantize the parameters of a quantized model.
        task: the task whose adapter is merged into the parameters, of a model with adapters for several
            (`task_adapters`); None = as sentence-transformers' files say, "" = none.
        config: the config of a file of weights, or of a directory without one: a `config.json`, its directory, a dict
            of values of `config.json`, or a `BertConfig`. None = the `config.json` beside the weights; without one,
            sizes are those of the tensors.
        tokenizer: a vocabulary file, or a directory with a tokenizer; None = beside the config or the weights.

    Raises:
        InputError: something is missing, damaged, or does not fit; the message names the file and the tensor.
    """
    with open_model(path, head, family, base, classes, task, config, tokenizer) as opened:
        matched = opened.match()
        params = state_dict.read_params(opened.model, matched, seed, opened.weights.where)
        loaded = Loaded(params=params, **opened.report(matched))
        return _dequantized(loaded) if dequantize else loaded


def _dequantized(loaded: Loaded) -> Loaded:
    """Return a model with float32 parameters."""
    quantization = loaded.config.quantization
    if quantization is None:
        return loaded
    from bert_jax.modeling.quantized import dequantize_params  # imports Flax

    _log.warning("%s: quantized (%s); its parameters are dequantized", loaded.directory, quantization.mode)
    params = jax.tree.map(np.asarray, dequantize_params(loaded.params, quantization))
    return loaded._replace(config=loaded.config.replace(quantization=None), params=params)


def saved_head(path: storage.PathLike) -> str:
    """Return the head with which a model directory was saved, `encoder_decoder` for an encoder-decoder.

    Raises:
        InputError: as for `load_pretrained`.
    """
    if is_encoder_decoder(path):
        return ENCODER_DECODER_HEAD
    with open_model(path, None, "") as opened:
        return opened.model.head


def convert(
    source: storage.PathLike,
    destination: storage.PathLike,
    tokenizer_of: "Callable[[storage.Path], SavesItself | None]",
    *,
    head: str | None = None,
    family: str = "",
    dtype: str = "float32",
    weights: str = "safetensors",
    base: storage.PathLike | None = None,
    task: str | None = None,
    config: ConfigLike | None = None,
    tokenizer: storage.PathLike | None = None,
) -> Loaded:
    """Convert a model directory to the Hugging Face layout, holding one tensor at a time in memory.

    A quantized model is dequantized, with all of it in memory.

    Args:
        source: as `path` of `load_pretrained`.
        destination: as `directory` of `save_pretrained`.
        tokenizer_of: function from a directory to its tokenizer, or to None if there is none.
        head: as for `load_pretrained`.
        family: as for `load_pretrained`.
        base: as for `load_pretrained`.
        task: as for `load_pretrained`.
        config: as for `load_pretrained`.
        tokenizer: as for `load_pretrained`.
        dtype: as for `save_pretrained`.
        weights: as for `save_pretrained`.

    Returns:
        The contents that were read, without the parameters.

    Raises:
        InputError: as for `load_pretrained` and `save_pretrained`.
    """
    from bert_jax.conversion import write_checkpoint  # not imported where models are only read

    write = write_checkpoint.writer(dtype, weights)
    with open_model(source, head, family, base, None, task, config, tokenizer) as opened:
        matched = opened.match()
        report, model, where = opened.report(matched), opened.model, opened.weights.where
        if model.config.quantization is None:
            tensors = state_dict.stored_tensors(
                model, matched, 0, np.dtype(write_checkpoint.SAVED_DTYPES[dtype]), where
            )
        else:
            loaded = _dequantized(Loaded(params=state_dict.read_params(model, matched, 0, where), **report))
            model = Bert(loaded.config, model.head)
            tensors = state_dict.stored_params(
                model.config, model.head, loaded.params, np.dtype(write_checkpoint.SAVED_DTYPES[dtype])
            )
        text_input = opened.settings.tokenizer(tokenizer_of(opened.directory))
        write_checkpoint.write_directory(
            storage.Path(destination), model, tensors, text_input, opened.settings, dtype, write,
            write_checkpoint.generation_settings(opened.directory),
        )  # fmt: skip
        return Loaded(params={}, **report)


def save_pretrained(
    directory: storage.PathLike,
    config: BertConfig,
    head: str,
    params: Params,
    tokenizer: "SavesItself | None" = None,
    *,
    settings: TextSettings | None = None,
    overwrite: bool = False,
    dtype: str = "float32",
    weights: str = "safetensors",
) -> None:
    """Write a model directory that Hugging Face transformers can load, completely or not at all.

    A model of embeddings of any kind is written as a sentence-transformers model, one of zero-shot NER as a GLiNER,
    with `gliner_config.json` in place of `config.json`. The float32
    parameters of quantization-aware training are quantized. Transformers cannot load a quantized model; `convert`
    dequantizes it.

    Args:
        directory: a new or empty directory.
        config: the architecture.
        head: one of `modeling.HEADS`.
        params: the canonical parameter tree of jax or numpy arrays.
        tokenizer: a tokenizer to save with the model.
        settings: settings to write into sentence-transformers' files; None = defaults.
        overwrite: whether to replace an existing model directory, which has no other files in it.
        dtype: dtype of the tensors in the file: float32, bfloat16 or float16.
        weights: format of the file: safetensors, or flax for Flax models of Hugging Face (transformers 4).

    Raises:
        InputError: the parameters do not fit config and head, or the directory is not empty.
    """
    from bert_jax.conversion import write_checkpoint  # not imported where models are only read
    from bert_jax.conversion.replacing import place_of_new

    write = write_checkpoint.writer(dtype, weights)
    if (quantization := config.quantization) is not None:
        if (dtype, weights) != ("float32", "safetensors"):
            raise InputError(f"a quantized model is written as float32 and safetensors, found {dtype} and {weights}")
        if quantization.stage == "training":
            from bert_jax.modeling.quantized import quantize_params  # imports Flax

            quantization = quantization.replace(stage="quantized")
            params, config = quantize_params(params, quantization), config.replace(quantization=quantization)
    tensors = state_dict.stored_params(config, head, params, np.dtype(write_checkpoint.SAVED_DTYPES[dtype]))
    home = storage.Path(directory)
    target = place_of_new(home, overwrite)
    write_checkpoint.write_directory(
        target, Bert(config, head), tensors, tokenizer, settings or TextSettings(), dtype, write
    )
    if target != home:
        storage.replace_directory(home, target)


def save_description(
    directory: storage.Path,
    config: BertConfig,
    head: str,
    params: Params,
    tokenizer: "SavesItself | None",
    settings: TextSettings,
) -> None:
    """Write the files of `save_pretrained` except for the weights of the model, for weights in another format.

    The layers after the pooling of a sentence embedding model have their weights in folders of their own.
    """
    from bert_jax.conversion import write_checkpoint  # not imported where models are only read

    tensors = state_dict.stored_params(config, head, params, np.dtype(np.float32))
    write_checkpoint.write_directory(
        directory, Bert(config, head), tensors, tokenizer, settings, "float32", lambda directory, tensors: None
    )
