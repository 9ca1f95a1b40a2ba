"""Apply the modules of a sentence-transformers directory to the config of its model."""

import contextlib

from bert_jax.config import BertConfig
from bert_jax.conversion.cross_encoders import check_cross_encoder
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.multi_vector_encoders import read_multi_vector
from bert_jax.conversion.sentence_transformers import ModuleLayout, read_embedding
from bert_jax.conversion.slots import EMBEDDING_LAYER
from bert_jax.conversion.sparse_encoders import read_sparse
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.conversion.weights import open_weights

# Head -> the function that reads its modules.
_READERS = {
    "sentence_embedding": read_embedding,
    "multi_vector": read_multi_vector,
    "sparse_embedding": read_sparse,
}


def apply_modules(
    layout: ModuleLayout, head: str, config: BertConfig, tensors: Tensors, stack: contextlib.ExitStack
) -> tuple[BertConfig, TextSettings]:
    """Return the config and the settings of a model with modules, and add the tensors of the modules to `tensors`.

    Args:
        layout: the modules.
        head: the head to open the model with; with another head than the saved one, the modules are left out.
        config: the config without the modules.
        tensors: the tensors of the model.
        stack: closes the files of the modules.

    Raises:
        InputError: a module asks for something that is not supported.
    """
    if head != layout.head:
        return config, layout.settings.of_another_head()
    if head not in _READERS:
        check_cross_encoder(layout)
        return config, layout.settings
    config, settings, folders = _READERS[head](layout, config)
    for number, folder in folders.items():
        layer = stack.enter_context(open_weights(folder)).tensors
        prefix = EMBEDDING_LAYER.format(number=number)
        tensors.update({f"{prefix}{name}": tensor for name, tensor in layer.items()})
    return config, settings
