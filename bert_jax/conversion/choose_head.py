"""Choose the head of a model, and make the `BertConfig` of a model with this head."""

from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.checkpoint import Checkpoint
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.infer_config import classes_shown
from bert_jax.conversion.locate_checkpoint import CheckpointFiles
from bert_jax.conversion.model_kinds import is_stanford
from bert_jax.errors import InputError, did_you_mean
from bert_jax.families import architectures_of
from bert_jax.families.names import Names
from bert_jax.head_names import CLASSIFIERS, EMBEDDING_HEADS, GLINER_HEAD

CLASSIFIER_PREFIX = "classifier."  # of tensors of `CLASSIFIERS`


class ChosenHead(NamedTuple):
    """The head of a model.

    Attributes:
        head: one of `modeling.HEADS`, or that of a decoder.
        saved: the head with which the model was saved; None = one that is not known here.
        config: the config of a model with `head`, as config.json and the tensors say.
    """

    head: str
    saved: str | None
    config: BertConfig


def choose_head(files: CheckpointFiles, checkpoint: Checkpoint, head: str | None) -> ChosenHead:
    """Return the head to open a model with: `head`, or else the saved one.

    Raises:
        InputError: the saved head is needed and not known, or config.json contradicts the tensors.
    """
    saved = _head_of_kind(files, checkpoint)
    saved = saved or _saved_head(checkpoint.hf, checkpoint.tensors, checkpoint.names, checkpoint.where, head)
    chosen = head or saved
    assert chosen is not None
    config = _config(checkpoint.hf, chosen, saved, checkpoint.names, checkpoint.tensors, checkpoint.where)
    return ChosenHead(chosen, saved, config)


def _head_of_kind(files: CheckpointFiles, checkpoint: Checkpoint) -> str | None:
    """Return the saved head of a kind of model that has files of its own; None for others."""
    if files.layout is not None and files.layout.head in EMBEDDING_HEADS:
        return files.layout.head
    if files.layout is None and is_stanford(checkpoint.hf, checkpoint.tensors):
        return "multi_vector"
    return GLINER_HEAD if files.gliner else None


def _config(
    hf: dict[str, Any], head: str, saved_head: str | None, names: Names, tensors: Tensors, where: storage.Path
) -> BertConfig:
    """Return the config of a model with a head, after checking its number of classes against the tensors."""
    is_taken = head == saved_head or saved_head not in CLASSIFIERS
    shown = classes_shown(names, head, tensors) if is_taken else None
    if shown and not any(hf.get(key) for key in ("id2label", "label2id", "num_labels")):
        hf = hf | {"num_labels": shown.value}
    config = BertConfig.from_hf(hf, where=str(where))
    if shown and config.num_labels != shown.value:
        raise InputError(
            f"{where}: expected {shown.value} classes (id2label or num_labels), as in tensor {shown.name!r} of shape "
            f"{list(shown.shape)}, found {config.num_labels}"
        )
    return config


def _saved_head(
    hf: dict[str, Any], tensors: Tensors, names: Names, where: storage.Path, asked: str | None
) -> str | None:
    """Return the saved head; None when it is not known and the caller asks for a head.

    Raises:
        InputError: the saved head is not known, and the caller asks for none.
    """
    classes = architectures_of(hf, where)
    for name in classes:
        if head := names.head_of(name):
            return head
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
