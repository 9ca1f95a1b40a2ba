"""Open a single file of weights, such as the output of `torch.save(model.state_dict(), "model.pt")`.

Names of wrappers are removed from tensor names, sizes are read from the tensors' shapes, and a linear layer beside the
encoder becomes a classifier. The result is that of a model directory: a `config.json`, and tensors by family names.
"""

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion import family_signs, infer_config, infer_family
from bert_jax.conversion.checkpoint import Checkpoint
from bert_jax.conversion.choose_head import classes_shown, with_classes
from bert_jax.conversion.foreign_kinds import refuse_foreign_directory, refuse_foreign_file
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.model_kinds import ConfigLike, locate_tokenizer
from bert_jax.conversion.tensor_names import tensor_name, unknown_layer_tensor
from bert_jax.conversion.weights import Weights, open_weight_file, open_weights
from bert_jax.errors import InputError, logger
from bert_jax.families import FAMILIES, Json, architectures_of
from bert_jax.families.names import Names
from bert_jax.head_names import CLASSIFIERS
from bert_jax.tokenization import has_tokenizer

_log = logger(__name__)
# Parts that wrappers insert into tensor names: DataParallel, torch.compile, Lightning, FSDP, activation checkpointing.
_OF_WRAPPERS = ("module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# Families whose outputs depend only on the tensors and the fields `_ASKED`; others need a config.json.
_PLAIN = ("bert", "roberta", "xlm-roberta", "camembert", "data2vec-text", "distilbert", "electra", "megatron-bert",
          "mpnet", "albert")  # fmt: skip
_ASKED = ("num_attention_heads", "hidden_act", "layer_norm_eps")  # fields that no tensor determines
_COLUMNS_A_HEAD = 64  # columns per head of most models, for an example in a message
_USUAL = (".bert.", ".model.")  # prefix endings that do not indicate a family
# Names of a linear layer that a model's own code puts on the encoder as a classifier.
_LINEAR = ("classifier", "classification_head", "cls_head", "fc", "head", "linear", "out", "output", "score", "logits")
_OF_LOSSES = re.compile(r"(^|\.)(loss|criterion|metric|\w+_(loss|metrics?))\w*\.")  # losses and metrics, not the model
# Heads that can be recognised by their tensors.
_TOLD_HEADS = ("pretraining", "masked_lm", "next_sentence", "replaced_token_detection", "sequence_classification",
               "question_answering")  # fmt: skip
_READ_POOLED = ("pretraining", "next_sentence", "sequence_classification")
_POOLER = "pooler/dense/kernel"


def open_bare(
    path: storage.Path,
    config: ConfigLike | None,
    tokenizer: storage.PathLike | None,
    family: str,
    head: str | None,
    stack: contextlib.ExitStack,
) -> Checkpoint:
    """Open a file of weights, or a directory of weights whose config is given separately.

    The config of the result names the family and the head.

    Args:
        path, config, tokenizer, family, head: as for `bert_jax.conversion.huggingface.load_pretrained`.
        stack: exit stack that closes the file.

    Raises:
        InputError: the file has no encoder, or the tensors and `config` do not determine its outputs.
    """
    refuse_foreign_directory(path) if path.is_dir() else refuse_foreign_file(path)
    opening = open_weights(path) if path.is_dir() else open_weight_file(path)
    weights = stack.enter_context(opening)
    hf, where, is_whole = _read_config(config, path)
    directory = _tokenizer_directory(tokenizer, where, path)
    prefix, own, others = _split(_without_wrappers(weights.tensors, path), path)
    hf["model_type"] = family = family or _family(hf, prefix, own, others, directory, where)
    names = FAMILIES[family].names
    if not is_whole:
        hf = _with_family_keys(hf, family)
        _ask(hf, family, own, where, directory)
    tensors = {f"{names.prefix}{name}": tensor for name, tensor in own.items()}
    if not is_whole:
        _check_layers(names, tensors, family, path)
    hf = infer_config.complete(hf, family, tensors, where)
    hf, others = _with_head(hf, names, prefix, tensors, others, head, path)
    if twice := sorted(tensors.keys() & others.keys()):
        raise InputError(f"{path}: expected tensor {twice[0]!r} once, found it under two names")
    return Checkpoint(hf, where, Weights(path, weights.format, tensors | others, weights.ignored), directory)


def _read_config(config: ConfigLike | None, path: storage.Path) -> tuple[Json, storage.Path, bool]:
    """Return the content of the config, the file that it came from, and whether it is a whole `config.json`."""
    if isinstance(config, BertConfig):
        hf = config.to_hf()
        left_out = {"architectures"} if config.id2label else {"architectures", "id2label", "label2id"}
        return {key: value for key, value in hf.items() if key not in left_out}, path, True
    if isinstance(config, Mapping):
        return dict(config), path, "model_type" in config
    if config is not None:
        where = storage.Path(config)
        where = where / "config.json" if where.is_dir() else where
        return storage.read_json(where, unique_keys=True), where, True
    beside = (path if path.is_dir() else path.parent) / "config.json"
    if beside.is_file() and "model_type" in (hf := storage.read_json(beside, unique_keys=True)):
        return hf, beside, True
    return {}, path, False


def _tokenizer_directory(tokenizer: storage.PathLike | None, where: storage.Path, path: storage.Path) -> storage.Path:
    """Return the directory or file of the tokenizer: as given, or else beside the config or the weights."""
    if tokenizer is not None:
        return locate_tokenizer(tokenizer)
    folder = path if path.is_dir() else path.parent
    return where.parent if has_tokenizer(where.parent) else folder


def _without_wrappers(tensors: Tensors, path: storage.Path) -> Tensors:
    """Remove the parts that wrappers insert into tensor names.

    Raises:
        InputError: two tensors then have the same name, or the file is an adapter that is not merged.
    """
    found: Tensors = {}
    for name, tensor in tensors.items():
        if ".lora_A." in name or name.startswith("base_model.model."):
            raise InputError(
                f"{path}: expected the weights of a model, found those of an adapter of peft ({name!r}); save "
                "model.merge_and_unload().state_dict(), or open the folder of model.save_pretrained(FOLDER)"
            )
        new = ".".join(part for part in name.split(".") if part not in _OF_WRAPPERS)
        if new in found:
            raise InputError(f"{path}: expected tensor {new!r} once, found it under two names")
        found[new] = tensor
    return found


def _word_embedding(names: Names) -> str:
    """Return the name of the word embedding in a bare encoder of a family."""
    return tensor_name(names, "embeddings/word_embeddings/embedding").removeprefix(names.prefix)


def _split(tensors: Tensors, path: storage.Path) -> tuple[str, Tensors, Tensors]:
    """Split tensors into those of the encoder, renamed as in a bare encoder, and others.

    Returns:
        The prefix of the encoder's names, such as `model.bert.`; the encoder's tensors; the other tensors, without the
        part of the prefix that they share with the encoder (`model.`).

    Raises:
        InputError: there is no encoder, or there are several, or its parameters are in other files.
    """
    for bare in sorted({_word_embedding(family.names) for family in FAMILIES.values()}, key=len, reverse=True):
        if named := [name for name in tensors if f".{name}".endswith(f".{bare}")]:
            break
    else:
        some = ", ".join(repr(name) for name in list(tensors)[:3]) or "nothing"
        raise InputError(f"{path}: expected the tensors of a BERT, with word embeddings, found {some}")
    prefixes = [name.removesuffix(bare) for name in named]
    if len(prefixes) > 1:
        several = ", ".join(repr(prefix) for prefix in sorted(prefixes))
        raise InputError(
            f"{path}: expected one encoder, found {len(prefixes)}, whose tensors begin with {several}; save one of them"
        )
    if 0 in tensors[named[0]].shape:
        raise InputError(
            f"{path}: tensor {named[0]!r}: expected numbers, found the shape {list(tensors[named[0]].shape)}, as when "
            "DeepSpeed (ZeRO stage 3) or FSDP stores the parameters in other files; for DeepSpeed, run "
            "`python zero_to_fp32.py . OUT` in the checkpoint's folder, and open the file in OUT"
        )
    prefix = prefixes[0]
    outside = re.sub(r"[^.]*\.$", "", prefix)
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    others: Tensors = {}
    for name, tensor in tensors.items():
        if not name.startswith(prefix):
            new = name.removeprefix(outside)
            if new in others:
                raise InputError(f"{path}: expected tensor {new!r} once, found it under two names")
            others[new] = tensor
    return prefix, own, others


def _family(hf: Json, prefix: str, own: Tensors, others: Tensors, directory: storage.Path, where: storage.Path) -> str:
    """Return the family that the config names, or else infer it from the tensors.

    BERT and RoBERTa have the same tensors. RoBERTa has one token type, and BERT two.
    """
    if hf.get("model_type") is not None or hf.get("architectures"):
        return infer_family.settle_family(hf, own, set(), where)
    of_prefix: dict[str, str] = {}
    for name, kind in FAMILIES.items():  # if families share a prefix, use the one that it names
        if kind.names.prefix == f"{name}." or (kind.names.prefix and f".{kind.names.prefix}" not in of_prefix):
            of_prefix[f".{kind.names.prefix}"] = name
    ending = next((ending for ending in of_prefix if f".{prefix}".endswith(ending) and ending not in _USUAL), "")
    family = family_signs.family_shown(own) or of_prefix.get(ending) or family_signs.family_shown(others)
    types = own.get("embeddings.token_type_embeddings.weight")
    if family in (None, "bert") and types is not None and types.shape[:1] == (1,):
        family = "roberta"
    family = family_signs.of_vocabulary(family, (path.name for path in _files(directory))) if family else "bert"
    if not f".{prefix}".endswith(f".{FAMILIES[family].names.prefix}"):
        _log.warning("%s: model_type %r is inferred from the tensors; if it is wrong, set model_type", where, family)
    return family


def _files(directory: storage.Path) -> Iterable[storage.Path]:
    return directory.iterdir() if directory.is_dir() else (directory,)


def _with_family_keys(hf: Json, family: str) -> Json:
    """Rename the fields of a config to their keys in the family's `config.json`."""
    keys = FAMILIES[family].keys
    return {keys.get(key, key): value for key, value in hf.items()}


def _ask(hf: Json, family: str, own: Tensors, where: storage.Path, directory: storage.Path) -> None:
    """Raise InputError, naming what is missing, when tensors and config do not determine a model's outputs."""
    if family not in _PLAIN:
        raise InputError(
            f"{where}: expected the config.json of the model (config), as the tensors of family {family} do not "
            "determine all of it, found none"
        )
    keys = FAMILIES[family].keys
    columns = own[_word_embedding(FAMILIES[family].names)].shape[-1]
    defaults = {
        "num_attention_heads": max(1, columns // _COLUMNS_A_HEAD),
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    defaults |= {field: value for field, value in FAMILIES[family].defaults.items() if field in defaults}
    missing = [keys[field] for field in _ASKED if field in keys and hf.get(keys[field]) is None]
    if not missing:
        return
    example = ",".join(f"{keys[field]}={defaults[field]}" for field in _ASKED if field in keys)
    lacks_tokenizer = "" if has_tokenizer(directory) else " and the vocabulary (tokenizer)"
    raise InputError(
        f"{where}: expected {', '.join(missing)} (config){lacks_tokenizer}, which the tensors do not show, found none; "
        f"config is a config.json, its directory, or values such as {example}"
    )


def _check_layers(names: Names, tensors: Tensors, family: str, path: storage.Path) -> None:
    """Raise InputError when a layer has a tensor that the family does not have, such as relative positions."""
    if (name := unknown_layer_tensor(names, tensors)) is not None:
        raise InputError(
            f"{path}: expected the layers of a {family}, found a tensor {name!r}; if the family is another, "
            "give its config.json (config)"
        )


def _with_head(
    hf: Json, names: Names, prefix: str, tensors: Tensors, others: Tensors, head: str | None, path: storage.Path
) -> tuple[Json, Tensors]:
    """Infer the architecture from the tensors; return the config with it, and the tensors outside of the encoder.

    A linear layer of the model's own code gets the name of the family's classifier.
    """
    family = hf["model_type"]
    stated = next(filter(None, map(names.head_of, architectures_of(hf, path))), None)
    linear = _linear(others, hf.get(FAMILIES[family].keys["hidden_size"]))
    classifier = names.heads["token_classification"][0].theirs.removesuffix(".weight")
    renamed = others
    if linear:
        parts = {f"{linear}.{part}": f"{classifier}.{part}" for part in ("weight", "bias")}
        renamed = {parts.get(name, name): tensor for name, tensor in others.items()}
    # Some heads' tensors are a subset of another head's, so heads with more tensors are tried first.
    told = sorted(_TOLD_HEADS, key=lambda name: -len(_kernels(names, name)))
    candidates = [name for name in (head, stated) if name in CLASSIFIERS] + [stated, *told]
    present = tensors | renamed
    saved = next((name for name in candidates if name and _has_head(names, family, name, present)), None)
    if saved is None and linear == classifier and f".{prefix}".endswith(f".{names.prefix}"):
        saved = "token_classification"  # the class of transformers that has a classifier and no pooler
    if saved is None or (saved not in CLASSIFIERS and linear):
        renamed = others
    elif saved in CLASSIFIERS and saved != stated and (output := renamed.get(f"{classifier}.weight")):
        vectors = {"token_classification": "each token", "multiple_choice": "the pooled first token of each choice"}
        reads = vectors.get(saved, "the pooled first token" if linear else "each text")
        _log.warning(
            "%s: %s.weight %s is read as the classifier of %s, which reads %s; if it reads something else, set "
            "its head; head='encoder' opens only the encoder",
            path, linear or classifier, list(output.shape), saved.replace("_", " "), reads,
        )  # fmt: skip
    saved = saved or "encoder"
    if saved != stated and (shown := classes_shown(names, saved, renamed)):
        hf = with_classes(hf, shown.value)
    return hf | {"architectures": [names.architecture_of(saved)]}, renamed


def _kernels(names: Names, head: str) -> list[str]:
    entries = names.heads.get(head, ()) if names.architecture_of(head) else ()
    return [entry.theirs for entry in entries if entry.ours.endswith("/kernel")]


def _has_head(names: Names, family: str, head: str, tensors: Tensors) -> bool:
    """Return whether the tensors have all kernels of a head, and the pooler's if the head reads pooled vectors."""
    kernels = _kernels(names, head)
    summary = FAMILIES[family].fixed.get("classifier_summary", "pooler")
    if kernels and head in _READ_POOLED and (head != "sequence_classification" or summary == "pooler"):
        entries = (*names.encoder, *names.heads[head])
        kernels = kernels + [entry.theirs for entry in entries if entry.ours == _POOLER]
    return bool(kernels) and all(name in tensors for name in kernels)


def _linear(others: Tensors, width: Any) -> str:
    """Return the name of the only linear layer on top of the encoder, or ""."""
    parts = [name for name in others if not _OF_LOSSES.search(name)]
    layer = parts[0].rpartition(".")[0] if parts else ""
    last = next((part for part in reversed(layer.split(".")) if not part.isdigit()), "")
    if last not in _LINEAR or sorted(parts) != [f"{layer}.bias", f"{layer}.weight"]:
        return ""
    kernel, bias = others[f"{layer}.weight"].shape, others[f"{layer}.bias"].shape
    return layer if len(kernel) == 2 and kernel[1] == width and bias == kernel[:1] else ""
