"""Hints for errors in recipes: the key that was probably meant, and the reason of an error of ml_collections."""

import re
from collections.abc import Iterable

from ml_collections import ConfigDict

from bert_jax.errors import did_you_mean
from bert_jax.recipes.keys import KEYS, synonyms
from bert_jax.synonyms import names_here


def reason_of_error(error: Exception) -> str:
    """Return the reason of an error in a recipe file; shorten ml_collections' messages, which quote the recipe."""
    text = str(error).strip()
    if key := re.search(r'Key "([^"]+)" does not exist', text):
        guess = re.search(r'Did you mean "([^"]+)"', text)
        leaves = {name.rpartition(".")[2] for keys in KEYS.values() for name in keys}
        known = names_here(key[1], sorted(leaves), synonyms()) or ([guess[1]] if guess else [])
        return f"there is no key {key[1]!r}" + (f"; did you mean {' or '.join(map(repr, known))}?" if known else "")
    if field := re.search(r"override field '([^']+)'.* type <class '(\w+)'> .* type <class '(\w+)'>", text, re.DOTALL):
        return f"{field[1]}: expected {field[3]}, found {field[2]}"
    return f"{type(error).__name__}: {(text.splitlines() or [''])[0]}"


def hint_for_key(task: str, keys: Iterable[str], node: ConfigDict, part: str, last: str) -> str:
    """Return a hint for an unknown key: similar keys in `node`, or keys elsewhere in the recipe.

    Args:
        task: the recipe's task.
        keys: the dotted names of all keys of the recipe.
        node: the group in which the key was looked up.
        part: the part of the dotted name that `node` lacks.
        last: the last part of the dotted name.
    """
    inside, others = list(node.keys()), synonyms(task)
    if not names_here(part, inside, others):
        leaves = {full: full.rpartition(".")[2] for full in keys}
        called = [leaf for leaf in leaves.values() if leaf == last] or names_here(last, list(leaves.values()), others)
        if elsewhere := [full for full, leaf in leaves.items() if leaf in called]:
            return f"; did you mean {' or '.join(map(repr, elsewhere))}?"
        hint = did_you_mean(part, inside, others)
        if "did you mean" not in hint and "did you mean" in (near := did_you_mean(last, leaves.values(), others)):
            full = next(full for full, leaf in leaves.items() if repr(leaf) in near)
            return f"; did you mean {full!r}?"
        return hint
    return did_you_mean(part, inside, others)
