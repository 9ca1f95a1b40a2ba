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
        default: the value where no recipe sets the key; its type is the key's type. A type means "not set".
        meaning: a description of one line.
        choices: the allowed values; () = any value of the type.
        least: the smallest allowed value (inclusive), None = no limit.
        above: the exclusive lower limit, None = no limit.
        below: the exclusive upper limit, None = no limit.
        may_change: what a change does to a resumed run; "" = it must not change, as it makes another run.
        synonyms: names of other libraries for it, separated by spaces, for hints; `-` is written as `_`.
        former: the dotted name that it has in the config.json of older runs; "" = the same.
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
    """How a task's models are used, as Python code for their cards.

    Attributes:
        tag: the hub's name of the task (`pipeline_tag`); "" = none.
        pipeline: name of the pipeline; "" = the model itself is called.
        arguments: arguments of a call of the pipeline; `{mask}` stands for the mask token.
        inputs: inputs of a call of the model; `{tokenizer}` and `{options}` stand for a tokenizer and the last
            arguments of its call.
        torch_import: the import of the library that runs such models in PyTorch; `{class}` stands for a class of
            transformers.
        torch_lines: the lines that run one in PyTorch, of the directory `folder`; `{inputs}` stands for `inputs`.
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
    """The recipe of a task: its keys, and the functions that read a recipe of it.

    Attributes:
        meaning: what the recipe trains, in one line.
        build: a function of a resolved recipe that returns its `bert_jax.jobs.Job`, or where it is defined.
        keys: the keys that the task has beside those of every task (`shared_keys.SHARED_KEYS`), or in their place.
        defaults: name of a key -> the default where it is not that of the key.
        check: a function of a recipe that raises InputError when values do not fit together.
        pretraining: whether the task learns from prepared corpora, by `bert-jax pretrain`, and not from tables.
        whole_batch_losses: values of `data.loss` that compare the rows of a batch with each other, so that the losses
            of its parts do not sum to its loss.
        teacher_cache: whether `build` adds the cached outputs of a teacher to the rows
            (`bert_jax.jobs.teaching.with_teacher_outputs`).
        use: what the card of a trained model says of its use.
        synthetic_rows: a function of a copy of a resolved recipe without data that returns rows as objects of JSON, or
            where it is defined. `bert-jax plan` builds the job on them: `data.train` is then a file of JSON lines in
            memory. The function may set keys of the copy, such as a column that is empty. Tasks of `pretraining`
            return a row of a batch for each stage. None = plans need data.
    """

    meaning: str
    build: Any
    keys: Mapping[str, Key]
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    check: Callable[[Recipe], None] | None = None
    pretraining: bool = False
    whole_batch_losses: Collection[str] = ()
    teacher_cache: bool = False
    use: ModelUse = ModelUse()
    synthetic_rows: Any = None
