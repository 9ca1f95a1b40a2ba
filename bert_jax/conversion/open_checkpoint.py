"""Open a model: one road from its files to a `Bert` and the tensors of its parameters.

Each step is a file, whose values the next step takes: `locate_checkpoint` finds the files, `read_checkpoint` reads
config.json and opens the weights, `infer_family` settles the family, `tensor_names` gives the tensors the names of the
family, `infer_config` completes the sizes, `choose_head` makes the config of the model, `side_files` reads the settings
of texts and vectors, and `state_dict` puts the tensors into the parameter tree. Other kinds of models than a plain
directory take another way at a step; its file is imported for them alone.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion import state_dict
from bert_jax.conversion.checkpoint import Checkpoint
from bert_jax.conversion.choose_head import CLASSIFIER_PREFIX, choose_head
from bert_jax.conversion.infer_config import infer_config
from bert_jax.conversion.infer_family import infer_family
from bert_jax.conversion.locate_checkpoint import CheckpointFiles, locate_checkpoint, locate_tokenizer
from bert_jax.conversion.model_kinds import ConfigLike
from bert_jax.conversion.read_checkpoint import read_checkpoint
from bert_jax.conversion.side_files import read_side_files
from bert_jax.conversion.tensor_names import canonical_names, tensor_name
from bert_jax.conversion.text_settings import NO_SETTINGS, TextSettings
from bert_jax.conversion.weights import Weights
from bert_jax.errors import InputError, did_you_mean
from bert_jax.families import FAMILIES
from bert_jax.head_names import CLASSIFIERS, DECODER_HEAD, GLINER_HEAD, NAMED_CLASSIFIERS
from bert_jax.modeling import HEADS, Bert


class Opened(NamedTuple):
    """An open model directory, whose tensors can be read."""

    model: Bert
    saved_head: str | None  # None: a head that is not known here
    weights: Weights
    settings: TextSettings
    directory: storage.Path

    def match(self) -> state_dict.Matched:
        tensors, fresh_head = self.weights.tensors, self.model.head != self.saved_head
        if fresh_head and self.saved_head in CLASSIFIERS:
            tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(CLASSIFIER_PREFIX)}
        return state_dict.match(self.model, tensors, fresh_head, self.weights.where)

    def report(self, matched: state_dict.Matched) -> dict[str, Any]:
        """Return the fields of `bert_jax.conversion.huggingface.Loaded` except params."""
        tensors = self.weights.tensors
        return {
            "config": self.model.config,
            "head": self.model.head,
            "missing": list(matched.missing),
            "unused": sorted(tensors.keys() - matched.used),
            "directory": self.directory,
            "settings": self.settings,
            "format": self.weights.format,
            "read": {name: (tensors[name].dtype.name, tensors[name].shape) for name in tensors if name in matched.used},
        }


@contextlib.contextmanager
def open_model(
    path: storage.PathLike,
    head: str | None,
    family: str,
    base: storage.PathLike | None = None,
    classes: int | tuple[str, ...] | None = None,
    task: str | None = None,
    config: ConfigLike | None = None,
    tokenizer: storage.PathLike | None = None,
) -> Iterator[Opened]:
    """Yield an open model directory, whose tensors can be read inside the block.

    Args:
        path, head, family, base, classes, task, config, tokenizer: as for
            `bert_jax.conversion.huggingface.load_pretrained`.

    Raises:
        InputError: as for `load_pretrained`.
    """
    if head is not None and head not in (*HEADS, DECODER_HEAD):
        raise InputError(f"head {head!r} is not known{did_you_mean(head, HEADS)}")
    with contextlib.ExitStack() as stack:
        files = locate_checkpoint(path, base, config)
        if files.is_bare:
            from bert_jax.conversion.bare_files import open_bare

            checkpoint, family = open_bare(files.root, config, tokenizer, family, head, stack), ""
        else:
            checkpoint = read_checkpoint(files, stack)
        checkpoint = infer_family(checkpoint, family)
        checkpoint = _name_tensors(files, checkpoint, task, stack)
        checkpoint = infer_config(checkpoint)
        if files.adapter is not None:
            from bert_jax.conversion.adapters import merge_adapter

            checkpoint = merge_adapter(checkpoint, files.adapter, stack)
        directory = checkpoint.tokenizer if tokenizer is None else locate_tokenizer(tokenizer)
        chosen = choose_head(files, checkpoint, head)
        bert, settings = read_side_files(files, checkpoint, chosen, stack)
        if classes is not None:
            bert = _with_classes(bert, classes, chosen.head, chosen.head == chosen.saved)
        if chosen.head in ("encoder", "sentence_embedding", "multi_vector", GLINER_HEAD):
            bert = _with_pooler(bert, checkpoint)
        yield Opened(Bert(bert, chosen.head), chosen.saved, checkpoint.weights, settings, directory)


def _name_tensors(
    files: CheckpointFiles, checkpoint: Checkpoint, task: str | None, stack: contextlib.ExitStack
) -> Checkpoint:
    """Give the tensors the names of the family; of a model with adapters for several tasks, merge that of one."""
    is_plain = not (files.is_bare or files.gliner or files.adapter)
    settings = files.layout.settings if is_plain and files.layout else NO_SETTINGS
    has_adapters = FAMILIES[checkpoint.hf["model_type"]].has_task_adapters
    is_parametrized = any(".parametrizations." in name for name in checkpoint.tensors)
    if has_adapters or is_parametrized or (settings.task if task is None else task):
        from bert_jax.conversion.task_adapters import merge_task_adapter

        return merge_task_adapter(checkpoint, task, settings, stack)
    return checkpoint.with_tensors(canonical_names(checkpoint.tensors, checkpoint.names, checkpoint.weights.where))


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
    """Return the config with a pooler if the tensors have its dense layer, or the pooler has none."""
    kernel = tensor_name(checkpoint.names, "pooler/dense/kernel")  # with an ending, if it is quantized
    has_dense = kernel != "" and any(name.startswith(kernel) for name in checkpoint.tensors)
    return config.replace(pooler=has_dense or not config.pooler_dense)
