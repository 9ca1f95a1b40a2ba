"""Recognise the family of a model by the names of its tensors and by its tokenizer files."""

import re
from collections.abc import Collection, Iterable

from bert_jax.families import FAMILIES


def family_by_files(names: Collection[str], files: Collection[str]) -> str | None:
    """Return the family that tensor names and tokenizer files show; None if they show none.

    Args:
        names: names of the tensors.
        files: names of the files beside the weights.
    """
    if shown := family_shown(names):
        return of_vocabulary(shown, files)
    if any(re.match(r"encoder\.layer\.\d+\.attention\.self\.", name) for name in names):
        for family, kind in reversed(list(FAMILIES.items())):
            if kind.vocabulary_file in files:
                return family
    return None


def family_shown(names: Iterable[str]) -> str | None:
    """Return the family that tensor names show; None if no family's pattern matches."""
    names = list(names)
    signs = [(kind.sign, family) for family, kind in FAMILIES.items()]
    # BERT's own names come last: some files of other families have them too.
    signs += sorted(
        ((kind.common_sign, family) for family, kind in FAMILIES.items()), key=lambda sign: sign[1] == "bert"
    )
    return next((family for sign, family in signs if has_tensor(sign, names)), None)


def of_vocabulary(family: str, files: Iterable[str]) -> str:
    """Return the family whose vocabulary file is in `files`, of those with the same tensor names; else `family`."""
    files, entries = set(files), FAMILIES[family].names.encoder
    alike = (name for name, kind in reversed(list(FAMILIES.items())) if kind.names.encoder == entries)
    return next((name for name in alike if FAMILIES[name].vocabulary_file in files), family)


def has_tensor(sign: str, names: Iterable[str]) -> bool:
    """Return whether any name matches `sign`, a family's pattern; "" matches none."""
    return bool(sign) and any(re.search(sign, name) for name in names)
