"""Convert a model directory of any supported format to the Hugging Face layout."""

from collections.abc import Callable

import numpy as np

from bert_jax import storage
from bert_jax.conversion import state_dict, state_dict_writing, write_checkpoint
from bert_jax.conversion.load_pretrained import Loaded, dequantized
from bert_jax.conversion.model_kinds import ConfigLike
from bert_jax.conversion.open_checkpoint import open_model
from bert_jax.conversion.write_checkpoint import SavesItself
from bert_jax.modeling import Bert


def convert(
    source: storage.PathLike,
    destination: storage.PathLike,
    tokenizer_of: Callable[[storage.Path], SavesItself | None],
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

    A quantized model is dequantized, and needs memory for all of it. A Flax file is read whole.

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
    write = write_checkpoint.writer(dtype, weights)
    with open_model(source, head, family, base, None, task, config, tokenizer) as opened:
        matched = opened.match()
        report, model, where = opened.report(matched), opened.model, opened.weights.where
        if model.config.quantization is None:
            tensors = state_dict_writing.stored_tensors(
                model, matched, 0, np.dtype(write_checkpoint.SAVED_DTYPES[dtype]), where
            )
        else:
            loaded = dequantized(Loaded(params=state_dict.read_params(model, matched, 0, where), **report))
            model = Bert(loaded.config, model.head)
            tensors = state_dict_writing.stored_params(
                model.config, model.head, loaded.params, np.dtype(write_checkpoint.SAVED_DTYPES[dtype])
            )
        text_input = opened.settings.tokenizer(tokenizer_of(opened.directory))
        write_checkpoint.write_directory(
            storage.Path(destination), model, tensors, text_input, opened.settings, dtype, write,
            write_checkpoint.generation_settings(opened.directory),
        )  # fmt: skip
        return Loaded(params={}, **report)
