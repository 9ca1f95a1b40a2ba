"""The values that pass along the steps of `open_checkpoint`: files, config and tensors, and a model with a head."""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.text_settings import NO_SETTINGS, TaskPrompts, TextSettings
from bert_jax.conversion.weights import Weights
from bert_jax.families import FAMILIES, Json, architectures_of
from bert_jax.families.names import Names

if TYPE_CHECKING:
    from bert_jax.conversion.gliner_files import GlinerFiles
    from bert_jax.conversion.module_files import ModuleLayout


class AdapterFiles(NamedTuple):
    """An adapter and its base model.

    Attributes:
        directory: the directory of the adapter.
        content: the content of its `adapter_config.json`.
        base: the directory of the base model.
    """

    directory: storage.Path
    content: dict[str, Any]
    base: storage.Path


class CheckpointFiles(NamedTuple):
    """The paths of a model's files.

    Attributes:
        root: the directory of the model; a file of weights.
        directory: the directory of config.json and the weights: `root`, a module's, or that of an adapter's base model.
        is_bare: whether there are weights alone, and the config is elsewhere.
        layout: the modules of a sentence-transformers directory.
        gliner: the description of a GLiNER.
        adapter: a LoRA adapter to merge into the model.
    """

    root: storage.Path
    directory: storage.Path
    is_bare: bool = False
    layout: "ModuleLayout | None" = None
    gliner: "GlinerFiles | None" = None
    adapter: AdapterFiles | None = None

    @property
    def settings(self) -> TextSettings:
        """The settings of a plain directory's modules, which choose the task whose adapter is merged."""
        is_plain = self.gliner is None and self.adapter is None
        return self.layout.settings if self.layout is not None and is_plain else NO_SETTINGS


class Checkpoint(NamedTuple):
    """The config and the open weights of a model.

    Attributes:
        hf: content of config.json. It gets the family as model_type, and then all sizes.
        where: path of config.json, or of the file that has its content, for messages.
        weights: the tensors, by their names in the files at first, and then by those of the family.
        tokenizer: directory or vocabulary file of the tokenizer; it may have none.
        beside: names of the files beside the weights.
        task_prompts: the task whose adapter is merged into the tensors, with its prompts; None for other models.
    """

    hf: Json
    where: storage.Path
    weights: Weights
    tokenizer: storage.Path
    beside: frozenset[str] = frozenset()
    task_prompts: TaskPrompts | None = None

    @property
    def names(self) -> Names:
        """The tensor names of the family."""
        return FAMILIES[self.hf["model_type"]].names

    @property
    def architectures(self) -> tuple[str, ...]:
        """The classes of transformers that config.json names. Raises InputError when they are no list of names."""
        return architectures_of(self.hf, self.where)

    @property
    def tensors(self) -> Tensors:
        """The tensors of the weights."""
        return self.weights.tensors

    @property
    def may_have_task_adapters(self) -> bool:
        """Whether the family has adapters for several tasks, or tensors are named as theirs."""
        has_adapters = FAMILIES[self.hf["model_type"]].has_task_adapters
        return has_adapters or any(".parametrizations." in name for name in self.tensors)


class Model(NamedTuple):
    """A model with a head, whose settings and layers in further files are added one after the other.

    Attributes:
        files: where its files are.
        checkpoint: its config.json and tensors.
        head: one of `modeling.HEADS`, or that of a decoder.
        saved_head: the head with which it was saved; None = one that is not known here.
        config: its architecture.
        settings: its settings of texts and vectors.
    """

    files: CheckpointFiles
    checkpoint: Checkpoint
    head: str
    saved_head: str | None
    config: BertConfig
    settings: TextSettings = NO_SETTINGS

    @property
    def root(self) -> storage.Path:
        """The directory of further files."""
        return self.checkpoint.where.parent if self.files.is_bare else self.files.root

    def with_settings(self, **changes: Any) -> "Model":
        """Return the model with some settings changed."""
        return self._replace(settings=dataclasses.replace(self.settings, **changes))
