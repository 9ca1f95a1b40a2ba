"""Set up a task from a recipe: model, tokenizer, initial weights, and checks of the data."""

import math
import operator
from typing import TYPE_CHECKING

from bert_jax.config import BertConfig
from bert_jax.config.parts import declared_settings
from bert_jax.conversion.model_tokenizer import check_vocabulary
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES
from bert_jax.jobs.teaching import distillation_of
from bert_jax.modeling import Bert, Compute
from bert_jax.recipes import Recipe, model_config
from bert_jax.tokenization import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from bert_jax.conversion.load_pretrained import Loaded

MAX_STEPS = 2**31 - 1  # the step of a state is an int32


def compute(recipe: Recipe) -> Compute:
    """Return the compute options of a resolved recipe."""
    names = ("dtype", "layers", "remat", "attention", "reduce_dtype")
    return Compute(**{name: getattr(recipe, name) for name in names})


def pretrained(recipe: Recipe, head: str) -> "Loaded | None":
    """Load the model of `init_from` with `head` (initialised if the files lack it), or take layers of a teacher.

    Returns:
        The model, or None if neither `init_from` nor `distillation.student_layers` is set.
    """
    distilled = distillation_of(recipe)
    if distilled and distilled.student_layers:
        if recipe.init_from:
            raise InputError("config.distillation.student_layers: expected none with init_from, found both")
        from bert_jax.jobs.distillation.teachers import student_from_layers

        return student_from_layers(distilled, head)
    if not recipe.init_from:
        return None
    from bert_jax.conversion.load_pretrained import load_pretrained

    return load_pretrained(recipe.init_from, head, dequantize=True)


def heads(recipe: Recipe) -> tuple[str, ...]:
    """Return the heads that the family of a recipe's model has."""
    family = recipe.model.family
    if family is None and recipe.init_from:
        from bert_jax.conversion.load_pretrained import load_pretrained

        family = load_pretrained(recipe.init_from, "encoder").config.family
    return tuple(FAMILIES[family or "bert"].names.architectures)


def check_head(config: BertConfig, head: str, hint: str = "") -> None:
    """Raise InputError when the model's family lacks the head, or the quantization does not fit the model.

    A trained model without a head of its family could not be saved; `hint` says how to do without the head.
    """
    if FAMILIES[config.family].names.architecture_of(head) is None:
        raise InputError(f"config.model.family: expected a family with head {head!r}, found {config.family!r}{hint}")
    if config.quantization is not None:
        Bert(config, head).abstract_params()  # raises if the head does not fit the config


def _check_layer_settings(recipe: Recipe, config: BertConfig) -> None:
    """Raise InputError when a setting counts layers and the model has experts, that is, two stacks of layers."""
    settings = {"optimizer.frozen_layers": 0, "optimizer.layer_decay": 1.0, "reinit_layers": 0}
    for key, expected in settings.items() if any(config.has_experts) else ():
        value = operator.attrgetter(key)(recipe)
        if value != expected:
            raise InputError(f"config.{key}: expected {expected} for a model with experts, found {value}")


def tokenizer(recipe: Recipe, data: str = "", loaded: "Loaded | None" = None) -> Tokenizer:
    """Load the tokenizer of a recipe: its own, that of directory `data`, of the loaded model, or of the teacher."""
    distilled = distillation_of(recipe)
    if isinstance(recipe.tokenizer, Tokenizer):  # the tokenizer of synthetic rows
        return recipe.tokenizer
    place = recipe.tokenizer or data or (loaded.directory if loaded else "")
    if not place and (recipe.init_from or distilled):
        from bert_jax.jobs.distillation.teachers import tokenizer_of_model

        return tokenizer_of_model(recipe.init_from or recipe.distillation.teacher)
    if not place:
        raise InputError("config.tokenizer: expected a tokenizer, or a model in config.init_from, found neither")
    result = load_tokenizer(place)
    return loaded.settings.tokenizer(result) if loaded is not None and place == loaded.directory else result


def config(recipe: Recipe, tokenizer: Tokenizer, loaded: "Loaded | None") -> BertConfig:
    """Return the architecture of a recipe: that of `loaded` or `model.size`, changed by the other `model` fields.

    Raises:
        InputError: the fields do not fit together, the vocabulary does not fit the word embedding, or the fields change
            the shapes of the parameters of `loaded`.
    """
    sizes = {} if loaded or recipe.model.vocab_size else {"vocab_size": tokenizer.vocab_size}
    ids = {"pad_token_id": tokenizer.pad_id}
    if "sep_token_id" in FAMILIES[recipe.model.family or (loaded.config.family if loaded else "bert")].keys:
        ids["sep_token_id"] = tokenizer.sep_id
    config = model_config(recipe, loaded.config if loaded else None, **ids, **sizes)
    if config.setting("token_dropout") and config.setting("mask_token_id") != tokenizer.mask_id:
        if loaded:
            raise InputError(
                f"config.tokenizer: expected the mask token to have id {config.setting('mask_token_id')}, as "
                f"mask_token_id of the model says, found {tokenizer.mask_id}"
            )
        config = config.replace(mask_token_id=tokenizer.mask_id)
    check_vocabulary(tokenizer, config, recipe.tokenizer or recipe.init_from or "config.model.vocab_size")
    if loaded:
        _check_shapes(loaded, config)
    _check_layer_settings(recipe, config)
    config.to_hf()  # raises an error now instead of when the trained model is saved
    return config


def _check_shapes(loaded: "Loaded", config: BertConfig) -> None:
    """Raise InputError when a recipe changes the shapes or the meaning of the parameters of init_from."""
    settings_before, settings_after = loaded.config.settings(), config.settings()
    for name in (name for name, declared in declared_settings(BertConfig).items() if declared.shapes):
        before, after = settings_before.get(name), settings_after.get(name)
        if before != after:
            raise InputError(f"config.model.{name}: expected {before}, as in the model of init_from, found {after}")


def check_length(length: int, config: BertConfig, key: str) -> None:
    """Raise InputError when sequences of `length` tokens, set by recipe key `key`, exceed the model's positions."""
    if length > config.max_position_embeddings:
        raise InputError(
            f"{key}: expected at most the model's {config.max_position_embeddings} positions "
            f"(max_position_embeddings), found {length}"
        )


def check_room(config: BertConfig, longest: int, what: str) -> None:
    """Raise InputError when `max_global_tokens` is less than `longest`, the number of tokens in `what`."""
    if 0 < config.setting("max_global_tokens", 0) < longest:
        raise InputError(
            f"config.model.max_global_tokens: expected at least {longest}, the length of {what}, "
            f"found {config.setting('max_global_tokens', 0)}"
        )


def steps_of_epochs(epochs: float, steps_per_epoch: float) -> int:
    """Return the number of steps in `epochs` passes over the data. Raises InputError above 2^31 - 1 steps."""
    steps = epochs * steps_per_epoch
    if not steps < MAX_STEPS:
        most = MAX_STEPS / steps_per_epoch
        raise InputError(
            f"config.num_epochs: expected fewer than {most:.4g}, as the limit is 2^31 steps, found {epochs:g}"
        )
    return math.ceil(steps)
