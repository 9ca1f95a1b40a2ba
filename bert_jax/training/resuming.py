"""Compare the recipe and data of a resumed run with the original ones."""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax import recipes
from bert_jax.errors import InputError
from bert_jax.recipes.definitions import KEYS

_FREE = "how often and where something is written; what is computed stays the same"
_SPREAD = "how the work is spread over devices and recomputed; only rounding changes"
_EVALUATION = "evaluations from here on"
_CONTENT = "where the data are and how they are laid out; their content must be the same"
_LENGTH = "the run becomes longer or shorter; the learning rate follows the schedule of the new length from here on"

# Key of a recipe -> the effect of its change on a resumed run. A change of any other key makes another run.
MAY_CHANGE: Mapping[str, str] = {
    **dict.fromkeys(("log_every", "checkpoint_every", "keep_checkpoints", "profile", "wandb"), _FREE),
    "warn_after_seconds": _FREE,
    "max_skipped_steps": "when a run that diverges ends",
    **dict.fromkeys(("mesh.data", "mesh.fsdp", "mesh.tensor", "layers", "remat", "attention"), _SPREAD),
    **dict.fromkeys(("eval_every", "eval_batch_size", "data.eval_batches", "stop_after"), _EVALUATION),
    "best_metric": "the finished model is the best of the checkpoints that were evaluated by the new metric",
    **dict.fromkeys(("num_steps", "num_epochs"), _LENGTH),
    "stages": f"{_LENGTH}; steps that were done already must stay as they were",
    "data.mixture_weights": "the mixture of stages that have not begun; the others must stay as they were",
    **dict.fromkeys(
        (
            "init_from", "tokenizer", "data.prepared", "data.mixture", "data.train", "data.dev", "data.text_column",
            "data.pair_column",
            "data.negative_column", "data.label_column", "data.context_column", "data.question_column",
            "data.choice_columns", "data.has_header", "data.delimiter", "data.encoding",
            "data.label_separator", "data.invalid_rows", "data.dev_share", "data.split_seed", "data.train_columns",
            "distillation.teacher", "distillation.cache", "decoder_init_from", "data.source_column",
            "data.target_column",
        ),
        _CONTENT,
    ),
}  # fmt: skip
BY_CONTENT = frozenset(key for key, meaning in MAY_CHANGE.items() if meaning == _CONTENT)
LENGTH = ("num_steps", "num_epochs", "stages")
# Prefix of keys -> the key that turns on what they configure. While it is off, nothing reads them.
_SWITCHES = {"lora.": "lora.rank", "quantization.": "quantization.mode"}


def table() -> str:
    """Return `MAY_CHANGE` as a table in Markdown, for docs/resuming.md."""
    keys: dict[str, list[str]] = {}
    for key, meaning in MAY_CHANGE.items():
        keys.setdefault(meaning, []).append(f"`{key}`")
    rows = [f"| {', '.join(names)} | {meaning} |" for meaning, names in keys.items()]
    return "\n".join(["| keys | what a change does |", "|---|---|", *rows]) + "\n"


def differences(saved: dict[str, Any], recipe: dict[str, Any], has_content: bool = True) -> list[str]:
    """Return a phrase for each key of `recipe` that differs from `saved` and may not change.

    Args:
        saved: the nested recipe of `config.json`; a key that an older one lacks has its default.
        recipe: the nested recipe.
        has_content: whether the content of the data is compared; otherwise, their paths are.
    """
    old, new = recipes.with_current_names(recipes.flatten(saved)), recipes.flatten(recipe)
    defaults = {name: key.value for name, key in KEYS[recipe["task"]].items()}
    phrases = []
    for key in sorted(old.keys() | new.keys()):
        if key in MAY_CHANGE and (has_content or key not in BY_CONTENT):
            continue
        switch = next((name for prefix, name in _SWITCHES.items() if key.startswith(prefix)), None)
        if switch and not old.get(switch) and not new.get(switch):
            continue
        before, now = old.get(key, defaults.get(key)), new.get(key)
        if plain(before) != plain(now):
            phrases.append(f"{key} was {before!r}, is now {now!r}")
    return phrases


def has_other_length(saved: dict[str, Any], recipe: dict[str, Any]) -> bool:
    """Return whether two nested recipes set different numbers of steps."""
    return any(plain(saved.get(key)) != plain(recipe.get(key)) for key in LENGTH)


def have_same_paths(saved: dict[str, Any], recipe: dict[str, Any]) -> bool:
    """Return whether two nested recipes agree in every key of `BY_CONTENT`, so that they name the same files."""
    old, new = recipes.with_current_names(recipes.flatten(saved)), recipes.flatten(recipe)
    return all(plain(old.get(key, new.get(key))) == plain(new.get(key)) for key in BY_CONTENT)


def check_new_length(saved: dict[str, Any], recipe: ConfigDict, num_steps: int, done: int) -> None:
    """Raise InputError when a run of `done` steps cannot become one of `num_steps`, or its batches would differ."""
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


def _check_weights(saved: dict[str, Any], recipe: ConfigDict, done: int) -> None:
    """Raise InputError where a stage that has begun would go on with another mixture."""
    starts = itertools.accumulate((stage[0] for stage in saved.get("stages") or ()), initial=0)
    for stage in range(max(1, sum(start < done for start in starts))):
        before, now = (_weights_of(each, stage) for each in (saved, recipe))
        if before != now:
            raise InputError(
                f"config.data.mixture_weights: the run has done {done} steps, whose weights must not change: expected "
                f"{before}, found {now}"
            )


def _weights_of(recipe: Any, stage: int) -> list[float]:
    weights = plain(recipe.get("data", {}).get("mixture_weights") or ())
    return weights[min(stage, len(weights) - 1)] if weights and isinstance(weights[0], list) else weights


def plain(value: Any) -> Any:
    """Return a value as after a round trip through JSON: lists for tuples."""
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The record of the data of a run at its beginning (`Job.data`), and its number of steps; None if it has none."""

    data: dict[str, Any] | None = None
    num_steps: int | None = None

    def to_json(self) -> str:
        """Return the content of `data.json`."""
        content = {"num_steps": self.num_steps, "data": self.data}
        return json.dumps(content, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace").decode() + "\n"


def is_recipe(content: Any) -> bool:
    """Return whether the content of a `config.json` can be a recipe that a run has written."""
    return isinstance(content, dict) and isinstance(content.get("task"), str) and content["task"] in KEYS


def is_data_record(content: Any) -> bool:
    """Return whether the content of a `data.json` can be what a run has written."""
    return isinstance(content, dict) and type(content.get("num_steps")) is int and isinstance(content.get("data"), dict)


def data_differences(then: Mapping[str, Any], now: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, str]:
    """Return the differences between the data of a run at its beginning and now.

    Args:
        then, now: records of the data, from `bert_jax.tasks.fingerprints`.
        places: name -> file or directory, for the messages.

    Returns:
        Name -> a phrase with the old and the new value.
    """
    found: dict[str, str] = {}
    same_vocabulary = then.get("vocabulary") == now.get("vocabulary")
    for name in then.keys() | now.keys():
        before, after = then.get(name), now.get(name)
        if plain(before) == plain(after):
            continue
        where = places.get(name) or "the recipe"
        match name:
            case "classes":
                phrase = f"the run began with {_listed(before)}; {where} now has {_listed(after)}"
            case "train" | "dev":
                phrase = _rows(before, after, where, same_vocabulary)
            case "vocabulary":
                phrase = f"the run began with {_tokens(before)}; {where} now has {_tokens(after)}, other ones"
            case "prepared":
                phrase = _prepared(before or [], after or [], where)
            case "weights":
                # Earlier versions did not record them.
                phrase = before and f"the run began with other weights than those of {where}"
            case "model":
                phrase = _fields(before or {}, after or {})
            case _:
                phrase = f"the run began with {_listed(before)}; now there are {_listed(after)}"
        if phrase:
            found[name] = f"{name}: {phrase}"
    return dict(sorted(found.items()))


def _rows(before: dict[str, Any] | None, after: dict[str, Any] | None, where: str, same_vocabulary: bool) -> str:
    if before is None or after is None:
        sides = (f"{side['rows']:,} rows" if side else "none" for side in (before, after))
        return "the run began with {}; now there are {}".format(*sides)
    if before["rows"] != after["rows"]:
        return f"the run began with {before['rows']:,} rows; {where} now has {after['rows']:,}"
    if not same_vocabulary:
        return ""  # another vocabulary is reported, and changes every row
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
        return ""  # further stages
    if [stage["content"] for stage in after] == [stage["content"] for stage in before][: len(after)]:
        return ""
    if then != now:
        return f"the run began with {then:,} examples; {where} now has {now:,}"
    return f"the run began with other examples; {where} was prepared again, from other text or with other settings"


def _fields(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return a phrase of the differing fields that both records have; another version may have more fields."""
    changed = [key for key in sorted(before.keys() & after.keys()) if plain(before[key]) != plain(after[key])]
    return ", ".join(f"{key} was {before[key]!r}, is now {after[key]!r}" for key in changed[:3])


def _listed(values: Iterable[Any] | None) -> str:
    shown = [str(value) for value in values or ()]
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return (", ".join(shown[:8]) or "none") + more
