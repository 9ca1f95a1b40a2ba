"""Load a model directory: config.json and weights in the Hugging Face layout, read tensor by tensor."""

from typing import NamedTuple

import jax
import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion import state_dict
from bert_jax.conversion.model_kinds import ConfigLike, is_encoder_decoder
from bert_jax.conversion.open_checkpoint import open_model
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import logger
from bert_jax.head_names import ENCODER_DECODER_HEAD
from bert_jax.modeling import Params

_log = logger(__name__)


class Loaded(NamedTuple):
    """The contents of a model directory.

    Attributes:
        config: the architecture.
        head: one of `modeling.HEADS`.
        params: the canonical parameter tree of numpy arrays: float32, and quantized arrays of a quantized model.
        missing: Hugging Face names of tensors that the files lack and that were freshly initialised.
        unused: names of tensors in the files that this head does not use.
        directory: the directory of the model and its tokenizer; for a file of weights, where its tokenizer is.
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
        task: for a model with adapters for several tasks (`task_adapters`), the task whose adapter is merged into the
            parameters; None = as sentence-transformers' files say, "" = none.
        config: the config of a file of weights, or of a directory without one: a `config.json`, its directory, a dict
            of values of `config.json`, or a `BertConfig`. None = the `config.json` beside the weights; without one,
            sizes are inferred from the tensors.
        tokenizer: a vocabulary file, or a directory with a tokenizer; None = beside the config or the weights.

    Raises:
        InputError: something is missing, damaged, or does not fit; the message names the file and the tensor.
    """
    with open_model(path, head, family, base, classes, task, config, tokenizer) as opened:
        matched = opened.match()
        params = state_dict.read_params(opened.model, matched, seed, opened.weights.where)
        loaded = Loaded(params=params, **opened.report(matched))
        return dequantized(loaded) if dequantize else loaded


def dequantized(loaded: Loaded) -> Loaded:
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
