"""`Recipe`, the type of a recipe; `Key`, the definition of a recipe key; `TaskRecipe`, the keys of a task."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

# What a change of a key does to a resumed run, for `Key.may_change`.
OUTPUT = "how often and where something is written; what is computed stays the same"
SPREAD = "how the work is spread over devices and recomputed; only rounding changes"
EVALUATIONS = "evaluations from here on"
CONTENT = "where the data are and how they are laid out; their content must be the same"
LENGTH = "the run becomes longer or shorter; the learning rate follows the schedule of the new length from here on"
TWO_TEXTS = '["A first text.", "A second text."]'  # two texts as Python code, for usage examples


class Recipe(Protocol):
    """A recipe: an `ml_collections.ConfigDict` with the keys of docs/recipes.md, such as `recipe.data.train`."""

    def __getattr__(self, key: str) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Key:
    """The definition of a recipe key.

    Attributes:
        default: the value if no recipe sets the key, whose type is the key's type; or a type alone for "not set".
        meaning: a description of one line.
        choices: the allowed values; () = any value of the type.
        least: the smallest allowed value (inclusive), None = no limit.
        above: the exclusive lower limit, None = no limit.
        below: the exclusive upper limit, None = no limit.
        may_change: what a change does to a resumed run; "" = the key must not change, as the run would be another one.
        synonyms: the key's names in other libraries, separated by spaces, for hints; `-` is written as `_`.
        former: the key's dotted name in the config.json of older runs; "" = the same.
        per_set: for a key of `data`, whether each set of `data.sets` may have its own value.
    """

    default: Any
    meaning: str
    choices: Collection[str] = ()
    least: float | None = None
    above: float | None = None
    below: float | None = None
    may_change: str = ""
    synonyms: str = ""
    former: str = ""
    per_set: bool = True

    @property
    def type(self) -> type:
        """Return the type of the key's values."""
        return self.default if isinstance(self.default, type) else type(self.default)

    @property
    def value(self) -> Any:
        """Return the default value; None where the key is not set."""
        return None if isinstance(self.default, type) else self.default

    def limits(self) -> str:
        """Return the range in words, such as `at least 0 and below 1`; "" = no limits."""
        if self.above == -math.inf:
            return "a finite number"
        limits = (("at least", self.least), ("more than", self.above), ("below", self.below))
        return " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)

    def allowed(self) -> str:
        """Return the allowed values in words, such as `float, at least 0` or `one of token, word, span`."""
        if self.choices:
            return "one of " + ", ".join(choice or '""' for choice in self.choices)
        return ", ".join(filter(None, (self.type.__name__, self.limits())))

    def in_range(self, value: float) -> bool:
        """Return whether a number is in the range; NaN never is, and infinity only where the key has no limits."""
        if not self.limits():
            return True
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and value < (math.inf if self.below is None else self.below)
        )


@dataclasses.dataclass(frozen=True)
class ModelUse:
    """How a task's models are used, as Python code for model cards.

    Attributes:
        tag: the hub's name of the task (`pipeline_tag`); "" = none.
        pipeline: name of the pipeline; "" = the model itself is called.
        arguments: arguments of a call of the pipeline; `{mask}` stands for the mask token.
        inputs: inputs of a call of the model; `{tokenizer}` stands for a tokenizer, and `{options}` for further
            arguments of its call.
        torch_import: the import of the library that runs such models in PyTorch; `{class}` stands for a class of
            transformers.
        torch_lines: the lines that run the model of directory `folder` in PyTorch; `{inputs}` stands for `inputs`.
    """

    tag: str = ""
    pipeline: str = ""
    arguments: str = ""
    inputs: str = '{tokenizer}(["A text."]{options})'
    torch_import: str = "from transformers import AutoTokenizer, {class}"
    torch_lines: tuple[str, ...] = (
        "tokenizer, model = AutoTokenizer.from_pretrained(folder), {class}.from_pretrained(folder)",
        "print(model(**{inputs}))",
    )


@dataclasses.dataclass(frozen=True)
class TaskRecipe:
    """The recipe of a task: its keys, and the functions that check a recipe and build its training job.

    Attributes:
        meaning: what the recipe trains, in one line.
        build: a function of a resolved recipe that returns its `bert_jax.jobs.Job`, or where it is defined.
        keys: the task's own keys, which extend or replace those of every task (`shared_keys.SHARED_KEYS`).
        defaults: name of a key -> the task's default, where it differs from the key's.
        check: a function of a recipe that raises InputError when values do not fit together.
        pretraining: whether the task trains on prepared corpora (`bert-jax pretrain`) instead of tables.
        tasks_of_sets: tasks that the sets of `data.sets` may have, each with its key `task`; () = that of the recipe.
        whole_batch_losses: values of `data.loss` that compare the rows of a batch with each other, so that a batch's
            loss is not the sum over its parts.
        teacher_cache: whether `build` adds the cached outputs of a teacher to the rows
            (`bert_jax.jobs.teaching.with_teacher_outputs`).
        use: the code for the card of a trained model.
        synthetic_rows: a function that returns rows as JSON objects, or where it is defined; `bert-jax plan` builds the
            job on these rows, which `data.train` then holds as JSON lines in memory. The argument is a copy of a
            resolved recipe without data; the function may set its keys, such as a column that is empty. Tasks of
            `pretraining` return a row of a batch for each stage. None = plans need data.
    """

    meaning: str
    build: Any
    keys: Mapping[str, Key]
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    check: Callable[[Recipe], None] | None = None
    pretraining: bool = False
    tasks_of_sets: Collection[str] = ()
    whole_batch_losses: Collection[str] = ()
    teacher_cache: bool = False
    use: ModelUse = ModelUse()
    synthetic_rows: Any = None
