"""Open a model: from its files to a `Bert` and the tensors of its parameters.

Each step is a module that takes the value of the step before (`checkpoint`): `model_kinds` finds the files,
`read_checkpoint` reads config.json and opens the weights, `infer_family` settles the family, `tensor_names` gives the
tensors the names of the family, `infer_config` completes the sizes, `choose_head` makes the config of the model,
`side_files` reads settings of texts and vectors, and `state_dict` puts the tensors into the parameter tree. A model
that is not a plain directory takes some of the steps in the module of its kind (`module_of`).
"""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.conversion import state_dict
from bert_jax.conversion.choose_head import CLASSIFIER_PREFIX, choose_head
from bert_jax.conversion.infer_config import infer_config
from bert_jax.conversion.infer_family import infer_family
from bert_jax.conversion.model_kinds import ConfigLike, locate_checkpoint, locate_tokenizer, module_of
from bert_jax.conversion.read_checkpoint import read_checkpoint
from bert_jax.conversion.side_files import read_side_files
from bert_jax.conversion.tensor_names import name_tensors
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.conversion.weights import Weights
from bert_jax.errors import InputError, did_you_mean
from bert_jax.head_names import CLASSIFIERS, DECODER_HEAD
from bert_jax.modeling import HEADS, Bert


class Opened(NamedTuple):
    """An open model directory, whose tensors can be read."""

    model: Bert
    saved_head: str | None  # None: the head is not known
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
            checkpoint = module_of("bare_files").open_bare(files.root, config, tokenizer, family, head, stack)
            family = ""  # the config names the family
        else:
            checkpoint = read_checkpoint(files, stack)
        checkpoint = infer_family(checkpoint, family)
        if (files.settings.task if task is None else task) or checkpoint.may_have_task_adapters:
            checkpoint = module_of("task_adapters").merge_adapter(checkpoint, task, files.settings, stack)
        else:
            checkpoint = name_tensors(checkpoint)
        checkpoint = infer_config(checkpoint)
        if files.adapter is not None:
            checkpoint = module_of("adapters").merge_adapter(checkpoint, files.adapter, stack)
        if tokenizer is not None:
            checkpoint = checkpoint._replace(tokenizer=locate_tokenizer(tokenizer))
        model = choose_head(files, checkpoint, head, classes)
        model = read_side_files(model, stack)
        bert = Bert(model.config, model.head)
        yield Opened(bert, model.saved_head, checkpoint.weights, model.settings, checkpoint.tokenizer)
