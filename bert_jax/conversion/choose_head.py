"""Choose the head of a model, and make the `BertConfig` of a model with this head."""

from collections.abc import Collection, Mapping
from typing import Any

from bert_jax.config import BertConfig
from bert_jax.conversion.checkpoint import Checkpoint, CheckpointFiles, Model
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.infer_config import Size
from bert_jax.conversion.tensor_names import tensor_name
from bert_jax.errors import InputError, did_you_mean
from bert_jax.families import Json
from bert_jax.families.names import Names
from bert_jax.head_names import CLASSIFIERS, EMBEDDING_HEADS, GLINER_HEAD, NAMED_CLASSIFIERS

STANFORD = "HF_ColBERT"  # class of ColBERT models in the layout of their authors
STANFORD_PROJECTION = "linear.weight"  # tensor of such a model, beside those of its BERT
CLASSIFIER_PREFIX = "classifier."  # prefix of the tensors of `CLASSIFIERS`


def choose_head(
    files: CheckpointFiles, checkpoint: Checkpoint, head: str | None, classes: int | tuple[str, ...] | None
) -> Model:
    """Return a model with `head`, or else with the saved head, and its config.

    Raises:
        InputError: the saved head is needed and not known, or config.json contradicts the tensors.
    """
    saved = _head_of_kind(files, checkpoint)
    saved = saved or _saved_head(checkpoint, head)
    chosen = head or saved
    assert chosen is not None
    config = _config(checkpoint, chosen, saved)
    if classes is not None:
        config = _with_classes(config, classes, chosen, chosen == saved)
    if chosen in ("encoder", "sentence_embedding", "multi_vector", GLINER_HEAD):
        config = _with_pooler(config, checkpoint)
    return Model(files, checkpoint, chosen, saved, config)


def _head_of_kind(files: CheckpointFiles, checkpoint: Checkpoint) -> str | None:
    """Return the saved head of a sentence-transformers, ColBERT or GLiNER model; None for other models."""
    if files.layout is not None and (files.layout.head in EMBEDDING_HEADS or files.layout.classifies_embedding):
        return files.layout.head
    if files.layout is None and is_stanford(checkpoint.hf, checkpoint.tensors):
        return "multi_vector"
    return GLINER_HEAD if files.gliner else None


def _config(checkpoint: Checkpoint, head: str, saved_head: str | None) -> BertConfig:
    """Return the config of a model with a head, after checking its number of classes against the tensors."""
    hf, where = checkpoint.hf, checkpoint.where
    is_taken = head == saved_head or saved_head not in CLASSIFIERS
    shown = classes_shown(checkpoint.names, head, checkpoint.tensors) if is_taken else None
    if shown and not any(hf.get(key) for key in ("id2label", "label2id", "num_labels")):
        hf = hf | {"num_labels": shown.value}
    config = BertConfig.from_hf(hf, where=str(where))
    if shown and config.num_labels != shown.value:
        raise InputError(
            f"{where}: expected {shown.value} classes (id2label or num_labels), as in tensor {shown.name!r} of shape "
            f"{list(shown.shape)}, found {config.num_labels}"
        )
    return config


def _saved_head(checkpoint: Checkpoint, asked: str | None) -> str | None:
    """Return the saved head; None when it is not known and the caller asks for a head.

    Raises:
        InputError: the saved head is not known, and the caller asks for none.
    """
    classes, names, tensors, where = checkpoint.architectures, checkpoint.names, checkpoint.tensors, checkpoint.where
    if named := next(filter(None, map(names.head_of, classes)), None):
        return named
    if classes and asked is None:
        known = [*names.architectures.values(), *names.other_architectures]
        raise InputError(
            f"{where}: architecture {classes[0]!r} is not known{did_you_mean(classes[0], known)}; to open it with a "
            "head of your choice, name the head (--head)"
        )
    if classes:
        return None
    for head in ("pretraining", "masked_lm", "next_sentence", "replaced_token_detection", "question_answering"):
        own = [entry.theirs for entry in names.heads.get(head, ()) if entry.ours.endswith("/kernel")]
        if own and all(name in tensors for name in own) and not any(name.startswith(CLASSIFIER_PREFIX) for name in own):
            return head
    has_classifier = any(name.startswith(CLASSIFIER_PREFIX) for name in tensors)
    if has_classifier and asked is None:
        raise InputError(f"{where}: expected architectures, which name the kind of classifier, found none")
    return asked if has_classifier else "encoder"


def _with_classes(config: BertConfig, classes: int | tuple[str, ...], head: str, trained: bool) -> BertConfig:
    """Return the config with another number of classes, or with other class names."""
    count = classes if isinstance(classes, int) else len(classes)
    if head not in NAMED_CLASSIFIERS:
        raise InputError(f"num_labels: expected head='sequence_classification' or 'token_classification', found {head}")
    if trained and count != config.num_labels:
        raise InputError(
            f"num_labels: expected the {config.num_labels} classes of the trained {head} head, found {count}"
        )
    if isinstance(classes, int):
        return config if trained else config.replace(num_labels=count, id2label=None)
    return config.replace(num_labels=count, id2label=classes)


def _with_pooler(config: BertConfig, checkpoint: Checkpoint) -> BertConfig:
    """Set `pooler`: whether the tensors have the pooler's dense layer, or the family's pooler has none."""
    kernel = tensor_name(checkpoint.names, "pooler/dense/kernel")  # a quantized kernel has a longer name
    has_dense = kernel != "" and any(name.startswith(kernel) for name in checkpoint.tensors)
    return config.replace(pooler=has_dense or not config.setting("pooler_dense", True))


def is_stanford(hf: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """Return whether a config.json and names of tensors are those of a ColBERT model in the layout of its authors."""
    named = hf.get("architectures")
    return isinstance(named, list) and STANFORD in named and STANFORD_PROJECTION in tensors


def classes_shown(names: Names, head: str, tensors: Tensors) -> Size | None:
    """Return the number of classes in the tensors of a classifier; None if the files have no such tensor."""
    for entry in names.heads.get(head, ()):
        if entry.ours == "classifier/kernel" and head != "multiple_choice" and entry.theirs in tensors:
            shape = tensors[entry.theirs].shape
            return Size(shape[0], entry.theirs, shape) if shape else None
    return None


def with_classes(hf: Json, count: int) -> Json:
    """Return a config.json for a classifier of `count` classes; class names are kept if their number is `count`."""
    labels = hf.get("id2label")
    if isinstance(labels, dict) and len(labels) == count:
        return hf
    others = {key: value for key, value in hf.items() if key not in ("id2label", "label2id")}
    return others | {"num_labels": count}
