"""Model directories: config.json, weights, tokenizer; read in any format, written in the Hugging Face layout."""

import contextlib
import dataclasses
import json
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion import flax_msgpack, hub, safetensors_files, sentence_transformers, state_dict
from bert_jax.conversion.names import FAMILIES, Names
from bert_jax.conversion.names.table import Tensors
from bert_jax.conversion.tensors import Weights, open_weights
from bert_jax.errors import InputError, did_you_mean
from bert_jax.modeling import HEADS, Bert, Params

# Heads with tensors of one name: what is trained for one of them means nothing to another.
_CLASSIFIER = "classifier."
# What is written: a format's file, and by whom.
WRITERS = {
    "safetensors": ("model.safetensors", safetensors_files.write),
    "flax": ("flax_model.msgpack", flax_msgpack.write),
}
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


class _SavesItself(Protocol):
    def save(self, directory: Any, /) -> Any: ...


class Loaded(NamedTuple):
    """A model directory's contents.

    Attributes:
        config: the architecture.
        head: one of `modeling.HEADS`.
        params: the canonical tree, of float32 numpy arrays.
        missing: Hugging Face names of the tensors that the files lack and that were freshly initialised.
        unused: names of the tensors in the files that this head has no place for.
        directory: where the model and its tokenizer are.
        max_length: tokens that the model is meant to be given at most, or None when its files do not say.
        format: of the weights, a key of `bert_jax.conversion.tensors.FORMATS`.
        read: name -> dtype and shape of the tensors that were used, as the files have them.
    """

    config: BertConfig
    head: str
    params: Params
    missing: list[str]
    unused: list[str]
    directory: storage.Path
    max_length: int | None
    format: str
    read: dict[str, tuple[str, tuple[int, ...]]]


def load_pretrained(path: storage.PathLike, head: str | None = None, seed: int = 0, family: str = "") -> Loaded:
    """Reads a model directory, tensor by tensor; PyTorch is not needed and no code in the files runs.

    Args:
        path: a directory (local or `gs://`) with `config.json` (or TensorFlow's `bert_config.json`) and weights in a
            format of `bert_jax.conversion.tensors.FORMATS`, or a name on the hub (`hub.locate`).
        head: one of `modeling.HEADS`; None means the one that the directory was saved with. Asked for another, the
            parameters that only it has are freshly initialised and listed in `missing`.
        seed: of that initialisation.
        family: one of `bert_jax.families.FAMILIES`, where config.json does not say which or says another; "" = as it
            says.

    Raises:
        InputError: something is missing, damaged, or does not fit; the message names the file and the tensor.
    """
    with _open_model(path, head, family) as opened:
        matched = opened.match()
        params = state_dict.read_params(opened.model, matched, seed, opened.weights.where)
        return Loaded(params=params, **opened.report(matched))


def saved_head(path: storage.PathLike) -> str:
    """The head that a model directory was saved with. Raises InputError as `load_pretrained`."""
    with _open_model(path, None, "") as opened:
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
) -> Loaded:
    """What `load_pretrained` reads as `save_pretrained` writes it, tensor by tensor: in memory is one at a time.

    Args:
        tokenizer_of: opens the tokenizer in a directory, if there is one.

    Returns:
        What was read, without its parameters.

    Raises:
        InputError: as the two.
    """
    write = _writer(dtype, weights)
    with _open_model(source, head, family) as opened:
        matched = opened.match()
        report = opened.report(matched)
        tensors = state_dict.stored_tensors(opened.model, matched, 0, np.dtype(DTYPES[dtype]), opened.weights.where)
        _write_directory(
            storage.Path(destination), opened.model, tensors, tokenizer_of(opened.directory), report["max_length"],
            dtype, write,
        )  # fmt: skip
        return Loaded(params={}, **report)


class _Opened(NamedTuple):
    """A model directory whose tensors can be read."""

    model: Bert
    saved_head: str | None  # None: none of ours
    weights: Weights
    root: storage.Path
    directory: storage.Path

    def match(self) -> state_dict.Matched:
        tensors, fresh_head = self.weights.tensors, self.model.head != self.saved_head
        if fresh_head and self.saved_head is not None:
            tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(_CLASSIFIER)}
        return state_dict.match(self.model, tensors, fresh_head, self.weights.where)

    def report(self, matched: state_dict.Matched) -> dict[str, Any]:
        """The fields of `Loaded` but params."""
        tensors = self.weights.tensors
        return {
            "config": self.model.config,
            "head": self.model.head,
            "missing": list(matched.missing),
            "unused": sorted(tensors.keys() - matched.used),
            "directory": self.directory,
            "max_length": sentence_transformers.max_seq_length(self.root),
            "format": self.weights.format,
            "read": {name: (tensors[name].dtype.name, tensors[name].shape) for name in tensors if name in matched.used},
        }


@contextlib.contextmanager
def _open_model(path: storage.PathLike, head: str | None, family: str) -> Iterator[_Opened]:
    """Settles what a directory holds, and opens it."""
    if head is not None and head not in HEADS:
        raise InputError(f"head {head!r} is not known{did_you_mean(head, HEADS)}")
    root = hub.locate(path)
    embeds = sentence_transformers.is_sentence_transformer(root)
    directory = sentence_transformers.transformer_directory(root) if embeds else root
    hf, where = _described(directory, family)
    config = BertConfig.from_hf(hf, where=str(where))
    names = FAMILIES[config.family]
    with open_weights(directory) as found:
        weights = dataclasses.replace(found, tensors=_canonical_names(found.tensors, names, found.where))
        saved_head = "sentence_embedding" if embeds else _saved_head(hf, weights.tensors, names, where, head)
        head = head or saved_head
        assert head is not None
        if head == "sentence_embedding" and embeds:
            config = config.replace(**sentence_transformers.pooling_settings(root))
        if head in ("encoder", "sentence_embedding"):
            config = config.replace(pooler=f"{names.prefix}pooler.dense.weight" in weights.tensors)
        yield _Opened(Bert(config, head), saved_head, weights, root, directory)


def _described(directory: storage.Path, family: str) -> tuple[dict[str, Any], storage.Path]:
    """What config.json says, or TensorFlow's older file, and which of them it was."""
    where = directory / "config.json"
    if not where.exists() and (directory / "bert_config.json").exists():
        where = directory / "bert_config.json"
    hf = storage.read_json(where)
    if hf.get("is_decoder"):
        raise InputError(f"{where}: expected an encoder, found is_decoder: true")
    if family:
        return hf | {"model_type": family}, where
    narrow = hf.get("embedding_size", hf.get("hidden_size")) != hf.get("hidden_size")
    # Embeddings that are brought to the hidden size came with ALBERT; ELECTRA has them, and layers as BERT's.
    return {"model_type": "electra" if narrow else "bert"} | hf, where


def save_pretrained(
    directory: storage.PathLike,
    config: BertConfig,
    head: str,
    params: Params,
    tokenizer: _SavesItself | None = None,
    *,
    max_length: int | None = None,
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
        max_length: for a sentence embedding, the longest input in tokens that it is meant for.
        overwrite: whether a model directory that is already there is replaced, with all that is in it.
        dtype: of the tensors in the file: float32, bfloat16 or float16.
        weights: the format of that file: safetensors, or flax, which Hugging Face's Flax models (transformers 4) read.

    Raises:
        InputError: the parameters do not fit config and head, or the directory holds something already.
    """
    write = _writer(dtype, weights)
    tensors = state_dict.stored_params(config, head, params, np.dtype(DTYPES[dtype]))
    home = storage.Path(directory)
    replaced = overwrite and home.is_dir() and any(home.iterdir())
    if replaced and not (home / "config.json").exists():
        raise InputError(f"{home}: expected a model directory to replace, found one without config.json")
    target = home.parent / f".{home.name}.{uuid.uuid4().hex[:8]}.new" if replaced else home
    _write_directory(target, Bert(config, head), tensors, tokenizer, max_length, dtype, write)
    if replaced:
        storage.replace_directory(home, target)


def _writer(dtype: str, weights: str) -> Callable[[storage.Path, Tensors], None]:
    """What writes tensors of a dtype into a directory, in a format. Raises InputError when either is not known."""
    for what, value, known in (("dtype", dtype, DTYPES), ("weights", weights, WRITERS)):
        if value not in known:
            raise InputError(f"{what} {value!r} is not known{did_you_mean(value, known)}")
    name, write = WRITERS[weights]
    return lambda directory, tensors: write(directory / name, tensors)


def _write_directory(
    directory: storage.Path,
    model: Bert,
    tensors: Tensors,
    tokenizer: _SavesItself | None,
    max_length: int | None,
    dtype: str,
    write: Callable[[storage.Path, Tensors], None],
) -> None:
    architecture = FAMILIES[model.config.family].architectures[model.head]
    described = model.config.to_hf(architecture) | {"dtype": dtype}
    with storage.directory_atomically(directory) as beside:
        write(beside, tensors)
        if tokenizer is not None:
            tokenizer.save(beside)
        if model.head == "sentence_embedding":
            sentence_transformers.write_layout(beside, model.config, max_length)
        storage.write_atomically(beside / "config.json", json.dumps(described, indent=2, sort_keys=True) + "\n")


def _saved_head(
    hf: dict[str, Any], tensors: Tensors, names: Names, where: storage.Path, asked: str | None
) -> str | None:
    """The head that a directory was saved with; None when it is not one of ours and another is asked for."""
    classes = hf.get("architectures") or []
    known = {architecture: head for head, architecture in names.architectures.items() if head != "sentence_embedding"}
    for name in classes:
        if name in known:
            return known[name]
    if classes and asked is None:
        raise InputError(
            f"{where}: architecture {classes[0]!r} is not known{did_you_mean(classes[0], known)}"
            "; or name the head that you want"
        )
    if classes:
        return None
    for head in ("pretraining", "masked_lm", "replaced_token_detection", "question_answering"):
        own = [entry.theirs for entry in names.heads.get(head, ()) if entry.ours.endswith("/kernel")]
        if own and all(name in tensors for name in own) and not any(name.startswith(_CLASSIFIER) for name in own):
            return head
    has_classifier = any(name.startswith(_CLASSIFIER) for name in tensors)
    if has_classifier and asked is None:
        raise InputError(f"{where}: expected the architecture of its classifier, found none")
    return asked if has_classifier else "encoder"


def _canonical_names(tensors: Tensors, names: Names, where: storage.Path) -> Tensors:
    """Undoes what old and encoder-only files do to names, and drops what holds no parameter."""
    roots = {entry.theirs.removeprefix(names.prefix).split(".")[0] for entry in names.encoder}
    renamed: Tensors = {}
    for name, tensor in names.older(tensors).items():
        if name.endswith(("position_ids", "inv_freq")):  # buffers, which hold nothing that was learned
            continue
        new = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        if new.split(".")[0] in roots:
            new = names.prefix + new
        if new in renamed:
            raise InputError(f"{where}: tensor {new!r} is there under two names")
        renamed[new] = tensor
    for name, original in names.tied:  # some files have the second name alone
        if name in renamed and original not in renamed:
            renamed[original] = renamed[name]
    return renamed
