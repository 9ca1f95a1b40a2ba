"""Types of fields that the bodies of several APIs have; a description is also what an error says was expected."""

from typing import Annotated, Any

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
ModelName = Annotated[str | None, msgspec.Meta(description="a string, the model's name; the first that fits if none")]
Dimensions = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None


def split_ids(value: Any, field: str) -> dict[str, Any]:
    """Return the `texts` or the `ids` of a request. Raises `Refusal` for a list of both.

    A list of integers is one text.
    """
    if isinstance(value, str):
        return {"texts": [value]}
    types = set(map(type, value))  # lists of a million values are checked without a call for each
    if types == {str}:
        return {"texts": value}
    if types == {int}:
        return {"ids": [value]}
    if types == {list}:
        return {"ids": value}
    raise invalid_field(field, _INPUTS, value)
