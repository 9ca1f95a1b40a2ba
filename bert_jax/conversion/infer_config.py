"""Infer sizes from tensor names and shapes, to complete and check config.json."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from bert_jax import storage
from bert_jax.conversion.checkpoint import Checkpoint
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.slots import PLACEHOLDERS, numbers_of
from bert_jax.conversion.tensor_names import tensor_name
from bert_jax.errors import InputError, logger
from bert_jax.families import FAMILIES, Json
from bert_jax.families.names import Names

_log = logger(__name__)
# (field of BertConfig, parameter whose shape implies it, axis of the tensor in the files). Of several parameters for a
# field, the first that the files have is used.
_SHOWN_BY = (
    ("vocab_size", "embeddings/word_embeddings/embedding", 0),
    ("embedding_size", "embeddings/word_embeddings/embedding", 1),
    ("max_position_embeddings", "embeddings/position_embeddings/embedding", 0),
    ("type_vocab_size", "embeddings/token_type_embeddings/embedding", 0),
    ("task_type_vocab_size", "embeddings/task_type_embeddings/embedding", 0),
    ("intra_bottleneck_size", "encoder/layers/bottleneck/input/kernel", 0),
    ("hidden_size", "encoder/layers/bottleneck/output/kernel", 0),
    ("hidden_size", "encoder/layers/attention/output/kernel", 0),
    ("hidden_size", "embeddings/word_embeddings/embedding", 1),
    ("intermediate_size", "encoder/layers/mlp/down/kernel", 1),
    ("num_attention_heads", "encoder/relative_attention_bias/embedding", 1),
)


class Size(NamedTuple):
    """The value of a config field, with the name and shape of the tensor that implies it."""

    value: int
    name: str
    shape: tuple[int, ...]


def infer_config(checkpoint: Checkpoint) -> Checkpoint:
    """Complete the config.json of a checkpoint with sizes; its tensors already have the family's names.

    Raises:
        InputError: as for `complete`.
    """
    hf, family, where = checkpoint.hf, checkpoint.hf["model_type"], checkpoint.where
    hf = complete(hf, family, checkpoint.weights.tensors, where)
    if hf.get("auto_map") and not FAMILIES[family].has_own_code:
        _log.warning("%s: auto_map names Python files; they are not run, and the model is read as %s", where, family)
    return checkpoint._replace(hf=hf)


def complete(hf: Json, family: str, tensors: Tensors, where: storage.Path) -> Json:
    """Complete a config.json with sizes from the shapes of the tensors, and check the sizes that it has.

    Args:
        hf: the content of config.json.
        family: one of `bert_jax.families.FAMILIES`.
        tensors: tensors by the family's names.
        where: path of config.json, for messages.

    Raises:
        InputError: a size differs from that of a tensor, or a required key is missing that no tensor implies.
    """
    kind = FAMILIES[family]
    keys = dict(kind.keys)
    if kind.older_keys.get("hidden_size") in hf:
        keys |= kind.older_keys
    hf = dict(hf)
    if "legacy" in keys and any(name.startswith("lm_predictions.") for name in tensors):
        hf.setdefault("legacy", False)  # the files of DeBERTa's authors do not have the key
    for field, size in _sizes(FAMILIES[family].names, tensors):
        if (key := keys.get(field)) is None:
            continue
        said = hf.get(key)
        if said is None:
            hf[key] = size.value
        elif type(said) is int and said != size.value:
            raise InputError(
                f"{where}: {key}: expected {size.value}, as in tensor {size.name!r} of shape {list(size.shape)}, "
                f"found {said}"
            )
    for field in kind.required:
        if hf.get(keys[field]) is None:
            if field not in kind.assumed:
                raise InputError(f"{where}: expected {keys[field]}, which the weights do not imply, found none")
            hf[keys[field]] = kind.assumed[field]
            _log.warning("%s: found no %s; using %s, transformers' default", where, keys[field], kind.assumed[field])
    _check_head_size(hf, keys["num_attention_heads"], FAMILIES[family].names, tensors, where)
    table, names = "embeddings/position_embeddings/embedding", FAMILIES[family].names
    has_speeds = tensor_name(names, "encoder/inverse_frequencies") in tensors  # then a position table is not used
    if (
        hf.get("position_embedding_type") == "rotary"
        and (name := tensor_name(names, table)) in tensors
        and not has_speeds
    ):
        raise InputError(
            f"{where}: position_embedding_type: expected absolute, as the weights have tensor {name!r}, found rotary"
        )
    padding, rows = hf.get(keys["pad_token_id"]), hf.get(keys["vocab_size"])
    if type(padding) is int and type(rows) is int and padding >= rows:
        raise InputError(f"{where}: pad_token_id: expected less than vocab_size {rows}, found {padding}")
    return hf


def _check_head_size(hf: Json, key: str, names: Names, tensors: Tensors, where: object) -> None:
    """Raise InputError when a config.json has a head_dim and heads * head_dim is not the tensors' width."""
    heads, size, name = hf.get(key), hf.get("head_dim"), tensor_name(names, "encoder/layers/attention/output/kernel")
    if type(heads) is not int or type(size) is not int or name not in tensors or len(tensors[name].shape) != 2:
        return
    width = tensors[name].shape[1]
    if heads * size != width:
        raise InputError(f"{where}: head_dim: expected {key} * head_dim = {width}, as in tensor {name!r} of shape "
                         f"{list(tensors[name].shape)}, found {heads} * {size}")  # fmt: skip


def _sizes(names: Names, tensors: Tensors) -> Iterator[tuple[str, Size]]:
    shown = set()
    for field, path, axis in _SHOWN_BY:
        name = tensor_name(names, path)
        if name in tensors and len(tensors[name].shape) == 2 and field not in shown:
            shown.add(field)
            yield field, Size(tensors[name].shape[axis], name, tensors[name].shape)
    blocks = {name: int(match[1]) for name in tensors if (match := re.search(r"\.layer\.\d+\.ffn\.(\d+)\.", name))}
    if blocks:  # the last block has another name
        name = max(blocks, key=lambda name: blocks[name])
        yield "num_feedforward_networks", Size(blocks[name] + 2, name, tensors[name].shape)
    last: dict[str, tuple[int, str]] = {}  # placeholder -> its largest number, and the tensor with it
    for name in tensors:
        for placeholder, number in numbers_of(names, name).items():
            last[placeholder] = max(last.get(placeholder, (-1, "")), (number, name))
    for placeholder, (number, name) in last.items():
        yield PLACEHOLDERS[placeholder][0], Size(number + 1, name, tensors[name].shape)
