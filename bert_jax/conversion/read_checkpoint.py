"""Read config.json, and open the weights beside it."""

import contextlib
import dataclasses

from bert_jax import storage
from bert_jax.conversion.checkpoint import Checkpoint, CheckpointFiles
from bert_jax.conversion.file_names import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from bert_jax.conversion.model_kinds import ENCODER_DECODER_TYPE, module_of
from bert_jax.conversion.tensor_names import without_wrappers
from bert_jax.conversion.weights import is_weights, open_weights
from bert_jax.errors import InputError, logger

_log = logger(__name__)


def read_checkpoint(files: CheckpointFiles, stack: contextlib.ExitStack) -> Checkpoint:
    """Read the config and open the weights of a directory; tensors lose the prefixes of wrappers.

    Args:
        files: the files of a model; `is_bare` is false.
        stack: exit stack that closes the weights.

    Raises:
        InputError: a file is missing or damaged, or holds another kind of model.
    """
    directory, gliner = files.directory, files.gliner
    where = gliner.where if gliner else _config_file(directory)
    beside = frozenset(path.name for path in directory.iterdir()) if directory.is_dir() else frozenset()
    static = files.layout is not None and files.layout.is_static and is_weights(directory)
    if not gliner and not static and directory.is_dir() and (where.name not in beside or not is_weights(directory)):
        module_of("foreign_kinds").refuse_foreign_directory(directory)
    if where.name not in beside and not static:
        shown = ", ".join(sorted(beside)[:10]) or "nothing"
        raise InputError(
            f"{directory}: expected a model directory (config.json, model.safetensors, ...), found {shown}"
        )
    hf = gliner.encoder if gliner else storage.read_json(where, unique_keys=True) if where.name in beside else {}
    hf |= {"model_type": "model2vec"} if static else {}
    if hf.get("model_type") == ENCODER_DECODER_TYPE:
        expected = "expected an encoder, found an encoder-decoder, which generates text; use"
        raise InputError(f"{where}: {expected} bert_jax.pipeline('text2text-generation', ...) or bert-jax text2text")
    weights = stack.enter_context(open_weights(directory))
    if ADAPTER_CONFIG in beside and not beside.intersection(ADAPTER_WEIGHTS):
        _log.warning("%s: found the config of an adapter without its weights; nothing is merged", directory)
    tensors = gliner.encoder_tensors(weights.tensors) if gliner else weights.tensors
    weights = dataclasses.replace(weights, tensors=without_wrappers(tensors, hf, weights.where))
    return Checkpoint(hf, where, weights, gliner.tokenizer if gliner else directory, beside)


def _config_file(directory: storage.Path) -> storage.Path:
    """Return the path of config.json, or of TensorFlow's bert_config.json where there is only that."""
    where, older = directory / "config.json", directory / "bert_config.json"
    return older if not where.exists() and older.exists() else where
