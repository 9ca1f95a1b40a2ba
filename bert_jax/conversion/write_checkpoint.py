"""Write a model directory: config.json, weights, and the files of sentence-transformers beside them."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes
import numpy as np

from bert_jax import storage
from bert_jax.conversion.file_names import ACTIVATION_KEYS, CONFIG_FILES, GLINER_FILE
from bert_jax.conversion.formats import safetensors_writing
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.model_tensors import names_of
from bert_jax.conversion.record import write_record
from bert_jax.conversion.slots import EMBEDDING_LAYER
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError, did_you_mean
from bert_jax.head_names import GLINER_HEAD
from bert_jax.lazy import LazyModule, import_object
from bert_jax.modeling import Bert

if TYPE_CHECKING:
    from bert_jax.conversion import sentence_transformers_writing
else:
    sentence_transformers_writing = LazyModule("bert_jax.conversion.sentence_transformers_writing")

_GENERATION = "generation_config.json"
# Format -> its file name, and where the function that writes it is defined.
WRITERS = {
    "safetensors": ("model.safetensors", "bert_jax.conversion.formats.safetensors_writing.write"),
    "flax": ("flax_model.msgpack", "bert_jax.conversion.formats.flax_msgpack.write"),
}
SAVED_DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


class SavesItself(Protocol):
    """A tokenizer that can be saved."""

    def save(self, directory: Any, /) -> Any: ...

    def lowercased(self) -> Any: ...


def generation_settings(directory: storage.Path) -> dict[str, Any] | None:
    """Read a directory's generation_config.json, which is only copied; None if there is none."""
    where = directory / _GENERATION
    return storage.read_json(where) if where.exists() else None


def writer(dtype: str, weights: str) -> Callable[[storage.Path, Tensors], None]:
    """Return the function that writes tensors into a directory. Raises InputError for an unknown dtype or format."""
    for what, value, known in (("dtype", dtype, SAVED_DTYPES), ("weights", weights, WRITERS)):
        if value not in known:
            raise InputError(f"{what} {value!r} is not known{did_you_mean(value, known)}")
    name, function = WRITERS[weights]
    write = import_object(function)
    return lambda directory, tensors: write(directory / name, tensors)


def write_directory(
    directory: storage.Path,
    model: Bert,
    tensors: Tensors,
    tokenizer: SavesItself | None,
    settings: TextSettings,
    dtype: str,
    write: Callable[[storage.Path, Tensors], None],
    generation: dict[str, Any] | None = None,
) -> None:
    if model.head == "sparse_embedding" and model.config.pooling == "lexical":
        raise InputError(f"{directory}: expected a model that can be saved, found BGE-M3's token weights")
    architecture = names_of(model).architecture_of(model.head)
    described = model.config.to_hf(architecture or "") | {"dtype": dtype}
    for key in ACTIVATION_KEYS:  # the activation of the settings replaces that of the source
        described.pop(key, None)
    with storage.directory_atomically(directory) as beside:
        if tokenizer is not None:
            tokenizer.save(beside)
        if model.head in ("sentence_embedding", "multi_vector"):
            _write_embedding(beside, model, tensors, settings)
        if model.head == "sparse_embedding":
            sentence_transformers_writing.write_sparse_encoder(beside, model.config, settings, tensors, tokenizer)
        if generation is not None:
            storage.write_atomically(beside / _GENERATION, json.dumps(generation, indent=2, sort_keys=True) + "\n")
        write_record(beside, settings.records)
        if model.head == "sequence_classification":
            if model.config.classifies_embedding:
                _write_embedding(beside, model, tensors, settings)
            elif settings.cross_encoder:
                sentence_transformers_writing.write_cross_encoder(beside, settings)
            if settings.activation:
                activation = sentence_transformers_writing.torch_activation(settings.activation)
                described["sentence_transformers"] = {"activation_fn": activation}
        name = CONFIG_FILES[0]
        if model.head == GLINER_HEAD:
            from bert_jax.conversion.gliner import gliner_json

            name, described = GLINER_FILE, gliner_json(model.config, described, tokenizer)
        write(beside, tensors)
        storage.write_atomically(beside / name, json.dumps(described, indent=2, sort_keys=True) + "\n")


def _write_embedding(directory: storage.Path, model: Bert, tensors: Tensors, settings: TextSettings) -> None:
    """Write sentence-transformers' files, and move tensors of its modules from `tensors` to the modules' folders."""
    kind = {"late": model.head == "multi_vector", "classifies": model.head == "sequence_classification"}
    for number, folder in sentence_transformers_writing.write_layout(directory, model.config, settings, **kind).items():
        prefix = EMBEDDING_LAYER.format(number=number)
        own = {name: tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
        layer = {name.removeprefix(prefix): tensor for name, tensor in own.items()}
        safetensors_writing.write(folder / WRITERS["safetensors"][0], layer)
