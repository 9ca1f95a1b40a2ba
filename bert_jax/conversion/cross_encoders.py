"""Read the files of cross-encoders of sentence-transformers."""

import contextlib
from collections.abc import Mapping
from typing import Any

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.checkpoint import Model
from bert_jax.conversion.file_names import ACTIVATION_KEYS
from bert_jax.conversion.module_files import ModuleLayout
from bert_jax.conversion.sentence_transformers import EmbeddingSettings, module_kind
from bert_jax.conversion.torch_activations import read_activation
from bert_jax.errors import InputError
from bert_jax.model_files import check_keys
from bert_jax.model_files import embedding_classifiers as tables


def add_settings(model: Model, stack: contextlib.ExitStack) -> Model:
    """Add the activation that config.json names. Raises InputError when it is not known."""
    return model.with_settings(activation=cross_encoder_activation(model.checkpoint.hf, model.checkpoint.where))


def read_cross_encoder(layout: ModuleLayout, config: BertConfig) -> EmbeddingSettings:
    """Read the modules of a cross-encoder. Raises InputError unless it is a Transformer, or classifies embeddings."""
    where = layout.root / "modules.json"
    kinds = [module_kind(module, where, config.family) for module in layout.modules]
    if kinds[1:2] == ["Pooling"]:
        from bert_jax.conversion.embedding_classifiers import read_embedding_classifier

        return read_embedding_classifier(layout, config)
    if kinds != ["Transformer"]:
        raise InputError(f"{where}: expected only a Transformer in a cross-encoder, found {', '.join(kinds)}")
    return EmbeddingSettings(config, layout.settings, {})


def cross_encoder_activation(hf: Mapping[str, Any], where: storage.Path) -> str:
    """Return the activation that the config.json of a cross-encoder names, or "".

    Raises:
        InputError: the activation is not known.
    """
    said, older = (hf.get(key) for key in ACTIVATION_KEYS)
    if isinstance(said, dict):
        check_keys(said, tables.CROSS_ENCODER, f"{where}: sentence_transformers")
        if said.get("activation_fn"):
            return read_activation(said["activation_fn"], where, "softmax")
    elif said is not None:
        raise InputError(f"{where}: sentence_transformers: expected an object, found {type(said).__name__}")
    return read_activation(older, where, "softmax") if older else ""
