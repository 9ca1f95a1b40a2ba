"""Merge LoRA adapters of peft (a directory with `adapter_config.json`) into their base model.

Hu et al. 2021 (arXiv:2106.09685), section 4.1: a dense layer with weight `W [out, in]` becomes `W + scale * B @ A`.
"""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.conversion.checkpoint import AdapterFiles, Checkpoint, CheckpointFiles
from bert_jax.conversion.choose_head import classes_shown, with_classes
from bert_jax.conversion.file_names import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from bert_jax.conversion.formats import safetensors_files, torch_files
from bert_jax.conversion.formats.lazy_tensors import LazyTensor, Tensors
from bert_jax.conversion.model_kinds import is_adapter
from bert_jax.conversion.sentence_transformers import read_layout
from bert_jax.conversion.tensor_names import canonical_names
from bert_jax.conversion.weights import is_weights
from bert_jax.errors import InputError, printable
from bert_jax.families import FAMILIES
from bert_jax.model_files import check_keys
from bert_jax.model_files.adapter import ADAPTER
from bert_jax.storage import hub
from bert_jax.tokenization import has_tokenizer

_OPENERS = (safetensors_files.open_tensors, torch_files.open_tensors)  # in the order of `ADAPTER_WEIGHTS`
_FILES = dict(zip(ADAPTER_WEIGHTS, _OPENERS, strict=True))
_PREFIX = "base_model.model."
# peft's task type -> suffix of the Hugging Face class.
_HEADS = {
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
    "FEATURE_EXTRACTION": "Model",
}
# Names of the two matrices of an update, and whether the layer is an embedding.
_UPDATES = (("lora_A.weight", "lora_B.weight", False), ("lora_embedding_A", "lora_embedding_B", True))
# A module name or regular expression, without the operators that can make matching slow.
_PATTERN = re.compile(r"[\w.\\^$|]{1,200}")


class Adapter(NamedTuple):
    """An open adapter.

    Attributes:
        where: the file of its weights.
        tensors: tensors that replace those of the model (heads, biases), by name.
        updates: tensors that are added to those of the model, by name.
    """

    where: storage.Path
    tensors: Tensors
    updates: Tensors


def add_files(files: CheckpointFiles, base: storage.PathLike | None) -> CheckpointFiles:
    """Add an adapter, and find its base model: `base`, or else the one that the adapter's config names.

    Raises:
        InputError: the adapter is not LoRA, or the base model is missing or is itself an adapter.
    """
    directory = files.directory
    content = read_config(directory)
    base_model = base_directory(directory, content, base)
    if layout := read_layout(base_model):
        base_model = layout.transformer
    # The base model's weights may be in the adapter's directory.
    is_beside = is_weights(directory) and base_model.is_same(directory)
    if is_adapter(base_model) and not is_beside:
        raise InputError(f"{directory}: expected a base model, found an adapter in {base_model}")
    return files._replace(directory=base_model, adapter=AdapterFiles(directory, content, base_model))


def merge_adapter(base: Checkpoint, files: AdapterFiles, stack: contextlib.ExitStack) -> Checkpoint:
    """Merge an adapter into its base model, whose tensors already have the family's names.

    Args:
        base: the base model.
        files: the adapter.
        stack: exit stack that closes the adapter's file.

    Raises:
        InputError: the adapter is damaged, or does not fit the base model.
    """
    names, hf = base.names, base.hf
    adapter = stack.enter_context(open_adapter(files.directory, files.content))
    replaced, updates = (canonical_names(part, names, adapter.where) for part in (adapter.tensors, adapter.updates))
    tensors = merged(base.tensors, replaced, updates, adapter.where)
    if saved := architecture(files.content, FAMILIES[hf["model_type"]].classes):
        hf = hf | {"architectures": [saved]}
    shown = classes_shown(names, names.head_of(saved or "") or "", tensors)
    if shown and any(shown.name in part for part in (replaced, updates)):
        hf = with_classes(hf, shown.value)
    tokenizer = files.directory if has_tokenizer(files.directory) else files.base
    weights = dataclasses.replace(base.weights, tensors=tensors, where=adapter.where)
    return base._replace(hf=hf, weights=weights, tokenizer=tokenizer)


def read_config(directory: storage.Path) -> dict[str, Any]:
    """Read and check `adapter_config.json`.

    Raises:
        InputError: the adapter is not LoRA, or a value has the wrong type.
    """
    where = directory / ADAPTER_CONFIG
    content = storage.read_json(where)
    if "peft_type" not in content:
        raise InputError(f"{where}: expected peft_type, found none")
    check_keys(content, ADAPTER, where)
    for key in ("r", "lora_alpha"):
        _number(content.get(key, 8), key, where)
    for key in ("rank_pattern", "alpha_pattern"):
        patterns = content.get(key) or {}
        if not isinstance(patterns, dict):
            raise InputError(f"{where}: {key}: expected an object, found {printable(repr(patterns), 60)}")
        for pattern, value in patterns.items():
            _number(value, key, where)
            if not _PATTERN.fullmatch(pattern):
                raise InputError(f"{where}: {key}: expected the name of a layer, found {printable(repr(pattern), 80)}")
    return content


def _number(value: Any, key: str, where: storage.Path) -> None:
    if type(value) not in (int, float) or not 0 < value < 2**31:
        raise InputError(f"{where}: {key}: expected a positive number, found {printable(repr(value), 60)}")


def base_directory(directory: storage.Path, content: dict[str, Any], base: storage.PathLike | None) -> storage.Path:
    """Return the directory of an adapter's base model: `base`, or the path or hub name in the adapter's config.

    Raises:
        InputError: there is no such directory.
    """
    if base is not None:
        return hub.locate(base)
    name = content.get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise InputError(
            f"{directory / ADAPTER_CONFIG}: expected base_model_name_or_path, found {printable(repr(name), 60)}"
        )
    for path in (storage.Path(name), directory / name):
        if path.is_dir():
            return path
    try:
        return hub.locate(name)
    except InputError as error:
        if is_weights(directory):
            raise InputError(
                f"{directory}: expected the base model {name!r} of the adapter, found none; set base=DIR (--base DIR), "
                "which may be this directory if it has the base model's weights; if the adapter is already merged into "
                "them, remove adapter_config.json"
            ) from None
        raise InputError(
            f"{directory}: expected the base model {name!r} of the adapter, found none; "
            f"`bert-jax convert ADAPTER NEW --base DIR` merges the adapter into the base model in DIR. {error}"
        ) from None


def architecture(content: dict[str, Any], family_classes: str) -> str | None:
    """Return the Hugging Face class of the merged model, or None if the adapter's config does not name it.

    Args:
        content: the content of `adapter_config.json`.
        family_classes: prefix of the family's class names, such as `Bert`.
    """
    task, mapping = content.get("task_type"), content.get("auto_mapping")
    if isinstance(task, str) and task in _HEADS:
        return family_classes + _HEADS[task]
    if isinstance(mapping, dict) and isinstance(mapping.get("base_model_class"), str):
        return mapping["base_model_class"]
    return None


@contextlib.contextmanager
def open_adapter(directory: storage.Path, content: dict[str, Any]) -> Iterator[Adapter]:
    """Yield an open adapter, whose tensors can be read inside the block.

    Raises:
        InputError: the weights are missing or damaged, or do not fit the config.
    """
    name = next((name for name in _FILES if (directory / name).exists()), None)
    if name is None:
        raise InputError(f"{directory}: expected {' or '.join(_FILES)} beside {ADAPTER_CONFIG}, found neither")
    where = directory / name
    with _FILES[name](where) as tensors:
        names = {_layer_name(name): tensor for name, tensor in tensors.items()}
        updates: Tensors = {}
        for first, second, is_embedding in _UPDATES:
            for name in [name for name in names if name.endswith(f".{first}")]:
                layer = name.removesuffix(f".{first}")
                other = names.pop(f"{layer}.{second}", None)
                if other is None:
                    raise InputError(f"{where}: expected {second} beside tensor {name!r}, found none")
                update = _update(names.pop(name), other, _scale(content, layer), is_embedding)
                if update is None:
                    raise InputError(
                        f"{where}: {layer}: expected lora_A and lora_B to be matrices of the same rank, found "
                        "other shapes"
                    )
                updates[f"{layer}.weight"] = update
        if strange := next((name for name in names if ".lora_" in name), None):
            raise InputError(f"{where}: expected tensors lora_A and lora_B alone, found also {strange!r}")
        yield Adapter(where, names, updates)


def _layer_name(name: str) -> str:
    """Remove the parts that peft's wrappers add to the name of a tensor."""
    name = name.removeprefix(_PREFIX)
    for wrapper in (".modules_to_save.default", ".modules_to_save", ".base_layer"):
        name = name.replace(wrapper, "")
    return name.replace(".default", "")


def _scale(content: dict[str, Any], layer: str) -> float:
    rank = _of_layer(content.get("rank_pattern"), layer, content.get("r", 8))
    alpha = _of_layer(content.get("alpha_pattern"), layer, content.get("lora_alpha", 8))
    return alpha / math.sqrt(rank) if content.get("use_rslora") else alpha / rank


def _of_layer(patterns: dict[str, float] | None, layer: str, usual: float) -> float:
    """Return the value of the first pattern that the end of a layer's name matches, as in peft; else `usual`."""
    for pattern, value in (patterns or {}).items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", layer):
                return value
        except re.error:
            raise InputError(f"{ADAPTER_CONFIG}: expected the name of a layer, found {pattern!r}") from None
    return usual


def _update(a: LazyTensor, b: LazyTensor, scale: float, is_embedding: bool) -> LazyTensor | None:
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1]:
        return None
    shape = (b.shape[0], a.shape[1])

    def read() -> np.ndarray:
        update = scale * (b.read().astype(np.float32) @ a.read().astype(np.float32))
        return update.T if is_embedding else update

    return LazyTensor(shape[::-1] if is_embedding else shape, np.dtype(np.float32), read)


def merged(tensors: Tensors, replaced: Tensors, updates: Tensors, where: storage.Path) -> Tensors:
    """Merge an adapter's tensors into a model's tensors; both have the family's names.

    Raises:
        InputError: the model lacks the tensor of an update, or the shapes differ.
    """
    result = tensors | replaced
    for name, update in updates.items():
        if name not in tensors:
            raise InputError(f"{where}: expected updates of the base model's tensors, found one of {name!r}")
        if tensors[name].shape != update.shape:
            raise InputError(
                f"{where}: expected an update of shape {list(tensors[name].shape)} for {name!r}, as in the base model, "
                f"found {list(update.shape)}"
            )
        result[name] = _sum(result[name], update)
    return result


def _sum(weight: LazyTensor, update: LazyTensor) -> LazyTensor:
    def read() -> np.ndarray:
        return weight.read().astype(np.float32) + update.read()

    return LazyTensor(weight.shape, np.dtype(np.float32), read)
