"""Infer the architecture from tensor names and shapes, to complete and check config.json."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bert_jax import storage
from bert_jax.conversion.names import NAME_TABLES, PLACEHOLDERS, Names, numbers_of
from bert_jax.conversion.names.table import Tensors
from bert_jax.errors import InputError, logger
from bert_jax.families import FAMILIES, Json, architectures_of, family_of

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
# Patterns of tensor names that only one family has; the first match decides.
_SIGNS = (
    (r"(^|\.)layer\.\d+\.attention\.self\.layer_norm_q\.", "jina-bert-qk"),
    (r"(^|\.)layer\.\d+\.mlp\.gated_layers\.", "jina-bert"),
    (r"(^|\.)layers\.\d+\.mlp\.experts\.", "nomic-moe"),
    (r"(^|\.)layers\.\d+\.(mixer\.Wqkv|mlp\.fc1)\.", "jina_embeddings_v3"),
    (r"^(gte|new)\.|\.attention\.qkv_proj\.|(^|\.)layers\.\d+\.self_attn\.q_proj\.bias", "gte"),
    (r"(^|\.)layers\.\d+\.(attn_norm|mlp_norm)\.", "modernbert"),
    (r"(^|\.)layers\.\d+\.input_layernorm\.", "eurobert"),
    (r"(^|\.)encoder\.layers\.\d+\.|(^|\.)layers\.\d+\.(self_attn|post_attention_layernorm)\.", "nomic_bert"),
    (r"(^|\.)transformer\.layer\.\d+\.", "distilbert"),
    (r"(^|\.)albert_layer_groups\.\d+\.", "albert"),
    (r"^mobilebert\.|(^|\.)embeddings\.embedding_transformation\.", "mobilebert"),
    (r"(^|\.)layer\.\d+\.attention\.attn\.", "mpnet"),
    (r"(^|\.)layer\.\d+\.attention\.self\.in_proj\.", "deberta"),
    (r"(^|\.)layer\.\d+\.attention\.self\.query_proj\.", "deberta-v2"),
    (r"(^|\.)layer\.\d+\.attention\.self\.query_global\.", "longformer"),
    (r"^bert\.pooler\.weight$|^qa_classifier\.", "big_bird"),
    (r"(^|\.)layer\.\d+\.attention\.self_attn_layer_norm\.", "xlm-roberta-xl"),
    (r"(^|\.)layer\.\d+\.attention\.ln\.", "megatron-bert"),
    (r"(^|\.)layer\.\d+\.intermediate\.LayerNorm\.", "roberta-prelayernorm"),
    (r"^roformer\.|(^|\.)encoder\.embed_positions\.", "roformer"),
    (r"(^|\.)transformer_encoder\.\d+\.", "neobert"),
    (r"(^|\.)emb_layer_norm_after\.", "esm"),
    (r"^data2vec_text\.", "data2vec-text"),
    (r"^ernie\.|(^|\.)task_type_embeddings\.", "ernie"),
    (r"^electra\.|^embeddings_project\.|^(generator|discriminator)_predictions\.", "electra"),
    (r"^roberta\.|^lm_head\.", "roberta"),
    (r"^bert\.|^cls\.", "bert"),
)
# Tokenizer files that distinguish families whose layers have the same tensor names.
_VOCABULARIES = (
    ("sentencepiece.bpe.model", "xlm-roberta"), ("merges.txt", "roberta"), ("vocab.txt", "bert"),
)  # fmt: skip


class Size(NamedTuple):
    """The value of a config field, with the name and shape of the tensor that implies it."""

    value: int
    name: str
    shape: tuple[int, ...]


def without_wrappers(tensors: Tensors, where: object) -> Tensors:
    """Remove the prefixes that wrappers such as DataParallel add to tensor names.

    Raises:
        InputError: two tensors have the same name after that.
    """
    roots = {root for names in NAME_TABLES.values() for root in (names.prefix.split(".")[0], *_roots(names))} - {
        "model"
    }
    for _ in range(len(_WRAPPERS)):
        if any(name.split(".")[0] in roots for name in tensors):
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


def _roots(names: Names) -> set[str]:
    """Return the first parts of the tensor names of a bare encoder."""
    return {entry.theirs.removeprefix(names.prefix).split(".")[0] for entry in names.encoder}


def settle_family(hf: Json, tensors: Iterable[str], files: set[str], where: storage.Path) -> str:
    """Return the family of a model: from config.json, else from its tensor names and tokenizer files.

    Raises:
        InputError: config.json contradicts itself, or the family cannot be determined.
    """
    narrow = hf.get("embedding_size", hf.get("hidden_size")) != hf.get("hidden_size")
    others = ("albert_layer_groups.", "embedding_transformation.")  # of other families with narrow embeddings
    if hf.get("model_type") is None and narrow and not any(part in name for part in others for name in tensors):
        return "electra"  # a BERT with narrow embeddings has ELECTRA's architecture
    names = list(tensors)
    for sign, family in _SIGNS:  # tensors tell a family from that whose model_type it has
        shared = FAMILIES[family].model_type
        if shared and hf.get("model_type") in (None, shared) and any(re.search(sign, name) for name in names):
            return family
    if hf.get("model_type") is not None or _names_a_family(hf, where):
        return family_of(hf, where)
    if shown := family_shown(names):
        return "xlm-roberta" if shown == "roberta" and "sentencepiece.bpe.model" in files else shown
    if any(re.match(r"encoder\.layer\.\d+\.attention\.self\.", name) for name in names):
        for file, family in _VOCABULARIES:
            if file in files:
                return family
    raise InputError(
        f"{where}: expected a model_type, found none, and neither architectures nor the names of the tensors say "
        f"which of {', '.join(FAMILIES)} the model is"
    )


def family_shown(names: Iterable[str]) -> str | None:
    """Return the family of which tensor names are a sign; None if they are those of several families."""
    names = list(names)
    return next((family for sign, family in _SIGNS if any(re.search(sign, name) for name in names)), None)


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
    for field, size in _sizes(NAME_TABLES[family], tensors):
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
    _check_head_size(hf, keys["num_attention_heads"], NAME_TABLES[family], tensors, where)
    table, names = "embeddings/position_embeddings/embedding", NAME_TABLES[family]
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
