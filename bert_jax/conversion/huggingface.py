"""Model directories in the Hugging Face layout: config.json, weights, tokenizer; read and written."""

import functools
import json
import re
import uuid
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from etils import epath

from bert_jax import files
from bert_jax.config import BertConfig, read_json
from bert_jax.conversion import hub, safetensors_files, sentence_transformers
from bert_jax.conversion.huggingface_names import ARCHITECTURES, TIED, Slot, slots
from bert_jax.conversion.tensors import open_weights
from bert_jax.errors import InputError, did_you_mean
from bert_jax.modeling import HEADS, Bert, Params
from bert_jax.modeling.embeddings import sinusoids

# Different heads whose tensors have one name: what is trained for one of them means nothing to another.
_CLASSIFIERS = ("sequence_classification", "token_classification", "multiple_choice")
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
        directory: where the BERT and its tokenizer are.
        max_length: tokens that the model is meant to be given at most, or None when its files do not say.
    """

    config: BertConfig
    head: str
    params: Params
    missing: list[str]
    unused: list[str]
    directory: epath.Path
    max_length: int | None


def load_pretrained(path: files.PathLike, head: str | None = None, seed: int = 0) -> Loaded:
    """Reads a BERT-layout model directory; PyTorch is not needed and no code in the files runs.

    Args:
        path: a directory (local or `gs://`) with `config.json` and `model.safetensors` or `pytorch_model.bin` (or
            shards of these with their `.index.json`), or a name on the hub (`hub.locate`).
        head: one of `modeling.HEADS`; None means the one that the directory was saved with. Asked for another, the
            parameters that only it has are freshly initialised and listed in `missing`.
        seed: of that initialisation.

    Raises:
        InputError: something is missing, damaged, or does not fit; the message names the file and the tensor.
    """
    if head is not None and head not in HEADS:
        raise InputError(f"head {head!r} is not known{did_you_mean(head, HEADS)}")
    root = hub.locate(path)
    embeds = sentence_transformers.is_sentence_transformer(root)
    directory = sentence_transformers.transformer_directory(root) if embeds else root
    hf = read_json(directory / "config.json")
    config = BertConfig.from_hf(hf, where=str(directory / "config.json"))
    if hf.get("is_decoder"):
        raise InputError(f"{directory / 'config.json'}: expected an encoder, found is_decoder: true")
    tensors, where = _read_weights(directory)
    tensors = _canonical_names(tensors, where)
    saved_head = "sentence_embedding" if embeds else _saved_head(hf, tensors, directory, head)
    head = head or saved_head
    assert head is not None
    if head == "sentence_embedding" and embeds:
        config = config.replace(**sentence_transformers.pooling_settings(root))
    if head in ("encoder", "sentence_embedding"):
        config = config.replace(pooler="bert.pooler.dense.weight" in tensors)
    usable = tensors
    if head != saved_head and head in _CLASSIFIERS and saved_head in _CLASSIFIERS:
        usable = {name: tensor for name, tensor in tensors.items() if not name.startswith("classifier.")}
    params, missing, used = _fill(Bert(config, head), usable, head != saved_head, seed, where)
    return Loaded(
        config,
        head,
        params,
        missing,
        unused=sorted(tensors.keys() - used),
        directory=directory,
        max_length=sentence_transformers.max_seq_length(root),
    )


def save_pretrained(
    directory: files.PathLike,
    config: BertConfig,
    head: str,
    params: Params,
    tokenizer: _SavesItself | None = None,
    *,
    max_length: int | None = None,
    overwrite: bool = False,
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

    Raises:
        InputError: the parameters do not fit config and head, or the directory holds something already.
    """
    tensors = to_huggingface(config, head, params)
    home = epath.Path(directory)
    described = config.to_hf(ARCHITECTURES[head]) | {"dtype": "float32"}
    replaced = overwrite and home.is_dir() and any(home.iterdir())
    if replaced and not (home / "config.json").exists():
        raise InputError(f"{home}: expected a model directory to replace, found one without config.json")
    target = _sibling(home, "new") if replaced else home
    with files.directory_atomically(target) as beside:
        safetensors_files.write(beside / "model.safetensors", tensors)
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
    shapes = _shapes(Bert(config, head))
    leaves = {path: np.asarray(leaf, dtype=np.float32) for path, leaf in _flatten(params).items()}
    for path in sorted(shapes.keys() | leaves.keys()):
        if path not in leaves or path not in shapes or leaves[path].shape != shapes[path]:
            expected = f"shape {list(shapes[path])}" if path in shapes else "no such parameter"
            found = f"shape {list(leaves[path].shape)}" if path in leaves else "none"
            raise InputError(f"parameter {path!r} of head {head!r}: expected {expected}, found {found}")
    tensors = {slot.name: _view(leaves[slot.path], slot) for slot in slots(shapes)}
    if config.position_embedding_type == "sinusoidal":
        # Hugging Face's BERT has learned positions only: given the table as such, it computes the same.
        tensors[_POSITIONS] = sinusoids(config.max_position_embeddings, config.hidden_size)
    if ARCHITECTURES[head] == "BertModel":
        tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    return tensors


def _view(leaf: np.ndarray, slot: Slot) -> np.ndarray:
    """The part of our leaf that holds their tensor, with their axes; writing to it writes to the leaf."""
    part = leaf if slot.layer is None else leaf[slot.layer]
    return part.T if slot.transpose else part


def _fill(
    model: Bert, tensors: dict[str, np.ndarray], fresh_head: bool, seed: int, where: epath.Path
) -> tuple[Params, list[str], set[str]]:
    """The model's parameters from their tensors; also the names that they lack, and those that were used."""
    shapes = _shapes(model)
    leaves = {path: np.empty(shape, np.float32) for path, shape in shapes.items()}
    missing: dict[str, str] = {}  # their name -> our path
    used: set[str] = set()
    for slot in slots(shapes):
        if slot.name in tensors:
            _view(leaves[slot.path], slot)[...] = _checked(tensors[slot.name], slot.name, slot.shape, where)
            used.add(slot.name)
        elif fresh_head and not slot.path.startswith(("embeddings/", "encoder/")):
            missing[slot.name] = slot.path
        else:
            some = next(iter(tensors), "nothing")
            raise InputError(f"{where}: expected a tensor {slot.name!r}, found none (but, for one, {some!r})")
    if model.config.position_embedding_type == "sinusoidal" and _POSITIONS in tensors:
        _check_sinusoids(tensors[_POSITIONS], model.config, where)
        used.add(_POSITIONS)
    if "mlm/bias" in shapes:
        used |= _check_tied(tensors, missing, where)
    _check_layers(tensors, model.config, where)
    if missing:
        paths = set(missing.values())
        fresh = jax.jit(lambda key: {path: leaf for path, leaf in _flatten(model.init(key)).items() if path in paths})
        leaves |= {path: np.asarray(leaf) for path, leaf in fresh(jax.random.key(seed)).items()}
    return _nest(leaves), list(missing), used


def _checked(tensor: np.ndarray, name: str, shape: tuple[int, ...], where: epath.Path) -> np.ndarray:
    """The tensor as float32, after checking its shape, dtype and values."""
    if tensor.shape != shape:
        raise InputError(
            f"{where}: tensor {name!r} is of another size than config.json says: "
            f"expected {list(shape)}, found {list(tensor.shape)}"
        )
    if tensor.dtype.name not in ("float32", "float16", "bfloat16", "float64"):
        raise InputError(f"{where}: tensor {name!r}: expected floating point, found {tensor.dtype.name}")
    with np.errstate(over="ignore"):
        tensor = tensor.astype(np.float32, copy=False)
    largest = np.abs(tensor).max(initial=0)
    if not largest < _LARGEST_PLAUSIBLE:  # also when it is NaN
        raise InputError(f"{where}: tensor {name!r}: expected finite parameters, found {largest}; the file is damaged")
    return tensor


def _check_tied(tensors: dict[str, np.ndarray], missing: dict[str, str], where: epath.Path) -> set[str]:
    """Checks that the second names of tensors hold what the first do; returns those that are there."""
    present = {name for name, original in TIED if name in tensors and original not in missing}
    for name, original in TIED:
        if name in present and not np.array_equal(tensors[name], tensors[original]):
            raise InputError(f"{where}: tensor {name!r}: expected it tied (equal) to {original!r}, found other values")
    return present


def _check_sinusoids(tensor: np.ndarray, config: BertConfig, where: epath.Path) -> None:
    table = sinusoids(config.max_position_embeddings, config.hidden_size)
    if tensor.shape != table.shape or not np.allclose(tensor, table, atol=1e-2):  # the file may be bfloat16
        raise InputError(f"{where}: tensor {_POSITIONS!r}: expected sinusoids as config.json says, found other values")


def _check_layers(tensors: dict[str, np.ndarray], config: BertConfig, where: epath.Path) -> None:
    for name in tensors:
        match = re.match(r"bert\.encoder\.layer\.(\d+)\.", name)
        if match and int(match[1]) >= config.num_hidden_layers:
            raise InputError(
                f"{where}: expected {config.num_hidden_layers} layers as config.json says, found tensor {name!r}"
            )


def _saved_head(
    hf: dict[str, Any], tensors: dict[str, np.ndarray], directory: epath.Path, asked: str | None
) -> str | None:
    """The head that a directory was saved with; None when it is not one of ours and another is asked for."""
    names = hf.get("architectures") or []
    known = {architecture: head for head, architecture in ARCHITECTURES.items() if head != "sentence_embedding"}
    for name in names:
        if name in known:
            return known[name]
    if names and asked is None:
        raise InputError(
            f"{directory / 'config.json'}: architecture {names[0]!r} is not known{did_you_mean(names[0], known)}"
            "; or name the head that you want"
        )
    if names:
        return None
    for name, head in (
        ("cls.seq_relationship.weight", "pretraining"),
        ("cls.predictions.transform.dense.weight", "masked_lm"),
        ("qa_outputs.weight", "question_answering"),
    ):
        if name in tensors:
            return head
    if "classifier.weight" in tensors and asked is None:
        raise InputError(f"{directory / 'config.json'}: expected the architecture of its classifier, found none")
    return asked if "classifier.weight" in tensors else "encoder"


def _canonical_names(tensors: dict[str, np.ndarray], where: epath.Path) -> dict[str, np.ndarray]:
    """Undoes what old and encoder-only files do to names, and drops what holds no parameter."""
    renamed: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        if name.endswith("position_ids"):  # a buffer that counts 0, 1, ...
            continue
        new = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        if new.startswith(("embeddings.", "encoder.", "pooler.")):
            new = f"bert.{new}"
        if new in renamed:
            raise InputError(f"{where}: tensor {new!r} is there under two names")
        renamed[new] = tensor
    for name, original in TIED:  # some files have the second name alone
        if name in renamed and original not in renamed:
            renamed[original] = renamed[name]
    return renamed


def _read_weights(directory: epath.Path) -> tuple[dict[str, np.ndarray], epath.Path]:
    """All tensors of a directory by name, and the file to name in messages."""
    with open_weights(directory) as weights:
        return {name: tensor.read() for name, tensor in weights.tensors.items()}, weights.where


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
