"""Settings of late-interaction models: lengths, query expansion, and the tokens that are scored (ColBERT)."""

import dataclasses
import math
from typing import Any

from bert_jax.errors import InputError

DEFAULT_QUERY_LENGTH = 32  # length of expanded queries if the files do not set it


@dataclasses.dataclass(frozen=True)
class QueryExpansion:
    """Tokens that are added to queries (Khattab and Zaharia 2020, arXiv:2004.12832, section 3.2).

    Attributes:
        length: number of tokens to which a query is filled up.
        truncates: whether longer queries are cut to this length.
        attended: whether other tokens attend to the added tokens.
        token: the token that is added; "" = the mask token.
    """

    length: int
    truncates: bool = True
    attended: bool = False
    token: str = ""


@dataclasses.dataclass(frozen=True)
class TokenPooling:
    """Merging of the vectors of similar tokens (Clavié et al. 2024, arXiv:2409.14683).

    Attributes:
        factor: number of vectors that become one on average, at least 1.
        protected: number of leading vectors that stay as they are.
        normalizes: whether all vectors have length 1 afterwards.
        tasks: the tasks whose texts are pooled: `document` (also texts without a task), `query`.

    Raises:
        InputError: a number is out of range.
    """

    factor: float = 1.0
    protected: int = 1
    normalizes: bool = True
    tasks: tuple[str, ...] = ("document",)

    def __post_init__(self) -> None:
        for name, value, least in (("factor", self.factor, 1), ("protected", self.protected, 0)):
            kinds: tuple[type, ...] = (int, float) if name == "factor" else (int,)
            if type(value) not in kinds or not least <= value < math.inf:
                raise InputError(f"token pooling: {name}: expected a number of at least {least}, found {value!r}")

    def applies_to(self, task: str | None) -> bool:
        """Return whether texts of a task are pooled."""
        return (task or "document") in self.tasks


@dataclasses.dataclass(frozen=True)
class MultiVectorSettings:
    """Settings of a model with a vector for each token.

    Attributes:
        query_length: maximum number of tokens in a query; None = as for any text.
        document_length: maximum number of tokens in a document; None = as for any text.
        expansion: how queries are filled up; None = they are not.
        skipped_words: tokens that are not scored; those that the vocabulary lacks are ignored.
        skips_in: the tasks whose texts skip these tokens: `document` (also texts without a task), `query`.
        markers: (task, marker) pairs. If a prompt begins with a marker, the marker or its first word becomes one token
            of the vocabulary, and is not tokenized as text.
        pooling: how vectors of similar tokens are merged; None = they are not.
    """

    query_length: int | None = None
    document_length: int | None = None
    expansion: QueryExpansion | None = None
    skipped_words: tuple[str, ...] = ()
    skips_in: tuple[str, ...] = ("document",)
    markers: tuple[tuple[str, str], ...] = ()
    pooling: TokenPooling | None = None

    def length_of(self, task: str | None, longest: int) -> int:
        """Return the maximum number of tokens in a text of a task; `longest` is the maximum for any text."""
        named = {"query": self.query_length, "document": self.document_length}.get(task or "")
        if task == "query" and self.expansion is not None:
            named = self.expansion.length if self.expansion.truncates else max(named or longest, self.expansion.length)
        return named or longest

    def skipped_ids(self, tokenizer: Any, task: str | None) -> list[int]:
        """Return the ids of tokens that are not scored in texts of a task."""
        if (task or "document") not in self.skips_in:
            return []
        ids = {word: tokenizer.token_to_id(word) for word in self.skipped_words}
        return [i for word, i in ids.items() if i is not None and not tokenizer.is_unknown(i)]

    def expansion_id(self, tokenizer: Any) -> int:
        """Return the id of the token that is added to queries. Raises InputError if the vocabulary lacks it."""
        assert self.expansion is not None
        if not self.expansion.token:
            return tokenizer.mask_id
        token_id = tokenizer.token_to_id(self.expansion.token)
        if token_id is None:
            raise InputError(f"query_expansion: expected a token of the vocabulary, found {self.expansion.token!r}")
        return token_id
