"""Find the files of a model, and recognise its kind by them.

A plain directory has config.json and weights. Each other kind has its own module, which is imported only when needed.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.checkpoint import CheckpointFiles
from bert_jax.conversion.file_names import ACTIVATION_KEYS, ADAPTER_CONFIG, ADAPTER_WEIGHTS, GLINER_FILE
from bert_jax.conversion.weights import is_weights
from bert_jax.errors import InputError
from bert_jax.storage import hub
from bert_jax.tokenization import has_tokenizer

ConfigLike = storage.PathLike | Mapping[str, Any] | BertConfig
ENCODER_DECODER_TYPE = "encoder-decoder"  # model_type of transformers' EncoderDecoderModel


def is_file(path: storage.PathLike) -> bool:
    """Return whether a path is a file, not a directory or a name on the hub."""
    return not str(path).startswith("hf://") and storage.Path(path).is_file()


def is_adapter(directory: storage.Path) -> bool:
    """Return whether a directory is an adapter: it has an adapter's config, and an adapter's weights or none at all.

    As in transformers with peft, the adapter takes precedence over a model's weights in the same directory.
    """
    if not (directory / ADAPTER_CONFIG).exists():
        return False
    return any((directory / name).exists() for name in ADAPTER_WEIGHTS) or not is_weights(directory)


def is_gliner(path: storage.PathLike) -> bool:
    """Return whether a directory, or a name on the hub, is a GLiNER."""
    return (hub.locate(path) / GLINER_FILE).exists()


def has_modules(root: storage.Path) -> bool:
    """Return whether a directory has sentence-transformers modules: a modules.json, or in older versions a Pooling."""
    return (root / "modules.json").exists() or (root / "1_Pooling").exists()


def names_activation(hf: Mapping[str, Any]) -> bool:
    """Return whether the content of a `config.json` names the activation of a cross-encoder."""
    return any(hf.get(key) is not None for key in ACTIVATION_KEYS)


def is_encoder_decoder(path: storage.PathLike) -> bool:
    """Return whether a directory holds an encoder-decoder (`bert_jax.conversion.encoder_decoder`)."""
    if is_file(path):
        return False
    where = hub.locate(path) / "config.json"
    content = storage.read_json(where) if where.exists() else None
    return isinstance(content, dict) and content.get("model_type") == ENCODER_DECODER_TYPE


# Module that reads a kind of model -> function that recognises its files. The module's `add_files` adds these files.
_KINDS: dict[str, Callable[[CheckpointFiles], bool]] = {
    "sentence_transformers": lambda files: has_modules(files.root),
    "gliner": lambda files: (files.root / GLINER_FILE).exists(),
    "adapters": lambda files: files.gliner is None and is_adapter(files.directory),
}


def module_of(kind: str) -> Any:
    """Import and return the module of `bert_jax.conversion` that reads a kind of model."""
    return importlib.import_module(f"bert_jax.conversion.{kind}")


def locate_checkpoint(
    path: storage.PathLike, base: storage.PathLike | None, config: ConfigLike | None
) -> CheckpointFiles:
    """Find the files of a model; the files of other kinds than a plain directory are read by their own modules.

    Args:
        path, base, config: as for `bert_jax.conversion.huggingface.load_pretrained`.

    Raises:
        InputError: there is no such directory, or a file that describes the kind of model is damaged.
    """
    if is_file(path):
        return CheckpointFiles(storage.Path(path), storage.Path(path), is_bare=True)
    root = hub.locate(path)
    if config is not None:
        return CheckpointFiles(root, root, is_bare=True)
    files = CheckpointFiles(root, root)
    for kind, is_kind in _KINDS.items():
        if is_kind(files):
            files = module_of(kind).add_files(files, base)
    if base is not None and not (files.gliner or files.adapter):
        raise InputError(f"{files.directory}: expected an adapter (adapter_config.json) for the base model, found none")
    return files


def locate_tokenizer(path: storage.PathLike) -> storage.Path:
    """Return the directory or file of a tokenizer. Raises InputError when there is none."""
    tokenizer = storage.Path(path)
    if not tokenizer.exists() or not has_tokenizer(tokenizer):
        raise InputError(f"{tokenizer}: expected a vocabulary file, or a directory with a tokenizer, found none")
    return tokenizer
