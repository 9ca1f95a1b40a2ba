"""The values that the steps of `open_checkpoint` pass on: files, config and tensors, and a model with a head."""

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
        root: the directory of the model, or its file of weights.
        directory: the directory of config.json and the weights: `root`, a module's, or that of an adapter's base model.
        is_bare: whether `root` is a file of weights, or a directory of weights whose config is given separately.
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
        """The modules' settings, which choose the task adapter to merge; defaults for a GLiNER or LoRA adapter."""
        is_plain = self.gliner is None and self.adapter is None
        return self.layout.settings if self.layout is not None and is_plain else NO_SETTINGS


class Checkpoint(NamedTuple):
    """The config and the open weights of a model.

    Attributes:
        hf: content of config.json; later steps add the family as model_type, and all sizes.
        where: path of config.json, or of the file that has its content, for messages.
        weights: the tensors, at first by their names in the files, later by the family's names.
        tokenizer: directory or vocabulary file of the tokenizer, which may be missing.
        beside: names of the files beside the weights.
        task_prompts: the task whose adapter is merged into the tensors, with its prompts; None = no task adapters.
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
        """The classes of transformers that config.json names. Raises InputError when it has no list of names."""
        return architectures_of(self.hf, self.where)

    @property
    def tensors(self) -> Tensors:
        """The tensors of the weights."""
        return self.weights.tensors

    @property
    def may_have_task_adapters(self) -> bool:
        """Whether the family has adapters for several tasks, or tensors have the names of such adapters."""
        has_adapters = FAMILIES[self.hf["model_type"]].has_task_adapters
        return has_adapters or any(".parametrizations." in name for name in self.tensors)


class Model(NamedTuple):
    """A model with a head; later steps add the settings and layers of further files.

    Attributes:
        files: where its files are.
        checkpoint: its config.json and tensors.
        head: one of `modeling.HEADS`, or that of a decoder.
        saved_head: the head with which it was saved; None = an unknown head.
        config: its architecture.
        settings: its settings of text input and vector output.
    """

    files: CheckpointFiles
    checkpoint: Checkpoint
    head: str
    saved_head: str | None
    config: BertConfig
    settings: TextSettings = NO_SETTINGS

    @property
    def root(self) -> storage.Path:
        """The directory that may have further files of the model, such as modules."""
        return self.checkpoint.where.parent if self.files.is_bare else self.files.root

    def with_settings(self, **changes: Any) -> "Model":
        """Return the model with some settings changed."""
        return self._replace(settings=dataclasses.replace(self.settings, **changes))
