"""Infer the architecture from tensor names and shapes, to complete and check config.json."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bert_jax import storage
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.slots import PLACEHOLDERS, numbers_of
from bert_jax.errors import InputError, logger
from bert_jax.families import FAMILIES, Json, architectures_of, family_of, of_model_type
from bert_jax.families.names import Names

_log = logger(__name__)
# Prefixes that wrappers add to tensor names: DataParallel, torch.compile, Lightning, DeepSpeed, sentence-transformers.
_WRAPPERS = ("module.", "_orig_mod.", "model.", "_forward_module.", "0.", "auto_model.")
# A field of BertConfig, the parameter whose shape implies it, and the axis of the foreign tensor; the first that the
# files have.
_SHOWN_BY = (
    ("vocab_size", "embeddings/word_embeddings/embedding", 0),
    ("embedding_size", "embeddings/word_embeddings/embedding", 1),
    ("max_position_embeddings", "embeddings/position_embeddings/embedding", 0),
    ("type_vocab_size", "embeddings/token_type_embeddings/embedding", 0),
    ("task_type_vocab_size", "embeddings/task_type_embeddings/embedding", 0),
    ("intra_bottleneck_size", "encoder/layers/bottleneck/input/kernel", 0),
    ("hidden_size", "encoder/layers/bottleneck/output/kernel", 0),
    ("hidden_size", "encoder/layers/attention/output/kernel", 0),
    ("intermediate_size", "encoder/layers/mlp/down/kernel", 1),
    ("num_attention_heads", "encoder/relative_attention_bias/embedding", 1),
)


class Size(NamedTuple):
    """The value of a config field, with the name and shape of the tensor that implies it."""

    value: int
    name: str
    shape: tuple[int, ...]


def without_wrappers(tensors: Tensors, hf: Json, where: object) -> Tensors:
    """Remove the prefixes that wrappers such as DataParallel add to tensor names.

    Raises:
        InputError: two tensors have the same name after that.
    """
    family = FAMILIES.named(hf.get("model_type"))
    if family is not None and _begins_with(tensors, _roots(family.names)):
        return tensors
    roots = {root for family in FAMILIES.values() for root in _roots(family.names)}
    for _ in range(len(_WRAPPERS)):
        if _begins_with(tensors, roots):
            break
        found: Tensors = {}
        for name, tensor in tensors.items():
            wrapper = next((wrapper for wrapper in _WRAPPERS if name.startswith(wrapper)), "")
            new = name.removeprefix(wrapper)
            if new in found:
                raise InputError(f"{where}: expected tensor {new!r} once, found it under two names")
            found[new] = tensor
        tensors = found
    return tensors


def _begins_with(tensors: Tensors, roots: set[str]) -> bool:
    return any(name.split(".")[0] in roots for name in tensors)


def _roots(names: Names) -> set[str]:
    """Return the first parts of the tensor names of a model, and of a bare encoder."""
    bare = {entry.theirs.removeprefix(names.prefix).split(".")[0] for entry in names.encoder}
    return (bare | {names.prefix.split(".")[0]}) - {"model"}  # which wrappers add too


def settle_family(hf: Json, tensors: Iterable[str], files: set[str], where: storage.Path) -> str:
    """Return the family of a model: from config.json, else from its tensor names and tokenizer files.

    Raises:
        InputError: config.json contradicts itself, or the family cannot be determined.
    """
    names, stated = list(tensors), hf.get("model_type")
    narrow = hf.get("embedding_size", hf.get("hidden_size")) != hf.get("hidden_size")
    if stated is None and narrow and not any(_has(kind.sign, names) for kind in FAMILIES.values()):
        return next(kind.name for kind in FAMILIES.values() if kind.narrow_embeddings)
    described = of_model_type(hf)
    if described is None or unknown_layer_tensor(FAMILIES[described].names, names):
        for family, kind in FAMILIES.items():  # tensors tell a family from that whose model_type it has
            if kind.model_type and stated in (None, kind.model_type) and _has(kind.sign, names):
                return family
    if stated is not None or _names_a_family(hf, where):
        return family_of(hf, where)
    if shown := family_shown(names):
        return of_vocabulary(shown, files)
    if any(re.match(r"encoder\.layer\.\d+\.attention\.self\.", name) for name in names):
        for family, kind in reversed(list(FAMILIES.items())):
            if kind.vocabulary_file in files:
                return family
    raise InputError(
        f"{where}: expected a model_type, found none, and neither architectures nor the names of the tensors say "
        f"which of {', '.join(FAMILIES)} the model is"
    )


def family_shown(names: Iterable[str]) -> str | None:
    """Return the family of which tensor names are a sign; None if they are those of several families."""
    names = list(names)
    signs = [(kind.sign, family) for family, kind in FAMILIES.items()]
    # BERT's own names come last: some files of other families have them too.
    signs += sorted(
        ((kind.common_sign, family) for family, kind in FAMILIES.items()), key=lambda sign: sign[1] == "bert"
    )
    return next((family for sign, family in signs if _has(sign, names)), None)


def _has(sign: str, names: Iterable[str]) -> bool:
    return bool(sign) and any(re.search(sign, name) for name in names)


def of_vocabulary(family: str, files: Iterable[str]) -> str:
    """Return the family with the same tensor names whose vocabulary is among the files, or the family itself."""
    files, entries = set(files), FAMILIES[family].names.encoder
    alike = (name for name, kind in reversed(list(FAMILIES.items())) if kind.names.encoder == entries)
    return next((name for name in alike if FAMILIES[name].vocabulary_file in files), family)


def unknown_layer_tensor(names: Names, tensors: Iterable[str]) -> str | None:
    """Return a tensor of a layer that a table of names does not have, such as relative positions; None = no such."""
    known = {re.sub(r"\{\w+\}", "0", entry.theirs).removeprefix(names.prefix) for entry in names.encoder}
    for name in tensors:
        plain = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)).removeprefix(names.prefix)
        of_first_layer, numbers = re.subn(r"(?<=\.)\d+(?=\.)", "0", plain)
        if numbers and of_first_layer not in known:
            return name
    return None


def _names_a_family(hf: Json, where: object) -> bool:
    try:
        return bool(architectures_of(hf, where)) and bool(family_of(hf, where))
    except InputError:
        architectures_of(hf, where)  # raises if `architectures` itself is invalid
        return False


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
            _log.warning("%s: no %s: %s, the default of transformers", where, keys[field], kind.assumed[field])
    _check_head_size(hf, keys["num_attention_heads"], FAMILIES[family].names, tensors, where)
    table, names = "embeddings/position_embeddings/embedding", FAMILIES[family].names
    has_speeds = tensor_name(names, "encoder/inverse_frequencies") in tensors  # beside them, a table is not used
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
    """Raise InputError when the heads of a config.json with head_dim are not as wide as the tensors."""
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
    blocks = {name: int(found[1]) for name in tensors if (found := re.search(r"\.layer\.\d+\.ffn\.(\d+)\.", name))}
    if blocks:  # and one more, which has another name
        name = max(blocks, key=lambda name: blocks[name])
        yield "num_feedforward_networks", Size(blocks[name] + 2, name, tensors[name].shape)
    last: dict[str, tuple[int, str]] = {}  # placeholder -> its largest number, and the tensor with it
    for name in tensors:
        for placeholder, number in numbers_of(names, name).items():
            last[placeholder] = max(last.get(placeholder, (-1, "")), (number, name))
    for placeholder, (number, name) in last.items():
        yield PLACEHOLDERS[placeholder][0], Size(number + 1, name, tensors[name].shape)


def tensor_name(names: Names, path: str) -> str:
    """Return the name of the tensor of a parameter (in layer 0, for parameters of layers), or ""."""
    return next((entry.theirs.format(layer=0, group=0, inner=0) for entry in names.encoder if entry.ours == path), "")


def classes_shown(names: Names, head: str, tensors: Tensors) -> Size | None:
    """Return the number of classes in the tensors of a classifier; None if the files have no such tensor."""
    for entry in names.heads.get(head, ()):
        if entry.ours == "classifier/kernel" and head != "multiple_choice" and entry.theirs in tensors:
            shape = tensors[entry.theirs].shape
            return Size(shape[0], entry.theirs, shape) if shape else None
    return None


def class_prefix(family: str) -> str:
    """Return the prefix of the names of a family's Hugging Face classes, such as `Bert`."""
    return FAMILIES[family].classes


def with_classes(hf: Json, count: int) -> Json:
    """Return a config.json for a classifier of `count` classes; class names are kept if their number is `count`."""
    labels = hf.get("id2label")
    if isinstance(labels, dict) and len(labels) == count:
        return hf
    others = {key: value for key, value in hf.items() if key not in ("id2label", "label2id")}
    return others | {"num_labels": count}
