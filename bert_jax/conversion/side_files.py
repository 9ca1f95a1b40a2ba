"""Read the files beside a model's config and weights: settings of texts and vectors, and layers after the encoder."""

import contextlib
from collections.abc import Callable

from bert_jax.conversion.checkpoint import Model
from bert_jax.conversion.choose_head import is_stanford
from bert_jax.conversion.file_names import RECORD
from bert_jax.conversion.model_kinds import module_of, names_activation
from bert_jax.head_names import GLINER_HEAD

# Module -> whether a model has the files that the module reads with its `add_settings`. Files are read in this order.
SIDE_FILES: dict[str, Callable[[Model], bool]] = {
    "apply_modules": lambda model: model.files.layout is not None,
    "bge_m3": lambda model: (
        model.head in ("sparse_embedding", "multi_vector")
        and (model.files.layout is None or model.files.layout.head != model.head)
    ),
    "cross_encoders": lambda model: (
        model.head == "sequence_classification"
        and not model.settings.activation
        and names_activation(model.checkpoint.hf)
    ),
    "task_adapters": lambda model: model.checkpoint.task_prompts is not None,
    "record": lambda model: (model.root / RECORD).exists(),
    "stanford_colbert": lambda model: (
        model.head == "multi_vector"
        and model.files.layout is None
        and is_stanford(model.checkpoint.hf, model.checkpoint.tensors)
    ),
    "gliner": lambda model: model.head == GLINER_HEAD,
}


def read_side_files(model: Model, stack: contextlib.ExitStack) -> Model:
    """Add the settings and layers of further files to a model, and the layers' tensors to its checkpoint.

    Args:
        model: the model.
        stack: exit stack that closes the files of the layers.

    Raises:
        InputError: a file is damaged, or asks for something that is not supported.
    """
    for module, has_files in SIDE_FILES.items():
        if has_files(model):
            model = module_of(module).add_settings(model, stack)
    return model
