"""Save a model directory: config.json, weights and tokenizer in the Hugging Face layout."""

import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion import state_dict_writing, write_checkpoint
from bert_jax.conversion.replacing import place_of_new
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.conversion.write_checkpoint import SavesItself
from bert_jax.errors import InputError
from bert_jax.modeling import Bert, Params


def save_pretrained(
    directory: storage.PathLike,
    config: BertConfig,
    head: str,
    params: Params,
    tokenizer: SavesItself | None = None,
    *,
    settings: TextSettings | None = None,
    overwrite: bool = False,
    dtype: str = "float32",
    weights: str = "safetensors",
) -> None:
    """Write a model directory that Hugging Face transformers can load, completely or not at all.

    An embedding model of any kind is written as a sentence-transformers model, and a zero-shot NER model as a GLiNER,
    with `gliner_config.json` in place of `config.json`. The float32 parameters of quantization-aware training are
    quantized. Transformers cannot load a quantized model; `convert` dequantizes it.

    Args:
        directory: a new or empty directory.
        config: the architecture.
        head: one of `modeling.HEADS`.
        params: the canonical parameter tree of jax or numpy arrays.
        tokenizer: a tokenizer to save with the model.
        settings: settings to write into sentence-transformers' files; None = defaults.
        overwrite: whether to replace an existing model directory; it must not have other files in it.
        dtype: dtype of the tensors in the file: float32, bfloat16 or float16.
        weights: format of the file: safetensors, or flax for Flax models of Hugging Face (transformers 4).

    Raises:
        InputError: the parameters do not fit config and head, or the directory is not empty.
    """
    write = write_checkpoint.writer(dtype, weights)
    if (quantization := config.quantization) is not None:
        if (dtype, weights) != ("float32", "safetensors"):
            raise InputError(f"a quantized model is written as float32 and safetensors, found {dtype} and {weights}")
        if quantization.stage == "training":
            from bert_jax.modeling.quantized import quantize_params  # imports Flax

            quantization = quantization.replace(stage="quantized")
            params, config = quantize_params(params, quantization), config.replace(quantization=quantization)
    tensors = state_dict_writing.stored_params(config, head, params, np.dtype(write_checkpoint.SAVED_DTYPES[dtype]))
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
    tokenizer: SavesItself | None,
    settings: TextSettings,
) -> None:
    """Write all files of `save_pretrained` except for the model's weights, which the caller writes in another format.

    The layers after the pooling of a sentence embedding model are written with their weights, in their own folders.
    """
    tensors = state_dict_writing.stored_params(config, head, params, np.dtype(np.float32))
    write_checkpoint.write_directory(
        directory, Bert(config, head), tensors, tokenizer, settings, "float32", lambda directory, tensors: None
    )
