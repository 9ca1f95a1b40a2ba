"""Types of fields that bodies of several APIs share; error messages quote the descriptions as what was expected."""

from typing import Annotated, Any, Literal

import msgspec

from bert_jax.serving.bodies import invalid_field

_TokenId = Annotated[int, msgspec.Meta(ge=0)]
_TokenIds = Annotated[list[_TokenId], msgspec.Meta(min_length=1)]
_INPUTS = "a string, a list of strings, or lists of token ids"
Strings = Annotated[list[str], msgspec.Meta(min_length=1, description="a list of strings")]
TextsOrIds = Annotated[
    str | Annotated[list[str | _TokenId | _TokenIds], msgspec.Meta(min_length=1)],
    msgspec.Meta(description=_INPUTS),
]
ModelName = Annotated[str | None, msgspec.Meta(description="a string, a model's name, or null for the first that fits")]
# As which kind of text to embed the inputs, whose prompt, and whose part of the model, is then used.
InputType = Literal["query", "document"] | None
Dimensions = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None


def split_ids(value: Any, field: str) -> dict[str, Any]:
    """Return the `texts` or the `ids` of a request. Raises `Refusal` for a list that mixes both.

    A list of integers is one text.
    """
    if isinstance(value, str):
        return {"texts": [value]}
    types = set(map(type, value))  # fast even for a million values
    if types == {str}:
        return {"texts": value}
    if types == {int}:
        return {"ids": [value]}
    if types == {list}:
        return {"ids": value}
    raise invalid_field(field, _INPUTS, value)
