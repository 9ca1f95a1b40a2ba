"""Settings of text input and vector output that lie outside the architecture: prompts, similarity, truncation."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bert_jax.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from bert_jax.conversion.multi_vector_settings import MultiVectorSettings

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
MULTI_VECTOR_SIMILARITIES = ("maxsim", "meanmaxsim")
_T = TypeVar("_T", bound=Any)
# Names of prompts for the queries of a search and for its corpus, in order of preference.
QUERY_PROMPTS = ("query",)
CORPUS_PROMPTS = ("document", "passage", "corpus")
_TASK_PROMPTS = {"query": QUERY_PROMPTS, "document": CORPUS_PROMPTS}


class TaskPrompts(NamedTuple):
    """Settings of texts and vectors for the tasks of a model with several adapters.

    Attributes:
        task: the task whose adapter the parameters have; "" = none.
        prompts: (name, text) pairs, each named after a task.
        truncate_dim: number of leading dimensions of a vector to keep; None = all.
    """

    task: str
    prompts: tuple[tuple[str, str], ...]
    truncate_dim: int | None


@dataclasses.dataclass(frozen=True)
class TextSettings:
    """Settings from sentence-transformers' files, or their defaults.

    Attributes:
        prompts: (name, text) pairs.
        default_prompt: name of the prompt that is used if a call names none; "" = none.
        include_prompt: whether the tokens of a prompt are pooled too.
        lowercase: whether texts are lower-cased before tokenization.
        max_length: maximum number of tokens in an input; None = not set.
        similarity: one of `SIMILARITIES`, or of `MULTI_VECTOR_SIMILARITIES`.
        truncate_dim: number of leading dimensions of a vector to keep; None = all.
        max_active_dims: number of greatest weights of a sparse vector to keep; None = all.
        multi_vector: lengths, query expansion and skipped tokens of a model with a vector for each token.
        query_length: maximum number of tokens in a query that goes through query weights; None = not set.
        default_route: `query` or `document`: how a text for neither task is embedded, if both differ.
        cross_encoder: whether the model came with the files of a cross-encoder, which are then saved too.
        activation: activation of a cross-encoder's logits: one of `bert_jax.config.values.LAYER_ACTIVATIONS` or
            `softmax`; "" = not set.
        added_tokens: special tokens of a GLiNER's prompts, which are added to a tokenizer that lacks them.
        task: the task whose adapter the parameters have, of a model with adapters for several; "" = none.
        records: the records of tasks in `bert_jax.json`, by key (`bert_jax.tasks.Record`).
    """

    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str = ""
    include_prompt: bool = True
    lowercase: bool = False
    max_length: int | None = None
    similarity: str = "cosine"
    truncate_dim: int | None = None
    max_active_dims: int | None = None
    multi_vector: "MultiVectorSettings | None" = None
    query_length: int | None = None
    default_route: str = "document"
    cross_encoder: bool = False
    activation: str = ""
    added_tokens: tuple[str, ...] = ()
    task: str = ""
    records: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def prompt(self, name: str | None = None, text: str | None = None) -> str:
        """Return the text to put before an input.

        Args:
            name: name of a prompt; None = the default prompt, "" = none.
            text: the prompt itself, instead of a name.

        Raises:
            InputError: both are given, or there is no such prompt.
        """
        if text is not None:
            if name is not None:
                raise InputError(f"expected a prompt or the name of one, found both: {text!r} and {name!r}")
            return text
        name = self.default_prompt if name is None else name
        known = dict(self.prompts)
        if name and name not in known:
            hint = did_you_mean(name, known) if known else "; the model has none"
            raise InputError(f"prompt name {name!r} is not known{hint}")
        return known[name] if name else ""

    def prompt_for(self, names: Sequence[str], name: str | None = None, text: str | None = None) -> str:
        """Return the text to put before an input, with the first existing prompt of `names` as the default.

        A default prompt of the model takes precedence over `names`; see `prompt`.
        """
        if name is None and text is None and not self.default_prompt:
            known = dict(self.prompts)
            return next((known[each] for each in names if known.get(each)), "")
        return self.prompt(name, text)

    def prompt_of_task(self, task: str | None, name: str | None = None, text: str | None = None) -> str:
        """Return the text to put before a query or a document, as `encode_query` of sentence-transformers chooses it.

        Args:
            task: `query` or `document`, whose prompt takes precedence over the default prompt; None = neither.
            name: as for `prompt`.
            text: as for `prompt`.

        Raises:
            InputError: as `prompt`, or the task is not known.
        """
        if task not in (None, *_TASK_PROMPTS):
            raise InputError(f"task: expected query or document, found {task!r}")
        if task is not None and name is None and text is None:
            name = next((each for each in _TASK_PROMPTS[task] if each in dict(self.prompts)), None)
        return self.prompt(name, text)

    def record(self, name: str) -> Any:
        """Return the entry of `bert_jax.json` under a key. Raises InputError when it has no such key."""
        if name not in self.records:
            found = ", ".join(self.records) or "none"
            raise InputError(f"expected a model whose bert_jax.json has {name!r}, found {found}")
        return self.records[name]

    def dimension(self, truncate_dim: int | None = None) -> int | None:
        """Return the number of dimensions to keep: `truncate_dim`, else the model's. Raises InputError if below 1."""
        if truncate_dim is None:
            return self.truncate_dim
        if not isinstance(truncate_dim, int) or isinstance(truncate_dim, bool) or truncate_dim < 1:
            raise InputError(f"truncate_dim: expected a positive integer, found {truncate_dim!r}")
        return truncate_dim

    def longest(self, positions: int, tokenizer: Any) -> int:
        """Return the maximum number of tokens in an input: as set here, else by the tokenizer, at most `positions`."""
        said = self.max_length or getattr(tokenizer, "max_length", None)
        return min(said or positions, positions)

    def pooling_skip(self, tokenizer: Any, prompt: str, max_length: int) -> int:
        """Return the number of leading tokens to leave out of pooling: those of the prompt, unless it is included."""
        if self.include_prompt or not prompt:
            return 0
        layout = tokenizer.layout
        return min(len(layout.start) + len(tokenizer.encode(prompt)), max_length - len(layout.end))

    def of_another_head(self) -> "TextSettings":
        """Return the settings that also apply to another head than the saved one."""
        return TextSettings(lowercase=self.lowercase, max_length=self.max_length)

    def tokenizer(self, tokenizer: _T) -> _T:
        """Return the tokenizer, with the lower-casing and the added tokens of these settings."""
        if tokenizer is not None and any(tokenizer.token_to_id(token) is None for token in self.added_tokens[1:]):
            from bert_jax.tokenization.special_tokens import with_special_tokens

            tokenizer = with_special_tokens(tokenizer, self.added_tokens)
        return tokenizer.lowercased() if self.lowercase and tokenizer is not None else tokenizer


NO_SETTINGS = TextSettings()  # settings of models without sentence-transformers' files
