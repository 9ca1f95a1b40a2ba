"""Tag schemes (IOB, IOBES and the like): where entities begin, continue and end.

Ramshaw and Marcus 1995 (cmp-lg/9505040) for IOB; Ratinov and Roth 2009 (ACL W09-1119), section 3.1, for BILOU.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

OUTSIDE, BEGIN, INSIDE, END, SINGLE = range(5)
UNTAGGED = -1  # the label of tokens without a tag: pieces after a word's first, special tokens, padding
# The last tag of an entity is E or L, and its only tag S or U, depending on the scheme.
TAG_SCHEMES = {
    "IOB": {"B": BEGIN, "I": INSIDE},
    "IOBES": {"B": BEGIN, "I": INSIDE, "E": END, "S": SINGLE},
    "BILOU": {"B": BEGIN, "I": INSIDE, "L": END, "U": SINGLE},
}


@dataclasses.dataclass(frozen=True, eq=False)
class TagScheme:
    """The entity tag of each class.

    Attributes:
        name: a key of `TAG_SCHEMES`.
        kinds: int8 `[C]`, the kind of each tag: OUTSIDE, BEGIN, INSIDE, END or SINGLE.
        types: int32 `[C]`, the index in `type_names` of the entity's type; -1 for OUTSIDE.
        type_names: the types of entities, sorted; `_` for tags without a type.
    """

    name: str
    kinds: np.ndarray
    types: np.ndarray
    type_names: tuple[str, ...]


def read_scheme(names: Sequence[str]) -> TagScheme | None:
    """Detect the scheme of the tags `names`, in the order of their classes; None when they are not tags of entities.

    They are tags of entities when all except `O` are `B-TYPE`, `I-TYPE` and so on, with the letters of one scheme, or
    those letters alone.
    """
    marks = {name: name.partition("-")[::2] for name in names if name != "O"}
    letters = {letter for letter, _ in marks.values()}
    typed = {bool(kind) for _, kind in marks.values()}
    scheme = next((scheme for scheme, known in TAG_SCHEMES.items() if letters <= known.keys()), None)
    # Letters alone may be parts of speech instead.
    if scheme is None or len(typed) != 1 or not (letters & {"B", "I"} if typed == {True} else letters >= {"B", "I"}):
        return None
    types = tuple(sorted({kind or "_" for _, kind in marks.values()}))
    kinds = [TAG_SCHEMES[scheme][marks[name][0]] if name in marks else OUTSIDE for name in names]
    places = [types.index(marks[name][1] or "_") if name in marks else -1 for name in names]
    return TagScheme(scheme, np.array(kinds, np.int8), np.array(places, np.int32), types)
