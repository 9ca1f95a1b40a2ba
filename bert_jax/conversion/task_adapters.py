"""Merge the adapter of one task into a model that has adapters for several tasks.

They are in the model's own tensors (Sturua et al. 2024, arXiv:2409.10173, section 4.3), or in folders written by peft.
"""

import contextlib
import dataclasses
import re
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.conversion import adapters
from bert_jax.conversion.checkpoint import Checkpoint, Model
from bert_jax.conversion.formats.lazy_tensors import LazyTensor, Tensors
from bert_jax.conversion.model_kinds import is_adapter
from bert_jax.conversion.tensor_names import canonical_names
from bert_jax.conversion.text_settings import TaskPrompts, TextSettings
from bert_jax.errors import InputError, did_you_mean, logger, printable
from bert_jax.families import FAMILIES
from bert_jax.families.names import Names

_log = logger(__name__)
_ORIGINAL = ".parametrizations.weight.original"
_UPDATES = (".parametrizations.weight.0.lora_A", ".parametrizations.weight.0.lora_B")


@dataclasses.dataclass(frozen=True)
class TaskAdapters:
    """The task adapters of a model directory.

    Attributes:
        inside: the tasks of adapters in the model's own tensors, in their order there.
        folders: task -> folder of its adapter.
        instructions: task -> text to put before an input.
        truncate_dim: number of leading dimensions of a vector to keep, by `config.json`; None = all.
        alpha: `lora_alpha` of the adapters inside: their scale times their rank.
        where: path of config.json.
    """

    inside: tuple[str, ...]
    folders: dict[str, storage.Path]
    instructions: dict[str, str]
    truncate_dim: int | None
    alpha: float
    where: storage.Path

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the names of the tasks."""
        return self.inside or tuple(self.folders)

    def chosen(self, task: str | None, settings: TextSettings) -> str:
        """Return the task whose adapter to merge; "" = none.

        Args:
            task: the choice of the user; None = that of sentence-transformers' files, or the task that the default
                prompt is named after; "" = no adapter.
            settings: the settings of sentence-transformers' files.

        Raises:
            InputError: there is no such task.
        """
        named = settings.task if task is None else task
        if task is None and not named and settings.default_prompt in self.tasks:
            named = settings.default_prompt
        if named and named not in self.tasks:
            found = did_you_mean(named, self.tasks) if self.tasks else "; the model has no task adapters"
            raise InputError(f"{self.where.parent}: task {printable(repr(named), 60)} is not known{found}")
        if task is None and not named and self.tasks:
            _log.warning(
                "%s: no task is chosen, so no adapter is used; tasks: %s", self.where.parent, ", ".join(self.tasks)
            )
        return named

    def prompts(self, task: str) -> TaskPrompts:
        """Return the prompts of all tasks, and `task`, whose adapter is merged; "" = none."""
        return TaskPrompts(task, tuple(self.instructions.items()), self.truncate_dim)

    def merged(self, tensors: Tensors, task: str) -> Tensors:
        """Merge the adapter of a task that is inside the tensors, if any, and give all tensors plain names.

        Raises:
            InputError: the tensors of an adapter do not fit the model's.
        """
        found: Tensors = {}
        for name, tensor in tensors.items():
            if name.endswith(_ORIGINAL):
                layer = name.removesuffix(_ORIGINAL)
                a, b = (tensors.get(f"{layer}{ending}") for ending in _UPDATES)
                if a is None or b is None:
                    raise InputError(f"{self.where.parent}: expected lora_A and lora_B beside {name!r}, found none")
                found[f"{layer}.weight"] = self._updated(layer, tensor, a, b, task) if task in self.inside else tensor
            elif not name.endswith(_UPDATES):
                found[name] = tensor
        return found

    def _updated(self, layer: str, weight: LazyTensor, a: LazyTensor, b: LazyTensor, task: str) -> LazyTensor:
        """Add the update of a task to a weight: B @ A to a dense layer's, A @ B to an embedding."""
        first, second = (a, b) if layer.endswith("_embeddings") else (b, a)
        index, shapes = self.inside.index(task), (first.shape, second.shape)
        fits = all(len(shape) == 3 and shape[0] == len(self.inside) for shape in shapes)
        if not fits or (shapes[0][1], shapes[1][2]) != weight.shape or shapes[0][2] != shapes[1][1]:
            raise InputError(
                f"{self.where.parent}: {layer}: expected adapters of {len(self.inside)} tasks for a weight of shape "
                f"{list(weight.shape)}, found shapes {list(shapes[0])} and {list(shapes[1])}"
            )
        scale = self.alpha / shapes[1][1]

        def read() -> np.ndarray:
            left, right = (part.read()[index].astype(np.float32) for part in (first, second))
            return weight.read().astype(np.float32) + scale * (left @ right)

        return LazyTensor(weight.shape, np.dtype(np.float32), read)

    def merged_folder(self, tensors: Tensors, task: str, names: Names, stack: contextlib.ExitStack) -> Tensors:
        """Merge the adapter in the folder of a task, if it has one, into tensors by the family's names."""
        if task not in self.folders:
            return tensors
        folder = self.folders[task]
        adapter = stack.enter_context(adapters.open_adapter(folder, adapters.read_config(folder)))
        replaced, updates = (canonical_names(part, names, self.where) for part in (adapter.tensors, adapter.updates))
        return adapters.merged(tensors, replaced, updates, adapter.where)


def add_settings(model: Model, stack: contextlib.ExitStack) -> Model:
    """Add the prompts of all tasks; the one of the merged adapter's task becomes the default."""
    of_tasks, settings = model.checkpoint.task_prompts, model.settings
    assert of_tasks is not None
    prompts = settings.prompts or of_tasks.prompts
    default = of_tasks.task if of_tasks.task in dict(prompts) else settings.default_prompt
    kept = settings.truncate_dim or of_tasks.truncate_dim
    return model.with_settings(prompts=prompts, default_prompt=default, task=of_tasks.task, truncate_dim=kept)


def merge_adapter(
    stored: Checkpoint, task: str | None, settings: TextSettings, stack: contextlib.ExitStack
) -> Checkpoint:
    """Merge the adapter of a task, and give the tensors the names of the family.

    Args:
        stored: the model, whose tensors have their names in the files.
        task, settings: as for `TaskAdapters.chosen`.
        stack: exit stack that closes the file of the adapter.

    Raises:
        InputError: there is no such task, or its adapter does not fit.
    """
    has_adapters, names = FAMILIES[stored.hf["model_type"]].has_task_adapters, stored.names
    own = find_adapters(stored.hf, stored.where.parent, stored.where, has_adapters)
    task = own.chosen(task, settings)
    tensors = canonical_names(own.merged(stored.tensors, task), names, stored.weights.where)
    tensors = own.merged_folder(tensors, task, names, stack)
    weights = dataclasses.replace(stored.weights, tensors=tensors)
    return stored._replace(weights=weights, task_prompts=own.prompts(task))


def find_adapters(hf: dict[str, Any], directory: storage.Path, where: storage.Path, has: bool) -> TaskAdapters:
    """Find the task adapters that a `config.json` names, or else the folders in the directory that hold one each.

    Args:
        hf: the content of config.json.
        directory: the directory of the model.
        where: path of config.json, for messages.
        has: whether models of the family may have such adapters; if not, none are found.

    Raises:
        InputError: a key of the adapters has another type.
    """
    if not has:
        return TaskAdapters((), {}, {}, None, 1.0, where)
    names, instructions = hf.get("lora_adaptations") or [], hf.get("task_instructions") or {}
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{where}: lora_adaptations: expected a list of names, found {printable(repr(names), 60)}")
    texts = list(instructions.values()) if isinstance(instructions, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        found = printable(repr(instructions), 60)
        raise InputError(f"{where}: task_instructions: expected an object of texts, found {found}")
    alpha, kept = hf.get("lora_alpha", 1), hf.get("truncate_dim")
    if type(alpha) not in (int, float) or not 0 < alpha < 2**31:
        raise InputError(f"{where}: lora_alpha: expected a positive number, found {printable(repr(alpha), 60)}")
    if kept is not None and (type(kept) is not int or kept < 1):
        raise InputError(f"{where}: truncate_dim: expected a positive integer, found {printable(repr(kept), 60)}")
    folders = {} if names else _folders(directory)
    return TaskAdapters(tuple(names), folders, dict(instructions), kept, float(alpha), where)


def _folders(directory: storage.Path) -> dict[str, storage.Path]:
    """Return task -> folder of its adapter; the folder of the task `retrieval.query` is `retrieval_query`."""
    folders = {}
    for folder in sorted(directory.iterdir(), key=str):
        if folder.is_dir() and is_adapter(folder):
            name = re.sub(r"^retrieval_", "retrieval.", folder.name)
            folders["text-matching" if name == "text_matching" else name] = folder
    return folders
