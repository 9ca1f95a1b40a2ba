"""Compare the recipe and data of a resumed run with the original ones."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from bert_jax import recipes
from bert_jax.errors import InputError
from bert_jax.recipes.base import CONTENT, LENGTH, Recipe
from bert_jax.recipes.keys import KEYS, SETS

# Prefix of keys -> the key that enables them. While it has no value, nothing reads them.
_SWITCHES = {"lora.": "lora.rank", "quantization.": "quantization.mode"}


def table() -> str:
    """Return a Markdown table of the keys that may change and the effect of a change, for docs/resuming.md."""
    keys: dict[str, dict[str, None]] = {}
    for task in KEYS:
        for name, key in KEYS[task].items():
            if key.may_change:
                keys.setdefault(key.may_change, {})[f"`{name}`"] = None
    rows = [f"| {', '.join(names)} | {effect} |" for effect, names in keys.items()]
    return "\n".join(["| keys | what a change does |", "|---|---|", *rows]) + "\n"


def differences(saved: dict[str, Any], recipe: dict[str, Any], has_content: bool = True) -> list[str]:
    """Return a phrase for each key of `recipe` that differs from `saved` and may not change.

    Args:
        saved: the nested recipe of `config.json`; keys that an older file lacks have their defaults.
        recipe: the nested recipe.
        has_content: whether the content of the data is compared elsewhere; otherwise, paths are compared here.
    """
    old, new = recipes.with_current_names(recipes.flatten(saved)), recipes.flatten(recipe)
    declared = KEYS[recipe["task"]]
    defaults = {name: key.value for name, key in declared.items()}
    either = {**KEYS.get(saved["task"], {}), **declared}
    changeable = {name for name, key in either.items() if key.may_change and (has_content or key.may_change != CONTENT)}
    phrases = []
    for key in sorted(old.keys() | new.keys()):
        if _key_for_all_sets(key) in changeable:
            continue
        switch = next((name for prefix, name in _SWITCHES.items() if key.startswith(prefix)), None)
        if switch and not old.get(switch) and not new.get(switch):
            continue
        before, now = old.get(key, defaults.get(key)), new.get(key)
        if plain(before) != plain(now):
            phrases.append(f"{key} was {before!r}, is now {now!r}")
    return phrases


def _key_for_all_sets(name: str) -> str:
    """Return the key `data.KEY` for `data.sets.NAME.KEY`, and other keys as they are."""
    return f"data.{name.rpartition('.')[2]}" if name.startswith(f"{SETS}.") else name


def has_other_length(saved: dict[str, Any], recipe: dict[str, Any]) -> bool:
    """Return whether two nested recipes set different numbers of steps."""
    lengths = [name for name, key in KEYS[recipe["task"]].items() if key.may_change.startswith(LENGTH)]
    return any(plain(saved.get(name)) != plain(recipe.get(name)) for name in lengths)


def have_same_paths(saved: dict[str, Any], recipe: dict[str, Any]) -> bool:
    """Return whether two nested recipes name the same files: whether they agree in all keys of `CONTENT`."""
    old, new = recipes.with_current_names(recipes.flatten(saved)), recipes.flatten(recipe)
    content = {name for name, key in KEYS[recipe["task"]].items() if key.may_change == CONTENT}
    names = [name for name in old.keys() | new.keys() if _key_for_all_sets(name) in content]
    return all(plain(old.get(name, new.get(name))) == plain(new.get(name)) for name in names)


def check_new_length(saved: dict[str, Any], recipe: Recipe, num_steps: int, done: int) -> None:
    """Raise InputError if a run that has done `done` steps cannot change to `num_steps` or to other stages."""
    if num_steps < done:
        raise InputError(
            f"config.num_steps: expected at least the {done} steps that the run has done, found {num_steps}"
        )
    _check_weights(saved, recipe, done)
    if not saved.get("stages") and not recipe.get("stages"):
        return
    left = done
    stages = [[plain(stage) for stage in each] for each in (saved.get("stages") or (), recipe.get("stages") or ())]
    for before, now in zip(*stages, strict=False):
        if not left:  # stages that have not begun may change
            break
        if before[1:] != now[1:] or min(before[0], left) > now[0] or (now[0] != before[0] and left > before[0]):
            raise InputError(
                f"config.stages: the run has done {done} steps, whose stages must not change: expected {before}, "
                f"found {now}"
            )
        left = max(0, left - before[0])
    if left or not all(stages):
        raise InputError(f"config.stages: expected the stages of the {done} steps that the run has done, found fewer")


def _check_weights(saved: dict[str, Any], recipe: Recipe, done: int) -> None:
    """Raise InputError where a stage that has begun would continue with another mixture."""
    starts = itertools.accumulate((stage[0] for stage in saved.get("stages") or ()), initial=0)
    for stage in range(max(1, sum(start < done for start in starts))):
        before, now = (_weights_of(each, stage) for each in (saved, recipe))
        if before != now:
            raise InputError(
                f"config.data.mixture_weights: the run has done {done} steps, whose weights must not change: expected "
                f"{before}, found {now}"
            )


def _weights_of(recipe: Recipe | Mapping[str, Any], stage: int) -> list[float]:
    weights = plain(recipe.get("data", {}).get("mixture_weights") or ())
    weights_of_stage: list[float] = weights
    if weights and isinstance(weights[0], list):
        weights_of_stage = weights[min(stage, len(weights) - 1)]
    return weights_of_stage


def plain(value: Any) -> Any:
    """Return a value as JSON would restore it: tuples become lists."""
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def data_differences(then: Mapping[str, Any], now: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, str]:
    """Return the differences between the data of a run at its beginning and now.

    Args:
        then, now: records of the data, from `bert_jax.jobs.fingerprints`.
        places: name -> file or directory, for the messages.

    Returns:
        Name -> a phrase with the old and the new value.
    """
    phrases: dict[str, str] = {}
    same_vocabulary = then.get("vocabulary") == now.get("vocabulary")
    for name in then.keys() | now.keys():
        before, after = then.get(name), now.get(name)
        if plain(before) == plain(after):
            continue
        where = places.get(name) or "the recipe"
        match name.rpartition("/")[2]:  # SET/NAME for one of several data sets
            case "classes":
                phrase = f"the run began with {_listed(before)}; {where} now has {_listed(after)}"
            case "train" | "dev":
                phrase = _rows(before, after, where, same_vocabulary)
            case "vocabulary":
                phrase = f"the run began with {_tokens(before)}; {where} now has {_tokens(after)}, not the same"
            case "prepared":
                phrase = _prepared(before or [], after or [], where)
            case "weights":
                # Earlier versions did not record the weights.
                phrase = before and f"the run began with other weights than those of {where}"
            case "model":
                phrase = _fields(before or {}, after or {})
            case _:
                phrase = f"the run began with {_listed(before)}; now there are {_listed(after)}"
        if phrase:
            phrases[name] = f"{name}: {phrase}"
    return dict(sorted(phrases.items()))


def _rows(before: dict[str, Any] | None, after: dict[str, Any] | None, where: str, same_vocabulary: bool) -> str:
    if before is None or after is None:
        sides = (f"{side['rows']:,} rows" if side else "none" for side in (before, after))
        return "the run began with {}; now there are {}".format(*sides)
    if before["rows"] != after["rows"]:
        return f"the run began with {before['rows']:,} rows; {where} now has {after['rows']:,}"
    if not same_vocabulary:
        return ""  # a different vocabulary changes every row, and is reported by itself
    rows = f"{before['rows']:,} rows"
    if before["any_order"] == after["any_order"]:
        return f"the run began with the same {rows} in another order; {where} was reordered"
    if before["texts"] == after["texts"]:
        return f"the run began with other labels of the {rows} of {where}"
    return f"the run began with other texts in the {rows} of {where}"


def _tokens(side: dict[str, Any] | None) -> str:
    return f"{side['tokens']:,} tokens" if side else "none"


def _prepared(before: list[Any], after: list[Any], where: str) -> str:
    then, now = (sum(stage["examples"] for stage in side) for side in (before, after))
    if [stage["content"] for stage in before] == [stage["content"] for stage in after][: len(before)]:
        return ""  # stages were only added
    if [stage["content"] for stage in after] == [stage["content"] for stage in before][: len(after)]:
        return ""
    if then != now:
        return f"the run began with {then:,} examples; {where} now has {now:,}"
    return f"the run began with other examples; {where} was prepared again, from other text or with other settings"


def _fields(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Describe the differing fields that both records have; another version may have recorded more fields."""
    changed = [key for key in sorted(before.keys() & after.keys()) if plain(before[key]) != plain(after[key])]
    return ", ".join(f"{key} was {before[key]!r}, is now {after[key]!r}" for key in changed[:3])


def _listed(values: Iterable[Any] | None) -> str:
    shown = [str(value) for value in values or ()]
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return (", ".join(shown[:8]) or "none") + more
