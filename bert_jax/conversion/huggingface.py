"""Load, save and convert model directories: config.json, weights and tokenizer in the Hugging Face layout."""

import json
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion import sentence_transformers, sentence_transformers_writing, state_dict
from bert_jax.conversion.formats import flax_msgpack, safetensors_files
from bert_jax.conversion.names import NAME_TABLES
from bert_jax.conversion.names.table import EMBEDDING_LAYER, Tensors
from bert_jax.conversion.opening import open_model
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.errors import InputError, did_you_mean
from bert_jax.model_files import check_keys
from bert_jax.model_files.generation import GENERATION
from bert_jax.modeling import Bert, Params

_GENERATION = "generation_config.json"
# What is written: a format's file, and by whom.
WRITERS = {
    "safetensors": ("model.safetensors", safetensors_files.write),
    "flax": ("flax_model.msgpack", flax_msgpack.write),
}
SAVED_DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


class _SavesItself(Protocol):
    def save(self, directory: Any, /) -> Any: ...

    def lowercased(self) -> Any: ...


class Loaded(NamedTuple):
    """A model directory's contents.

    Attributes:
        config: the architecture.
        head: one of `modeling.HEADS`.
        params: the canonical tree, of float32 numpy arrays.
        missing: Hugging Face names of the tensors that the files lack and that were freshly initialised.
        unused: names of the tensors in the files that this head has no place for.
        directory: where the model and its tokenizer are.
        settings: what the files of sentence-transformers say of texts, vectors and scores.
        format: of the weights, a key of `bert_jax.conversion.weights.WEIGHT_FORMATS`.
        read: name -> dtype and shape of the tensors that were used, as the files have them.
    """

    config: BertConfig
    head: str
    params: Params
    missing: list[str]
    unused: list[str]
    directory: storage.Path
    settings: TextSettings
    format: str
    read: dict[str, tuple[str, tuple[int, ...]]]


def load_pretrained(
    path: storage.PathLike,
    head: str | None = None,
    seed: int = 0,
    family: str = "",
    base: storage.PathLike | None = None,
    classes: int | tuple[str, ...] | None = None,
) -> Loaded:
    """Reads a model directory, tensor by tensor; PyTorch is not needed and no code in the files runs.

    Args:
        path: a directory (local or `gs://`) with `config.json` (or TensorFlow's `bert_config.json`) and weights in a
            format of `conversion.weights.WEIGHT_FORMATS`, a LoRA adapter of peft's, which is merged into its base
            model, or a name on the hub (`hub.locate`).
        head: one of `modeling.HEADS`; None means the one that the directory was saved with. Asked for another, the
            parameters that only it has are freshly initialised and listed in `missing`.
        seed: of that initialisation.
        family: one of `bert_jax.families.FAMILIES`, where config.json does not say which or says another; "" = as it
            says.
        base: of an adapter, the directory of its base model; None: where the adapter says.
        classes: number or names of a classifier's classes; of a trained one, other names for its classes.

    Raises:
        InputError: something is missing, damaged, or does not fit; the message names the file and the tensor.
    """
    with open_model(path, head, family, base, classes) as opened:
        matched = opened.match()
        params = state_dict.read_params(opened.model, matched, seed, opened.weights.where)
        return Loaded(params=params, **opened.report(matched))


def saved_head(path: storage.PathLike) -> str:
    """The head that a model directory was saved with. Raises InputError as `load_pretrained`."""
    with open_model(path, None, "") as opened:
        return opened.model.head


def convert(
    source: storage.PathLike,
    destination: storage.PathLike,
    tokenizer_of: Callable[[storage.Path], _SavesItself | None],
    *,
    head: str | None = None,
    family: str = "",
    dtype: str = "float32",
    weights: str = "safetensors",
    base: storage.PathLike | None = None,
) -> Loaded:
    """What `load_pretrained` reads as `save_pretrained` writes it, tensor by tensor: in memory is one at a time.

    Args:
        tokenizer_of: opens the tokenizer in a directory, if there is one.
        base: as for `load_pretrained`.

    Returns:
        What was read, without its parameters.

    Raises:
        InputError: as the two.
    """
    write = _writer(dtype, weights)
    with open_model(source, head, family, base) as opened:
        matched = opened.match()
        report = opened.report(matched)
        tensors = state_dict.stored_tensors(
            opened.model, matched, 0, np.dtype(SAVED_DTYPES[dtype]), opened.weights.where
        )
        tokenizer = opened.settings.tokenizer(tokenizer_of(opened.directory))
        _write_directory(
            storage.Path(destination), opened.model, tensors, tokenizer, opened.settings, dtype, write,
            _generation_settings(opened.directory),
        )  # fmt: skip
        return Loaded(params={}, **report)


def _generation_settings(directory: storage.Path) -> dict[str, Any] | None:
    """What a directory's generation_config.json says, which nothing here depends on."""
    where = directory / _GENERATION
    if not where.exists():
        return None
    content = storage.read_json(where)
    check_keys(content, GENERATION, where)
    return content


def save_pretrained(
    directory: storage.PathLike,
    config: BertConfig,
    head: str,
    params: Params,
    tokenizer: _SavesItself | None = None,
    *,
    settings: TextSettings | None = None,
    overwrite: bool = False,
    dtype: str = "float32",
    weights: str = "safetensors",
) -> None:
    """Writes a model directory that Hugging Face transformers reads as it is; the whole directory or nothing.

    A sentence embedding is written as a sentence-transformers model.

    Args:
        directory: a new or empty directory.
        config: the architecture.
        head: one of `modeling.HEADS`.
        params: the canonical tree, of jax or numpy arrays.
        tokenizer: saved into the directory too.
        settings: what is written of texts, vectors and scores for sentence-transformers; None = nothing.
        overwrite: whether a model directory that is already there is replaced, with all that is in it.
        dtype: of the tensors in the file: float32, bfloat16 or float16.
        weights: the format of that file: safetensors, or flax, which Hugging Face's Flax models (transformers 4) read.

    Raises:
        InputError: the parameters do not fit config and head, or the directory holds something already.
    """
    write = _writer(dtype, weights)
    tensors = state_dict.stored_params(config, head, params, np.dtype(SAVED_DTYPES[dtype]))
    home = storage.Path(directory)
    replaced = overwrite and home.is_dir() and any(home.iterdir())
    if replaced and not (home / "config.json").exists():
        raise InputError(f"{home}: expected a model directory to replace, found one without config.json")
    target = home.parent / f".{home.name}.{uuid.uuid4().hex[:8]}.new" if replaced else home
    _write_directory(target, Bert(config, head), tensors, tokenizer, settings or TextSettings(), dtype, write)
    if replaced:
        storage.replace_directory(home, target)


def _writer(dtype: str, weights: str) -> Callable[[storage.Path, Tensors], None]:
    """What writes tensors of a dtype into a directory, in a format. Raises InputError when either is not known."""
    for what, value, known in (("dtype", dtype, SAVED_DTYPES), ("weights", weights, WRITERS)):
        if value not in known:
            raise InputError(f"{what} {value!r} is not known{did_you_mean(value, known)}")
    name, write = WRITERS[weights]
    return lambda directory, tensors: write(directory / name, tensors)


def _write_directory(
    directory: storage.Path,
    model: Bert,
    tensors: Tensors,
    tokenizer: _SavesItself | None,
    settings: TextSettings,
    dtype: str,
    write: Callable[[storage.Path, Tensors], None],
    generation: dict[str, Any] | None = None,
) -> None:
    architecture = NAME_TABLES[model.config.family].architectures[model.head]
    described = model.config.to_hf(architecture) | {"dtype": dtype}
    for key in sentence_transformers.ACTIVATION_KEYS:  # as the settings have it, and not as it was read
        described.pop(key, None)
    with storage.directory_atomically(directory) as beside:
        if tokenizer is not None:
            tokenizer.save(beside)
        if model.head == "sentence_embedding":
            _write_embedding(beside, model.config, tensors, settings)
        if generation is not None:
            storage.write_atomically(beside / _GENERATION, json.dumps(generation, indent=2, sort_keys=True) + "\n")
        if model.head == "sequence_classification":
            sentence_transformers_writing.write_cross_encoder(beside, settings)
            if settings.activation:
                activation = sentence_transformers_writing.torch_activation(settings.activation)
                described["sentence_transformers"] = {"activation_fn": activation}
        write(beside, tensors)
        storage.write_atomically(beside / "config.json", json.dumps(described, indent=2, sort_keys=True) + "\n")


def _write_embedding(directory: storage.Path, config: BertConfig, tensors: Tensors, settings: TextSettings) -> None:
    """Writes the files of sentence-transformers, and takes from `tensors` those that belong into folders of theirs."""
    for number, folder in sentence_transformers_writing.write_layout(directory, config, settings).items():
        prefix = EMBEDDING_LAYER.format(number=number)
        own = {name: tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
        layer = {name.removeprefix(prefix): tensor for name, tensor in own.items()}
        safetensors_files.write(folder / WRITERS["safetensors"][0], layer)
