"""Iterative pruning: rounds of pruning, each followed by recovery training, under one work directory.

    round-1/pruned   the model with some of the parts removed        round-1/run   its training by the recipe
    round-2/pruned   round-1/run/model with more parts removed       ...
    pruning.json     the settings, which a resumed call must share

A killed call can be repeated to resume it: a pruned model is written whole or not at all, and training resumes exactly,
so the final model has the same bytes as without the kill. Repeating a call that has ended changes nothing.
"""

import dataclasses
import json
from typing import Any

from bert_jax import recipes, storage
from bert_jax.compression import pruning as pruned
from bert_jax.compression.pruning import EXAMPLES, PrunedModel, Pruning
from bert_jax.conversion.open_checkpoint import open_model
from bert_jax.errors import InputError
from bert_jax.jobs.examples import examples_of_recipe, starting_from
from bert_jax.training import resuming
from bert_jax.training.loop import train
from bert_jax.training.metrics import Results
from bert_jax.training.workdir import Workdir

SETTINGS = "pruning.json"


def prune_and_recover(
    model_dir: storage.PathLike,
    out: storage.PathLike,
    pruning: Pruning,
    recipe: recipes.Recipe,
    workdir: storage.PathLike,
    *,
    rounds: int = 1,
    examples: int = EXAMPLES,
    progress: bool = True,
) -> tuple[PrunedModel, Results]:
    """Prune a model in rounds, train it by a recipe after each, and write the last model.

    After round r of R, r / R of the parts to remove are removed; vocabulary and listed layers are pruned in round 1.
    Importance is computed on the recipe's training data, with the model of the previous round.

    Args:
        model_dir: a model directory; for a fine-tuning recipe, saved with the head of its task.
        out: a new or empty directory for the last model, or the one that the same call has written.
        pruning: what to remove in all rounds.
        recipe: a recipe; its `init_from` and `tokenizer` are replaced.
        workdir: a local or `gs://` directory; the same arguments resume a killed call.
        rounds: the number of rounds.
        examples: the maximum number of examples from which importance is computed.
        progress: as for `train`.

    Returns:
        The last model and the metrics of its training.

    Raises:
        InputError: as `prune` and `train`, or the work directory belongs to other settings.
    """
    root = storage.Path(workdir)
    if rounds < 1:
        raise InputError(f"--rounds: expected at least 1, found {rounds}")
    if examples < 1:
        raise InputError(f"--examples: expected at least 1, found {examples}")
    if pruning.vocabulary and recipes.is_pretraining(recipe):
        raise InputError("--vocabulary: expected a fine-tuning recipe, found one whose prepared data has the old ids")
    if recipe.quantization.mode:
        raise InputError(f"config.quantization.mode: expected none in recovery training, found "
                         f"{recipe.quantization.mode!r}; prune first, then quantize")  # fmt: skip
    recipes.resolve(starting_from(recipe, model_dir))
    with open_model(str(model_dir), None, "") as opened:
        original = opened.model.config
    pruning.sizes(original)
    last = Workdir(root / f"round-{rounds}" / "run")
    is_written = last.is_finished and _has_files_of(storage.Path(out), last.model)
    if not is_written:
        storage.new_directory(out)
    root.mkdir(parents=True, exist_ok=True)
    with storage.claimed(root, f"{root}: another pruning is under way there; use another --workdir"):
        _check_settings(root, model_dir, pruning, recipe, rounds, examples)
        source, results = storage.Path(model_dir), Results()
        for number in range(1, rounds + 1):
            folder = root / f"round-{number}"
            _prune_once(source, folder / "pruned", pruning, recipe, number, rounds, original, examples)
            results = train(starting_from(recipe, folder / "pruned"), folder / "run", progress=progress)
            source = Workdir(folder / "run").model
        model, loaded = pruned.open_for_pruning(source)
        if not is_written:
            pruned.write_pruned(out, model, loaded)
    return model, results


def _has_files_of(out: storage.Path, model: storage.Path) -> bool:
    """Return whether the pruning has ended: `out` has the last round's files, except perhaps the model card."""
    ours, theirs = ({file.relative_to(folder) for file in folder.files_below()} for folder in (out, model))
    if ours != {name for name in theirs if str(name) != "README.md"}:
        return False
    return all((out / name).read_bytes() == (model / name).read_bytes() for name in ours)


def _prune_once(
    source: storage.Path,
    out: storage.Path,
    pruning: Pruning,
    recipe: recipes.Recipe,
    number: int,
    rounds: int,
    original: Any,
    examples: int,
) -> None:
    """Write the pruned model of a round, unless it is there already."""
    storage.remove_incomplete(out)
    if (out / "config.json").exists():
        return
    sizes = pruning.sizes(original, number / rounds)
    model, loaded = pruned.open_for_pruning(source)
    if pruning.vocabulary and number == 1:
        model = pruned.without_unused_pieces(model, loaded, pruning.vocabulary)
    importance = None
    if pruning.needs_examples:
        importance = pruned.importance_of(examples_of_recipe(recipe, source, examples))
    layers = pruning.layers if number == 1 else ()
    pruned.write_pruned(out, pruned.without_parts(model, sizes, importance, layers), loaded)


def _check_settings(
    root: storage.Path, model_dir: Any, pruning: Pruning, recipe: recipes.Recipe, rounds: int, examples: int
) -> None:
    """Write the settings of a work directory, or compare them with those of the call that is resumed."""
    settings: dict[str, Any] = {"model": str(model_dir), "rounds": rounds, "examples": examples}
    settings |= json.loads(json.dumps(dataclasses.asdict(pruning)))
    described, path = recipe.to_dict(), root / SETTINGS
    if not path.exists():
        content = {"settings": settings, "recipe": described}
        storage.write_atomically(path, json.dumps(content, indent=2, sort_keys=True) + "\n")
        return
    before = storage.read_json(path)
    if not isinstance(before.get("settings"), dict) or not isinstance(before.get("recipe"), dict):
        raise InputError(f"{path}: expected the settings of a pruning, found something else")
    old = before["settings"]
    differences = [
        f"{key} was {old.get(key)!r}, is now {value!r}" for key, value in settings.items() if old.get(key) != value
    ]
    differences += resuming.differences(before["recipe"], described, has_content=True)
    if differences:
        raise InputError(f"{root} belongs to another pruning: {'; '.join(differences[:4])}; use another --workdir")
