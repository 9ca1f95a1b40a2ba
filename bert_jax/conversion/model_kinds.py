"""Recognise the kind of a model by its files, before the module that reads this kind is imported."""

from collections.abc import Collection, Mapping
from typing import Any

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.weights import is_weights
from bert_jax.storage import hub

ConfigLike = storage.PathLike | Mapping[str, Any] | BertConfig
# Keys of config.json in which cross-encoders name their activation.
ACTIVATION_KEYS = ("sentence_transformers", "sbert_ce_default_activation_function")
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
ENCODER_DECODER_TYPE = "encoder-decoder"  # model_type of transformers' EncoderDecoderModel
GLINER_FILE = "gliner_config.json"
RECORD = "bert_jax.json"  # beside the weights; transformers ignores it
CONFIG_FILES = ("config.json", GLINER_FILE)  # one of these is written last into a model directory
STANFORD = "HF_ColBERT"  # class of ColBERT models in the layout of their authors
STANFORD_PROJECTION = "linear.weight"  # tensor of such a model, beside those of its BERT


def is_file(path: storage.PathLike) -> bool:
    """Return whether a path is that of a file, and no directory or name on the hub."""
    return not str(path).startswith("hf://") and storage.Path(path).is_file()


def is_adapter(directory: storage.Path) -> bool:
    """Return whether a directory has an adapter: its config, and its weights or none of a model.

    As in transformers with peft, an adapter counts where a model's weights are beside it.
    """
    if not (directory / ADAPTER_CONFIG).exists():
        return False
    return any((directory / name).exists() for name in ADAPTER_WEIGHTS) or not is_weights(directory)


def is_gliner(path: storage.PathLike) -> bool:
    """Return whether a directory, or a name on the hub, is a GLiNER."""
    return (hub.locate(path) / GLINER_FILE).exists()


def has_modules(root: storage.Path) -> bool:
    """Return whether a directory lists modules of sentence-transformers, or has a Pooling, as older ones do."""
    return (root / "modules.json").exists() or (root / "1_Pooling").exists()


def names_activation(hf: Mapping[str, Any]) -> bool:
    """Return whether the content of a `config.json` names the activation of a cross-encoder."""
    return any(hf.get(key) is not None for key in ACTIVATION_KEYS)


def is_stanford(hf: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """Return whether a config.json and names of tensors are those of a ColBERT model in the layout of its authors."""
    named = hf.get("architectures")
    return isinstance(named, list) and STANFORD in named and STANFORD_PROJECTION in tensors


def is_encoder_decoder(path: storage.PathLike) -> bool:
    """Return whether a directory holds an encoder-decoder (`bert_jax.conversion.encoder_decoder`)."""
    if is_file(path):
        return False
    where = hub.locate(path) / "config.json"
    content = storage.read_json(where) if where.exists() else None
    return isinstance(content, dict) and content.get("model_type") == ENCODER_DECODER_TYPE
