"""Read and write a SparseStaticEmbedding of sentence-transformers: a weight for each token, in place of an encoder.

A query's sparse embedding has the weight of each of its tokens, so that no encoder runs when a query arrives
(Geng et al. 2024, arXiv:2411.04403; the models `opensearch-neural-sparse-encoding-doc` and `splade-v3-doc`).
"""

import contextlib
import dataclasses
import json
import math
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.checkpoint import Model
from bert_jax.conversion.formats import safetensors_writing
from bert_jax.conversion.formats.lazy_tensors import LazyTensor, Tensors
from bert_jax.conversion.module_files import EmbeddingModule, ModuleLayout, checked_object, optional_boolean
from bert_jax.conversion.routers import ROUTER_CONFIG
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.conversion.weights import open_weights
from bert_jax.errors import InputError, printable
from bert_jax.model_files import routed_encoders as tables
from bert_jax.tokenization import load_tokenizer

_TENSOR = "query_weights.weight"  # name of the weights in a state dict
_FOLDER = "query_0_SparseStaticEmbedding"
_POOLING = "document_1_SpladePooling"
_PREFIX = "sentence_transformers.sparse_encoder.models."
_LONGEST = 10**9  # transformers' length of a tokenizer without a limit is longer


def read_query_settings(
    layout: ModuleLayout, config: BertConfig, settings: TextSettings
) -> tuple[BertConfig, TextSettings]:
    """Return the config and the settings of a model whose queries go through a SparseStaticEmbedding.

    Raises:
        InputError: queries go through other modules, or their tokenizer is not that of the documents.
    """
    kinds = [module.kind for module in layout.query_modules]
    if kinds != ["SparseStaticEmbedding"]:
        where = layout.root / ROUTER_CONFIG
        raise InputError(f"{where}: expected a SparseStaticEmbedding as the route of queries, found {', '.join(kinds)}")
    module = layout.query_modules[0]
    content, where = checked_object(module.folder / "config.json", tables.SPARSE_STATIC_EMBEDDING)
    frozen = optional_boolean(content, "frozen", False, where)
    _check_same_tokenizer(module.folder, layout.transformer)
    about = module.folder / "tokenizer_config.json"
    limit = storage.read_json(about).get("model_max_length") if about.exists() else None
    longest = int(limit) if isinstance(limit, int | float) and 1 <= limit < _LONGEST else None
    return (
        config.replace(query_weights="frozen" if frozen else "trainable"),
        dataclasses.replace(settings, query_length=longest, default_route=layout.default_route),
    )


def _check_same_tokenizer(queries: storage.Path, documents: storage.Path) -> None:
    """Raise InputError when the tokenizers of queries and documents split texts differently."""
    for name in ("tokenizer.json", "vocab.txt"):
        if not ((queries / name).exists() and (documents / name).exists()):
            continue
        if name == "vocab.txt":
            same = storage.read_text(queries / name) == storage.read_text(documents / name)
        else:
            same = _rules(queries / name) == _rules(documents / name)
        if not same:
            raise InputError(f"{queries / name}: expected the tokenizer of the documents, found another one")
        return


def _rules(path: storage.Path) -> dict[str, Any]:
    """Return what a tokenizer.json says of the tokens of a text, without lengths and the special tokens around it."""
    others = ("truncation", "padding", "post_processor")
    return {key: value for key, value in storage.read_json(path).items() if key not in others}


def add_query_weights(module: EmbeddingModule, model: Model, stack: contextlib.ExitStack) -> None:
    """Add the weights of a SparseStaticEmbedding to the tensors of a model.

    Raises:
        InputError: as `open_query_weights`.
    """
    root, tokenizer, size = model.files.root, model.checkpoint.tokenizer, model.config.vocab_size
    model.checkpoint.tensors[_TENSOR] = open_query_weights(module, root, tokenizer, size, stack)


def open_query_weights(
    module: EmbeddingModule, root: storage.Path, tokenizer: storage.PathLike, size: int, stack: contextlib.ExitStack
) -> LazyTensor:
    """Return the weights `[size]` of a SparseStaticEmbedding.

    Args:
        module: the module.
        root: the directory of the model, which may have the file that the module names.
        tokenizer: the directory of the tokenizer.
        size: number of tokens of the vocabulary.
        stack: exit stack that closes the file of the weights.

    Raises:
        InputError: the weights are missing, or are not one for each token of the vocabulary.
    """
    content, where = checked_object(module.folder / "config.json", tables.SPARSE_STATIC_EMBEDDING)
    path = content.get("path")
    if isinstance(path, str) and path.endswith(".json"):
        name = path.rpartition("/")[2]
        places = (module.folder / name, root / name)
        if (file := next((place for place in places if place.exists()), None)) is None:
            raise InputError(f"{where}: path: expected {name} in {module.folder} or {root}, found none")
        weights = weights_of_tokens(file, load_tokenizer(tokenizer), size)
        return LazyTensor(weights.shape, weights.dtype, lambda: weights)
    opened = stack.enter_context(open_weights(module.folder))
    if "weight" not in opened.tensors:
        raise InputError(f"{opened.where}: expected a tensor 'weight', found {', '.join(opened.tensors) or 'none'}")
    tensor = opened.tensors["weight"]
    if tensor.shape != (size,):
        expected = f"a weight for each of the {size} tokens of the vocabulary"
        raise InputError(f"{opened.where}: weight: expected {expected}, found shape {list(tensor.shape)}")
    return tensor


def weights_of_tokens(path: storage.PathLike, tokenizer: Any, size: int) -> np.ndarray:
    """Read a JSON file that maps tokens to weights, such as `idf.json`: float32 `[size]`, 0 for tokens it lacks.

    Raises:
        InputError: it is no such file, or has a token that the vocabulary lacks.
    """
    weights = np.zeros(size, np.float32)
    for token, weight in storage.read_json(path).items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
            raise InputError(f"{path}: {token!r}: expected a weight, found {printable(repr(weight), 60)}")
        if (token_id := tokenizer.token_to_id(token)) is None:
            raise InputError(f"{path}: expected tokens of the model's vocabulary, found {printable(repr(token), 60)}")
        weights[token_id] = weight
    return weights


def write_query_weights(
    directory: storage.Path, config: BertConfig, settings: TextSettings, tensors: Tensors, tokenizer: Any
) -> None:
    """Write the modules of queries, and move their weights from `tensors` to their folder.

    Raises:
        InputError: there is no tokenizer, without which sentence-transformers cannot read a query.
    """
    if tokenizer is None:
        raise InputError(f"{directory}: expected a tokenizer for the queries of a model with query weights, found none")
    folder = directory / _FOLDER
    tokenizer.save(folder)
    if settings.query_length:
        where = folder / "tokenizer_config.json"
        _write_json(where, storage.read_json(where) | {"model_max_length": settings.query_length})
    safetensors_writing.write(folder / "model.safetensors", {"weight": tensors.pop(_TENSOR)})
    _write_json(folder / "config.json", {"frozen": config.query_weights == "frozen"})
    router = {
        "types": {
            _FOLDER: f"{_PREFIX}SparseStaticEmbedding",
            "": f"{_PREFIX}MLMTransformer",
            _POOLING: f"{_PREFIX}SpladePooling",
        },
        "structure": {"query": [_FOLDER], "document": ["", _POOLING]},
        "parameters": {"default_route": settings.default_route, "allow_empty_key": True},
    }
    _write_json(directory / ROUTER_CONFIG, router)


def routed_modules() -> tuple[list[tuple[str, str]], str]:
    """Return the directory and class of each module in modules.json, and the directory of the SpladePooling."""
    return [("", f"{_PREFIX}Router")], _POOLING


def _write_json(path: storage.Path, value: Any) -> None:
    storage.write_atomically(path, json.dumps(value, indent=2) + "\n")
