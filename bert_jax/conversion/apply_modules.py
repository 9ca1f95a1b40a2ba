"""Apply the modules of a sentence-transformers directory to the config of its model."""

import contextlib
from collections.abc import Callable
from typing import Any

from bert_jax.conversion.checkpoint import Model
from bert_jax.conversion.slots import EMBEDDING_LAYER
from bert_jax.conversion.weights import open_weights
from bert_jax.lazy import LazyRegistry

# Head -> the function that reads its modules.
_READERS: LazyRegistry[Callable[..., Any]] = LazyRegistry(
    {
        "sentence_embedding": "bert_jax.conversion.sentence_transformers.read_embedding",
        "multi_vector": "bert_jax.conversion.multi_vector_encoders.read_multi_vector",
        "sparse_embedding": "bert_jax.conversion.sparse_encoders.read_sparse",
        "sequence_classification": "bert_jax.conversion.cross_encoders.read_cross_encoder",
    }
)


def add_settings(model: Model, stack: contextlib.ExitStack) -> Model:
    """Apply the modules to the config and the settings of a model, and add their tensors to the model's.

    If the head is not the saved one, the modules are ignored.

    Args:
        model: a model whose directory lists modules.
        stack: exit stack that closes the files of the modules.

    Raises:
        InputError: a module asks for something that is not supported.
    """
    layout, head = model.files.layout, model.head
    assert layout is not None
    if head == "sentence_embedding" and layout.classifies_embedding:
        from bert_jax.conversion.embedding_classifiers import embedding_layout

        layout = embedding_layout(layout)
    if head != layout.head:
        return model._replace(settings=layout.settings.of_another_head())
    if layout.query_modules and head != "sparse_embedding":
        from bert_jax.conversion.routers import refuse_query_modules

        refuse_query_modules(layout)
    config, settings, folders, query_module = _READERS[head](layout, model.config)
    for number, folder in folders.items():
        layer = stack.enter_context(open_weights(folder)).tensors
        prefix = EMBEDDING_LAYER.format(number=number)
        model.checkpoint.tensors.update({f"{prefix}{name}": tensor for name, tensor in layer.items()})
    if query_module is not None:
        from bert_jax.conversion.query_weights import add_query_weights

        add_query_weights(query_module, model, stack)
    return model._replace(config=config, settings=settings)
