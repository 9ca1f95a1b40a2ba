"""Open the prepared data of each stage of a pretraining recipe."""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax import recipes
from bert_jax.config import BertConfig
from bert_jax.data.pretraining.manifest import TOKENIZER_DIR, Manifest
from bert_jax.data.pretraining.sources import PretrainingEvalSource, PretrainingSource, RepeatedRow
from bert_jax.data.pretraining.stages import StagedSource, check_agreement
from bert_jax.errors import InputError
from bert_jax.jobs import fingerprints, setup
from bert_jax.jobs.synthetic_rows import has_synthetic_rows, rows_in_memory
from bert_jax.tokenization import Tokenizer

if TYPE_CHECKING:
    from bert_jax.data.pretraining.mixtures import MixedSource


@dataclasses.dataclass(frozen=True)
class PretrainingData:
    """The prepared directories that a recipe names, checked to agree with each other.

    Attributes:
        recipe: the resolved recipe.
        directories: the directories of each stage; a mixture has several. () for synthetic rows.
        objective: nsp, sop or mlm (`bert_jax.data.pretraining.instances`).
        tokenizer: the recipe's tokenizer, or that of the data.
    """

    recipe: recipes.Recipe
    directories: tuple[tuple[str, ...], ...]
    objective: str
    tokenizer: Tokenizer

    @classmethod
    def of(cls, recipe: recipes.Recipe) -> "PretrainingData":
        """Open the data of a resolved recipe. Raises InputError when they are missing or inconsistent."""
        if has_synthetic_rows(recipe):
            objective = "nsp" if "next_sentence_labels" in rows_in_memory(recipe)[0] else "mlm"
            return cls(recipe, (), objective, setup.tokenizer(recipe))
        directories = tuple(_prepared(recipe, length) for _, length, _ in recipes.stages(recipe))
        manifests = {directory: Manifest.read(directory) for stage in directories for directory in stage}
        tokenizer = setup.tokenizer(recipe, data=f"{directories[0][0]}/{TOKENIZER_DIR}")
        vocabulary = f"config.tokenizer {recipe.tokenizer!r}" if recipe.tokenizer else ""
        objective = check_agreement(manifests, tokenizer, vocabulary)
        return cls(recipe, directories, objective, tokenizer)

    def fingerprint(self, config: BertConfig) -> dict[str, Any]:
        """Return the fingerprints of the data, for `Job.data`."""
        return fingerprints.of_prepared(self.tokenizer, config, self.directories)

    def train_source(self, config: BertConfig) -> StagedSource:
        """Return the training batches of all stages. Raises InputError when they are too long for the model."""
        recipe, stages = self.recipe, []
        check_lengths(recipe, config)
        if not self.directories:
            stages_and_rows = zip(recipes.stages(recipe), rows_in_memory(recipe), strict=True)
            parts = [(count, RepeatedRow(row, size, self.tokenizer)) for (count, _, size), row in stages_and_rows]
            return StagedSource([(count if recipe.stages else None, source) for count, source in parts])
        for i, (count, length, batch_size) in enumerate(recipes.stages(recipe)):
            # Each stage starts with its first example, so its order and masks need their own seed.
            options = _masking(recipe, recipe.seed + i, config)
            sources = {
                directory: PretrainingSource(directory, "train", length, batch_size, **options)
                for directory in self.directories[i]
            }
            source = _mixed(recipe, i, sources) if recipe.data.mixture else sources[self.directories[i][0]]
            stages.append((count if recipe.stages else None, source))
        return StagedSource(stages)

    def eval_source(self, config: BertConfig) -> PretrainingEvalSource | None:
        """Return the held-out batches, with one sequence length for the whole run so that losses are comparable."""
        if not self.directories:
            return None
        recipe = self.recipe
        length = recipe.data.eval_sequence_length or max(recipes.stages(recipe))[1]
        setup.check_length(length, config, "config.data.eval_sequence_length")
        directories = [each for each in _prepared(recipe, length) if Manifest.read(each).lengths("validation")]
        if not directories:
            return None
        most = recipe.data.eval_batches * recipe.eval_batch_size or None
        options = _masking(recipe, recipe.seed, config, evaluated=True)
        return PretrainingEvalSource(
            directories, "validation", length, recipe.eval_batch_size, max_examples=most, **options
        )


def describe_mixtures(data: PretrainingData, source: StagedSource, steps: int) -> tuple[str, ...]:
    """Return a line for the mixture of each stage: the share of each directory, and its epochs in the stage."""
    lines = []
    part: Any
    for number, (count, part) in enumerate(source.stages, 1):
        if mixture := getattr(part, "mixture", None):
            columns = data.directories[number - 1], mixture.shares, part.epochs(count or steps)
            parts = (f"{name} {share:.1%} ({epochs:.3g} epochs)" for name, share, epochs in zip(*columns, strict=True))
            lines.append(f"mixture of stage {number}: {', '.join(parts)}")
    return tuple(lines)


def _mixed(recipe: recipes.Recipe, stage: int, sources: Mapping[str, PretrainingSource]) -> "MixedSource":
    """Return the mixture of a stage, with the weights that the recipe gives."""
    from bert_jax.data.pretraining.mixtures import MixedSource

    data, sizes = recipe.data, np.array([source.num_examples for source in sources.values()], float)
    if weights := data.mixture_weights:
        return MixedSource(sources, weights[stage] if isinstance(weights[0], tuple) else weights)
    if data.mixture_epochs:
        weights = sizes * data.mixture_epochs
        return MixedSource(sources, weights, num_examples=round(weights.sum()))
    return MixedSource(sources, (sizes / sizes.max()) ** (1 / data.mixture_temperature))


def num_steps(recipe: recipes.Recipe, source: StagedSource) -> int:
    """Return the optimizer steps of a run, from num_steps or from num_epochs."""
    per_epoch = source.first().num_examples / recipe.global_batch_size
    return recipe.num_steps or setup.steps_of_epochs(recipe.num_epochs, per_epoch)


def check_lengths(recipe: recipes.Recipe, config: BertConfig) -> None:
    """Raise InputError when the sequences of a stage exceed the model's positions."""
    for _, length, _ in recipes.stages(recipe):
        setup.check_length(length, config, "config.stages" if recipe.stages else "config.data.sequence_length")


def unpacked_rows(recipe: recipes.Recipe, pairs: bool = False) -> list[dict[str, Any]]:
    """Return one unpacked row of zeros per stage, with the arrays of a `PreparedInstances` batch.

    Args:
        recipe: the resolved recipe.
        pairs: whether rows have sentence-pair labels.
    """
    data, rows = recipe.data, []
    for _, length, _ in recipes.stages(recipe):
        noisy = "noise_schedule" in data
        slots = length if noisy else data.max_predictions or math.ceil(data.mask_prob * length)
        rows.append({
            **dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), [0] * length),
            **dict.fromkeys(("masked_positions", "masked_labels"), [0] * slots),
            "masked_weights": [0.0] * slots,
            "example_weights": 0.0,
            **({"next_sentence_labels": 0} if pairs else {}),
            **({"target_counts": 0.0} if noisy else {}),
        })  # fmt: skip
    return rows


def has_data(recipe: recipes.Recipe) -> bool:
    """Return whether a recipe names prepared directories."""
    return bool(recipe.data.prepared or recipe.data.mixture)


def _prepared(recipe: recipes.Recipe, length: int) -> tuple[str, ...]:
    """Return the prepared directories of a stage with sequences of `length` tokens."""
    if not has_data(recipe):
        raise InputError("config.data.prepared: expected a directory made by `bert-jax prepare`, found nothing")
    directories = recipe.data.mixture or (recipe.data.prepared,)
    return tuple(directory.replace("{sequence_length}", str(length)) for directory in directories)


def _masking(recipe: recipes.Recipe, seed: int, config: BertConfig, evaluated: bool = False) -> dict[str, Any]:
    data = recipe.data
    if "noise_schedule" in data:
        from bert_jax.data.diffusion import EVALUATION

        noise = EVALUATION if evaluated else (data.noise_schedule, data.noise_weighting)
        return {"noise": noise, "static_masks": data.static_masks, "seed": seed, "config": config}
    return {
        "max_predictions": data.max_predictions or None,
        "mask_prob": data.mask_prob,
        "mask_unit": data.mask_unit,
        "mask_replace_prob": data.mask_replace_prob,
        "random_replace_prob": data.random_replace_prob,
        "static_masks": data.static_masks,
        "seed": seed,
        "config": config,
    }
