"""Model directories: config.json, weights, tokenizer; read in any format, written in the Hugging Face layout."""

import contextlib
import functools
import json
import re
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import jax
import ml_dtypes
import numpy as np
from etils import epath

from bert_jax import files
from bert_jax.config import BertConfig, read_json
from bert_jax.conversion import flax_msgpack, hub, safetensors_files, sentence_transformers
from bert_jax.conversion.names import FAMILIES, Names, Slot, slots
from bert_jax.conversion.names.table import Tensors
from bert_jax.conversion.stored import StoredTensor
from bert_jax.conversion.tensors import Weights, open_weights
from bert_jax.errors import InputError, did_you_mean
from bert_jax.modeling import HEADS, Bert, Params
from bert_jax.modeling.embeddings import sinusoids

# Heads with tensors of one name: what is trained for one of them means nothing to another.
_CLASSIFIER = "classifier."
# What is written: a format's file, and by whom.
WRITERS = {
    "safetensors": ("model.safetensors", safetensors_files.write),
    "flax": ("flax_model.msgpack", flax_msgpack.write),
}
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
# No parameter of a trained BERT is near this; a flipped exponent bit is far beyond it.
_LARGEST_PLAUSIBLE = 1e6
_POSITIONS = "bert.embeddings.position_embeddings.weight"


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
    directory: epath.Path
    max_length: int | None
    format: str
    read: dict[str, tuple[str, tuple[int, ...]]]


def load_pretrained(path: files.PathLike, head: str | None = None, seed: int = 0, family: str = "") -> Loaded:
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
    if head is not None and head not in HEADS:
        raise InputError(f"head {head!r} is not known{did_you_mean(head, HEADS)}")
    root = hub.locate(path)
    embeds = sentence_transformers.is_sentence_transformer(root)
    directory = sentence_transformers.transformer_directory(root) if embeds else root
    hf, where = _described(directory, family)
    config = BertConfig.from_hf(hf, where=str(where))
    names = FAMILIES[config.family]
    with _opened(directory, names) as weights:
        tensors = weights.tensors
        saved_head = "sentence_embedding" if embeds else _saved_head(hf, tensors, names, where, head)
        head = head or saved_head
        assert head is not None
        if head not in names.architectures:
            heads = ", ".join(names.architectures)
            raise InputError(f"{where}: a {config.family} has no head {head!r} (but {heads})")
        if head == "sentence_embedding" and embeds:
            config = config.replace(**sentence_transformers.pooling_settings(root))
        if head in ("encoder", "sentence_embedding"):
            config = config.replace(pooler=f"{names.prefix}pooler.dense.weight" in tensors)
        if saved_head is not None and head != saved_head:
            usable = {name: tensor for name, tensor in tensors.items() if not name.startswith(_CLASSIFIER)}
        else:
            usable = tensors
        params, missing, used = _fill(Bert(config, head), usable, head != saved_head, seed, weights.where)
        return Loaded(
            config,
            head,
            params,
            missing,
            unused=sorted(tensors.keys() - used),
            directory=directory,
            max_length=sentence_transformers.max_seq_length(root),
            format=weights.format,
            read={name: (tensors[name].dtype.name, tensors[name].shape) for name in tensors if name in used},
        )


def _described(directory: epath.Path, family: str) -> tuple[dict[str, Any], epath.Path]:
    """What config.json says, or TensorFlow's older file, and which of them it was."""
    where = directory / "config.json"
    if not where.exists() and (directory / "bert_config.json").exists():
        where = directory / "bert_config.json"
    hf = read_json(where)
    if hf.get("is_decoder"):
        raise InputError(f"{where}: expected an encoder, found is_decoder: true")
    if family:
        return hf | {"model_type": family}, where
    narrow = hf.get("embedding_size", hf.get("hidden_size")) != hf.get("hidden_size")
    # Embeddings that are brought to the hidden size came with ALBERT; ELECTRA has them, and layers as BERT's.
    return {"model_type": "electra" if narrow else "bert"} | hf, where


def save_pretrained(
    directory: files.PathLike,
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
    for what, value, known in (("dtype", dtype, DTYPES), ("weights", weights, WRITERS)):
        if value not in known:
            raise InputError(f"{what} {value!r} is not known{did_you_mean(value, known)}")
    name, write = WRITERS[weights]
    tensors = _stored(config, head, params, np.dtype(DTYPES[dtype]))
    home = epath.Path(directory)
    described = config.to_hf(FAMILIES[config.family].architectures[head]) | {"dtype": dtype}
    replaced = overwrite and home.is_dir() and any(home.iterdir())
    if replaced and not (home / "config.json").exists():
        raise InputError(f"{home}: expected a model directory to replace, found one without config.json")
    target = _sibling(home, "new") if replaced else home
    with files.directory_atomically(target) as beside:
        write(beside / name, tensors)
        if tokenizer is not None:
            tokenizer.save(beside)
        if head == "sentence_embedding":
            sentence_transformers.write_layout(beside, config, max_length)
        files.write_atomically(beside / "config.json", json.dumps(described, indent=2, sort_keys=True) + "\n")
    if replaced:
        old = _sibling(home, "replaced")
        home.rename(old)
        target.rename(home)
        old.rmtree()


def _sibling(directory: epath.Path, what: str) -> epath.Path:
    return directory.parent / f".{directory.name}.{uuid.uuid4().hex[:8]}.{what}"


def to_huggingface(config: BertConfig, head: str, params: Params) -> dict[str, np.ndarray]:
    """The state dict (names to float32 arrays, tied tensors once) of the Hugging Face class for `head`.

    Raises:
        InputError: the parameters do not fit config and head.
    """
    return {name: tensor.read() for name, tensor in _stored(config, head, params, np.dtype(np.float32)).items()}


def _stored(config: BertConfig, head: str, params: Params, dtype: np.dtype) -> Tensors:
    """The same, made when it is read."""
    names, shapes = FAMILIES[config.family], _shapes(Bert(config, head))
    if head not in names.architectures:
        raise InputError(f"a {config.family} has no head {head!r} (but {', '.join(names.architectures)})")
    leaves = _flatten(params)
    for path in sorted(shapes.keys() | leaves.keys()):
        if path not in leaves or path not in shapes or leaves[path].shape != shapes[path]:
            expected = f"shape {list(shapes[path])}" if path in shapes else "no such parameter"
            found = f"shape {list(leaves[path].shape)}" if path in leaves else "none"
            raise InputError(f"parameter {path!r} of head {head!r}: expected {expected}, found {found}")
    grouped: dict[str, list[Slot]] = {}
    for slot in slots(names, head, shapes):
        grouped.setdefault(slot.name, []).append(slot)

    def tensor(parts: list[Slot]) -> StoredTensor:
        def read() -> np.ndarray:
            views = [_view(np.asarray(leaves[slot.path]), slot) for slot in parts]
            return (views[0] if len(views) == 1 else np.concatenate(views)).astype(dtype, copy=False)

        return StoredTensor(parts[0].shape, dtype, read)

    tensors = {name: tensor(parts) for name, parts in grouped.items()}
    if config.position_embedding_type == "sinusoidal":
        # Hugging Face's models have learned positions: given the table as such, they compute the same.
        table = sinusoids(config.max_position_embeddings, config.embedding_width).astype(dtype)
        tensors[_positions(names)] = StoredTensor(table.shape, dtype, lambda: table)
    if names.architectures[head] == names.architectures["encoder"]:
        tensors = {name.removeprefix(names.prefix): tensor for name, tensor in tensors.items()}
    return tensors


def _positions(names: Names) -> str:
    return f"{names.prefix}embeddings.position_embeddings.weight"


def _view(leaf: np.ndarray, slot: Slot) -> np.ndarray:
    """The part of our leaf that holds their tensor (or its part), with their axes; writing to it writes to the leaf."""
    part = leaf if slot.layer is None else leaf[slot.layer]
    return part.T if slot.transpose else part


def _fill(
    model: Bert, tensors: Tensors, fresh_head: bool, seed: int, where: epath.Path
) -> tuple[Params, list[str], set[str]]:
    """The model's parameters from their tensors; also the names that they lack, and those that were used."""
    names, shapes = FAMILIES[model.config.family], _shapes(model)
    leaves = {path: np.ones(shape, np.float32) for path, shape in shapes.items()}
    missing: dict[str, str] = {}  # their name -> our path
    grouped: dict[str, list[Slot]] = {}
    for slot in slots(names, model.head, shapes):
        if slot.name in tensors:
            grouped.setdefault(slot.name, []).append(slot)
        elif fresh_head and not slot.path.startswith(("embeddings/", "encoder/")):
            missing[slot.name] = slot.path
        else:
            some = next(iter(tensors), "nothing")
            raise InputError(f"{where}: expected a tensor {slot.name!r}, found none (but, for one, {some!r})")
    for name, parts in grouped.items():
        _read(tensors[name], parts, leaves, where)
    used = set(grouped)
    if model.config.position_embedding_type == "sinusoidal" and _positions(names) in tensors:
        _check_sinusoids(_positions(names), tensors, model.config, where)
        used.add(_positions(names))
    if "mlm/dense/kernel" in shapes:
        used |= _check_tied(names, tensors, used, where)
    _check_layers(names, tensors, model.config, where)
    if missing:
        paths = set(missing.values())
        fresh = jax.jit(lambda key: {path: leaf for path, leaf in _flatten(model.init(key)).items() if path in paths})
        leaves |= {path: np.asarray(leaf) for path, leaf in fresh(jax.random.key(seed)).items()}
    return _nest(leaves), list(missing), used


def _read(tensor: StoredTensor, parts: list[Slot], leaves: dict[str, np.ndarray], where: epath.Path) -> None:
    """Puts a tensor where its parts belong, after checking its shape, dtype and values."""
    name, shape = parts[0].name, parts[0].shape
    if tensor.shape != shape:
        raise InputError(
            f"{where}: tensor {name!r} is of another size than config.json says: "
            f"expected {list(shape)}, found {list(tensor.shape)}"
        )
    if tensor.dtype.name not in ("float32", "float16", "bfloat16", "float64"):
        raise InputError(f"{where}: tensor {name!r}: expected floating point, found {tensor.dtype.name}")
    values = tensor.read()
    for slot in parts:
        view, (index, count) = _view(leaves[slot.path], slot), slot.part
        rows = shape[0] // count
        with np.errstate(over="ignore"):
            view[...] = values[index * rows : (index + 1) * rows] if count > 1 else values
        largest = max(view.max(initial=0), -view.min(initial=0))
        if not largest < _LARGEST_PLAUSIBLE:  # also when it is NaN
            raise InputError(
                f"{where}: tensor {name!r}: expected finite parameters, found {largest}; the file is damaged"
            )


def _check_tied(names: Names, tensors: Tensors, used: set[str], where: epath.Path) -> set[str]:
    """Checks that the second names of tensors hold what the first do; returns those that are there."""
    present = set()
    for name, original in names.tied:
        if name not in tensors or name in used or original not in used:
            continue
        if tensors[name] is not tensors[original] and not _equal(tensors[name], tensors[original]):
            raise InputError(f"{where}: tensor {name!r}: expected it tied (equal) to {original!r}, found other values")
        present.add(name)
    return present


def _equal(a: StoredTensor, b: StoredTensor) -> bool:
    return a.shape == b.shape and np.array_equal(a.read(), b.read())


def _check_sinusoids(name: str, tensors: Tensors, config: BertConfig, where: epath.Path) -> None:
    tensor, table = tensors[name].read(), sinusoids(config.max_position_embeddings, config.embedding_width)
    if tensor.shape != table.shape or not np.allclose(tensor, table, atol=1e-2):  # the file may be bfloat16
        raise InputError(f"{where}: tensor {name!r}: expected sinusoids as config.json says, found other values")


def _check_layers(names: Names, tensors: Tensors, config: BertConfig, where: epath.Path) -> None:
    counted = next(entry.theirs for entry in names.encoder if "{layer}" in entry.theirs)
    pattern = re.compile(re.escape(counted.split("{layer}")[0]) + r"(\d+)\.")
    for name in tensors:
        match = pattern.match(name)
        if match and int(match[1]) >= config.num_hidden_layers:
            raise InputError(
                f"{where}: expected {config.num_hidden_layers} layers as config.json says, found tensor {name!r}"
            )


def _saved_head(hf: dict[str, Any], tensors: Tensors, names: Names, where: epath.Path, asked: str | None) -> str | None:
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


@contextlib.contextmanager
def _opened(directory: epath.Path, names: Names) -> Iterator[Weights]:
    """The weights of a directory under the names of its family."""
    with open_weights(directory) as weights:
        yield Weights(
            weights.where, weights.format, _canonical_names(weights.tensors, names, weights.where), weights.ignored
        )


def _canonical_names(tensors: Tensors, names: Names, where: epath.Path) -> Tensors:
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


@functools.lru_cache(maxsize=32)
def _shapes(model: Bert) -> dict[str, tuple[int, ...]]:
    """Canonical path -> shape."""
    return {path: leaf.shape for path, leaf in _flatten(model.abstract_params()).items()}


def _flatten(tree: Params, prefix: str = "") -> dict[str, Any]:
    """Nested dicts to one dict of `a/b/c` paths."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        flat |= _flatten(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return flat


def _nest(flat: dict[str, Any]) -> Params:
    """The inverse of `_flatten`."""
    tree: Params = {}
    for path, leaf in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return tree
