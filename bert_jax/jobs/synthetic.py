"""Shapes of a run without its data: the job is built on synthetic rows, and no teacher or guide computes outputs."""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax import recipes
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.jobs.abstract import Stage
from bert_jax.jobs.base import Job
from bert_jax.jobs.synthetic_rows import DATA, ONLY_SHAPES, WORD, has_synthetic_rows
from bert_jax.recipes.base import Recipe, TaskRecipe
from bert_jax.storage import MemoryFile, PathLike
from bert_jax.tasks.entry import load_reference
from bert_jax.tokenization import Tokenizer
from bert_jax.tokenization.interface import Encoded, SpecialIds
from bert_jax.tokenization.layout import RowLayout

# Keys of `data` -> their values for synthetic rows, which all have `max_seq_length` tokens and are unpacked.
_OVERRIDES = {"dev": "", "validation_split": 0.0, "packing": 0, "encoding": ""}
_TOKENS = ("pad", "unk", "cls", "sep", "mask", "word")
_WORDS = re.compile(r"\S+")


def recipe_for_shapes(recipe: Recipe, task: TaskRecipe) -> Any:
    """Copy a resolved recipe, mark it `only_shapes`, and give it synthetic rows if it names no data.

    A recipe of several tasks gets none: its tasks are those of its data sets.

    Raises:
        InputError: the recipe names no data, and its task has no synthetic rows.
    """
    c = marked_for_shapes(recipe)
    if task.tasks_of_sets or any(c.data.get(name) for name in DATA):
        return c
    if task.synthetic_rows is None:
        raise InputError(
            f"config.data: expected data, as task {c.task!r} has no synthetic rows to take shapes from, found none; "
            "TaskRecipe.synthetic_rows can define them"
        )
    rows = load_reference(task.synthetic_rows)(c)
    file = MemoryFile("synthetic.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    changes = _OVERRIDES | {"length_buckets": (c.data.get("max_seq_length"),)}
    _put(c.data, **{name: value for name, value in changes.items() if name in c.data})
    _put(c.data, **{"prepared" if task.pretraining else "train": file})
    if not (c.tokenizer or c.init_from or c.distillation.teacher):
        _put(c, tokenizer=SyntheticTokenizer(recipes.model_config(c)))
    return c


def marked_for_shapes(recipe: Recipe) -> Any:
    """Return a copy of a recipe that is marked `only_shapes`."""
    c = recipe.copy_and_resolve_references()
    _put(c, **{ONLY_SHAPES: True})
    return c


def _put(part: Any, **values: Any) -> None:
    """Set keys of a part of a recipe to values of any type."""
    with part.unlocked():
        for name, value in values.items():
            if name in part:
                del part[name]  # assigning to an existing key would convert the value to its type
            part[name] = value


def stages_of(job: Job, recipe: Recipe) -> tuple[Stage, ...]:
    """Return a stage for each batch shape, or one stage if the source has no `steps_by_shape`.

    Args:
        job: the job. On synthetic rows, the number of steps in an epoch is unknown.
        recipe: the recipe of `recipe_for_shapes` from which the job was built.
    """
    source: Any = job.train_source
    num_steps = recipe.num_steps if has_synthetic_rows(recipe) else job.num_steps
    steps = source.steps_by_shape(num_steps) if hasattr(source, "steps_by_shape") else {0: num_steps}
    return tuple(
        Stage.of_rows(count, recipes.batch_size_at(recipe, step), source.batch(step, slice(0, 1)))
        for step, count in steps.items()
    )


class SyntheticTokenizer(Tokenizer):
    """A tokenizer for shapes: every word is the same token, and every token is in the vocabulary.

    Args:
        config: the architecture, with the size of the vocabulary and the ids of special tokens.
    """

    def __init__(self, config: BertConfig):
        set_ids = {"pad": config.pad_token_id, **{name: config.setting(f"{name}_token_id") for name in ("sep", "mask")}}
        others = (number for number in itertools.count() if number not in set_ids.values())
        ids = {name: next(others) if set_ids.get(name) is None else set_ids[name] for name in _TOKENS}
        self._word = ids.pop("word")
        if (size := config.vocab_size) <= max(self._word, *ids.values()):
            raise InputError(f"config.model.vocab_size: expected at least {len(_TOKENS)} tokens, found {size}")
        layout = RowLayout.bert(ids["cls"], ids["sep"])
        super().__init__([""] * size, SpecialIds(**ids), np.zeros(size, bool), None, layout)

    @property
    def saved_files(self) -> tuple[str, ...]:
        return ()

    def encode_batch(self, texts: Sequence[str], parse_special: bool = True) -> list[list[int]]:
        return [ids for ids, _ in self.encode_batch_with_offsets(texts)]

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        ranges = [[match.span() for match in _WORDS.finditer(text)] for text in texts]
        return [([self._word] * len(words), words) for words in ranges]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        return " ".join(WORD for _ in ids)

    def token_to_id(self, token: str) -> int | None:
        return self._word if token else None

    def lowercased(self) -> Tokenizer:
        return self

    def save(self, directory: PathLike) -> None:
        raise InputError(f"{directory}: expected a tokenizer with files to save, found a synthetic one")
