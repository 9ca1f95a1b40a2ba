"""`GlinerConfig`: the head of a GLiNER and its prompts, as written in `gliner_config.json`."""

import dataclasses
from typing import Any

from bert_jax.errors import InputError, printable

SUBTOKEN_POOLINGS = ("first", "last")
_LARGEST = 2**24  # upper limit of every number
_COUNTS = ("max_width", "hidden_size", "max_len", "max_types")
_TOKENS = ("ent_token", "sep_token")


@dataclasses.dataclass(frozen=True)
class GlinerConfig:
    """The head of a GLiNER with span mode markerV0 (Zaratiana et al. 2023, arXiv:2311.08526); part of `BertConfig`.

    The names of the fields are the keys of `gliner_config.json`.

    Attributes:
        max_width: maximum number of words in an entity.
        hidden_size: width of the vectors of words, spans and entity types.
        dropout: dropout rate inside the feed-forward blocks of the head.
        num_rnn_layers: layers of the bidirectional LSTM over the words; 0 = none.
        subtoken_pooling: the token of a word whose vector represents it: `first` or `last`.
        embed_ent_token: whether the vector of an entity type is that of its `ent_token`; otherwise that of the token
            after it.
        ent_token: special token before the name of each entity type.
        sep_token: special token between the names of the types and the text.
        max_len: maximum words of a text in a row.
        max_types: maximum number of entity types of a training example.
        max_neg_type_ratio: maximum number of types that are not in a training example, per entity of it.
        class_token_index: id of `ent_token`; -1 = not set.
        carried: other keys and values of the `gliner_config.json` that was read, which are written again. They do not
            affect the model and are ignored in comparisons.
    """

    max_width: int = 12
    hidden_size: int = 512
    dropout: float = 0.4
    num_rnn_layers: int = 1
    subtoken_pooling: str = "first"
    embed_ent_token: bool = True
    ent_token: str = "<<ENT>>"
    sep_token: str = "<<SEP>>"
    max_len: int = 384
    max_types: int = 25
    max_neg_type_ratio: int = 1
    class_token_index: int = -1
    carried: tuple[tuple[str, Any], ...] = dataclasses.field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in _COUNTS:
            self._expect(name, _is_count(getattr(self, name), 1), "a positive integer")
        for name in ("num_rnn_layers", "max_neg_type_ratio"):
            self._expect(name, _is_count(getattr(self, name), 0), "a non-negative integer")
        self._expect("class_token_index", _is_count(self.class_token_index, -1), "the id of a token, or -1")
        self._expect("num_rnn_layers", self.num_rnn_layers <= 16, "at most 16")
        self._expect("dropout", type(self.dropout) in (int, float) and 0 <= self.dropout < 1, "a rate in [0, 1)")
        self._expect("subtoken_pooling", self.subtoken_pooling in SUBTOKEN_POOLINGS, " or ".join(SUBTOKEN_POOLINGS))
        self._expect("embed_ent_token", isinstance(self.embed_ent_token, bool), "true or false")
        for name in _TOKENS:
            value = getattr(self, name)
            self._expect(name, isinstance(value, str) and value != "" and not value.isspace(), "a token")
        self._expect("sep_token", self.sep_token != self.ent_token, "another token than ent_token")
        if self.num_rnn_layers:
            self._expect("hidden_size", self.hidden_size % 2 == 0, "an even number, for an LSTM in both directions")

    def _expect(self, name: str, fits: bool, expected: str) -> None:
        if not fits:
            raise InputError(f"{name}: expected {expected}, found {printable(repr(getattr(self, name)), 60)}")

    @property
    def added_tokens(self) -> tuple[str, ...]:
        """Return the special tokens that the original adds to a tokenizer, in the order of their ids."""
        return ("[FLERT]", self.ent_token, self.sep_token)

    def to_json(self) -> dict[str, Any]:
        """Return the content of `gliner_config.json`: these fields, and the other keys of the file that was read."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return dict(fields.pop("carried")) | fields


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= _LARGEST
