"""Settings of text input and vector output that lie outside the architecture: prompts, similarity, truncation."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from bert_jax.errors import InputError, did_you_mean

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_T = TypeVar("_T", bound=Any)
# Names of prompts for the queries of a search and for what is searched, the likeliest first.
QUERY_PROMPTS = ("query",)
CORPUS_PROMPTS = ("document", "passage", "corpus")


@dataclasses.dataclass(frozen=True)
class TextSettings:
    """What the files of sentence-transformers say, or nothing.

    Attributes:
        prompts: (name, text) each.
        default_prompt: the name of the prompt that is used where none is named; "" = none.
        include_prompt: whether the tokens of a prompt are pooled too.
        lowercase: whether texts are lower-cased before the tokenizer.
        max_length: tokens of the longest input; None = the files do not say.
        similarity: one of `SIMILARITIES`.
        truncate_dim: numbers of a vector that are kept, from the first; None = all.
        cross_encoder: whether the files are those of a cross-encoder, which are then written too.
        activation: what makes scores of a cross-encoder's logits: one of `bert_jax.config_values.LAYER_ACTIVATIONS` or
            `softmax`; "" = the files do not say.
    """

    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str = ""
    include_prompt: bool = True
    lowercase: bool = False
    max_length: int | None = None
    similarity: str = "cosine"
    truncate_dim: int | None = None
    cross_encoder: bool = False
    activation: str = ""

    def prompt(self, name: str | None = None, text: str | None = None) -> str:
        """The text to put before an input.

        Args:
            name: of the prompt; None = the default one, "" = none.
            text: the prompt itself, in place of a name.

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
        """As `prompt`; a model without a default prompt has the first of `names` in its place, if it has one."""
        if name is None and text is None and not self.default_prompt:
            known = dict(self.prompts)
            return next((known[each] for each in names if known.get(each)), "")
        return self.prompt(name, text)

    def dimension(self, truncate_dim: int | None = None) -> int | None:
        """Numbers of a vector to keep: `truncate_dim`, or else the model's own. Raises InputError below 1."""
        if truncate_dim is None:
            return self.truncate_dim
        if not isinstance(truncate_dim, int) or isinstance(truncate_dim, bool) or truncate_dim < 1:
            raise InputError(f"truncate_dim: expected a positive integer, found {truncate_dim!r}")
        return truncate_dim

    def longest(self, positions: int, tokenizer: Any) -> int:
        """The longest input, in tokens, of a model with `positions`: as these settings say, else its tokenizer."""
        said = self.max_length or getattr(tokenizer, "max_length", None)
        return min(said or positions, positions)

    def pooling_skip(self, tokenizer: Any, prompt: str, max_length: int) -> int:
        """The number of leading tokens of a row that are not pooled: those of a prompt, where it is not to be."""
        if self.include_prompt or not prompt:
            return 0
        layout = tokenizer.layout
        return min(len(layout.start) + len(tokenizer.encode(prompt)), max_length - len(layout.end))

    def of_another_head(self) -> "TextSettings":
        """What holds for a model that is opened with another head than its files are for."""
        return TextSettings(lowercase=self.lowercase, max_length=self.max_length)

    def tokenizer(self, tokenizer: _T) -> _T:
        """The tokenizer, for lower-cased texts where the settings say so."""
        return tokenizer.lowercased() if self.lowercase and tokenizer is not None else tokenizer


NO_SETTINGS = TextSettings()  # of a model without files of sentence-transformers
