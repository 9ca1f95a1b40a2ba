"""Read the layers that BGE-M3 adds to a sentence embedding model, for token weights and token vectors.

Chen et al. 2024 (arXiv:2402.03216), section 3.2.
"""

import contextlib
import dataclasses

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.config.values import EmbeddingLayer
from bert_jax.conversion.checkpoint import Model
from bert_jax.conversion.formats import torch_files
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.multi_vector_settings import MultiVectorSettings
from bert_jax.conversion.slots import EMBEDDING_LAYER, TOKEN_WEIGHTS
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError

# Head -> the file of its layer, as FlagEmbedding writes it.
M3_LAYERS = {"sparse_embedding": "sparse_linear.pt", "multi_vector": "colbert_linear.pt"}
_FIRST_TOKENS = ("<s>", "[CLS]")  # the first token of a row, by family; it is not scored


def add_settings(model: Model, stack: contextlib.ExitStack) -> Model:
    """Add BGE-M3's layer, or else defaults, to a model without modules that outputs token weights or token vectors.

    Raises:
        InputError: as `read_m3_layer`.
    """
    if model.head == "sparse_embedding":  # SPLADE's max pooling needs no layer
        model = model.with_settings(similarity="dot")._replace(config=model.config.replace(pooling="splade_max"))
    else:
        model = model.with_settings(similarity="maxsim")
    tensors = model.checkpoint.tensors
    config, settings = read_m3_layer(model.root, model.head, model.config, model.settings, tensors, stack)
    return model._replace(config=config, settings=settings)


def read_m3_layer(
    root: storage.Path,
    head: str,
    config: BertConfig,
    settings: TextSettings,
    tensors: Tensors,
    stack: contextlib.ExitStack,
) -> tuple[BertConfig, TextSettings]:
    """Apply a head's layer, if its file exists, to the config and settings, and add its tensors to `tensors`.

    Raises:
        InputError: the file is damaged, or its layer does not fit the model.
    """
    if head not in M3_LAYERS or not (path := root / M3_LAYERS[head]).exists():
        return config, settings
    layer = stack.enter_context(torch_files.open_tensors(path))
    weight = layer.get("weight")
    if weight is None or "bias" not in layer or len(weight.shape) != 2 or weight.shape[1] != config.hidden_size:
        found = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in layer.items())
        raise InputError(f"{path}: expected a weight of {config.hidden_size} columns and a bias, found {found}")
    if head == "sparse_embedding":
        tensors.update({f"{TOKEN_WEIGHTS}.{name}": tensor for name, tensor in layer.items()})
        return config.replace(pooling="lexical"), dataclasses.replace(settings, similarity="dot")
    tensors.update({f"{EMBEDDING_LAYER.format(number=0)}linear.{name}": tensor for name, tensor in layer.items()})
    dense = EmbeddingLayer("dense", config.hidden_size, weight.shape[0])
    skipped = MultiVectorSettings(skipped_words=_FIRST_TOKENS, skips_in=("query", "document"))
    settings = dataclasses.replace(settings, similarity="meanmaxsim", multi_vector=skipped)
    return config.replace(pooling="mean", embedding_layers=(dense,), normalize_embeddings=True), settings
