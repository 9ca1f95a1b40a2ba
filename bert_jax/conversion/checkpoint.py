"""`Checkpoint`: the config and the tensors of a model, which each step of `open_checkpoint` brings nearer to ours."""

import dataclasses
from typing import Any

from bert_jax import storage
from bert_jax.conversion.formats.lazy_tensors import Tensors
from bert_jax.conversion.text_settings import TaskPrompts
from bert_jax.conversion.weights import Weights
from bert_jax.families import FAMILIES, Json
from bert_jax.families.names import Names


@dataclasses.dataclass(frozen=True)
class Checkpoint:
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
    def tensors(self) -> Tensors:
        """The tensors of the weights."""
        return self.weights.tensors

    def replace(self, **changes: Any) -> "Checkpoint":
        """Return the checkpoint with some attributes changed."""
        return dataclasses.replace(self, **changes)

    def with_tensors(self, tensors: Tensors) -> "Checkpoint":
        """Return the checkpoint with other tensors."""
        return self.replace(weights=dataclasses.replace(self.weights, tensors=tensors))
