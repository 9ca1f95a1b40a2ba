"""The recipe of pretraining."""

import math
from typing import Any

from ml_collections import ConfigDict

from bert_jax.errors import InputError
from bert_jax.recipes.base import CONTENT, EVALUATIONS, LENGTH, Key, ModelUse, TaskRecipe

MASK_UNITS = ("token", "word", "span")
_MOST_MIXED = 1000  # maximum number of directories in a mixture

KEYS = {
    "stages": Key((), "((num_steps, sequence_length, global_batch_size), ...): stages that run in turn under one "
                  "learning-rate schedule; () = one stage",
                  may_change=f"{LENGTH}; steps that were done already must stay as they were",
                  synonyms="curriculum phases"),
    "data.prepared": Key("", "directory that `bert-jax prepare` wrote; {sequence_length} in it is replaced by that of "
                         "the stage", may_change=CONTENT, synonyms="data_dir train_dir shards input_file tfrecords"),
    "data.mixture": Key((), "prepared directories that every batch draws from, in place of data.prepared; () = none",
                        may_change=CONTENT),
    "data.mixture_weights": Key((), "weights of the directories of data.mixture, or a tuple of weights for each stage; "
                                "() = see mixture_epochs",
                                may_change="the mixture of stages that have not begun; the others must stay as they "
                                           "were"),
    "data.mixture_epochs": Key((), "number of passes over each directory of data.mixture in an epoch; () = see "
                               "mixture_temperature"),
    "data.mixture_temperature": Key(1.0, "without mixture_weights and mixture_epochs, the weight of a directory is "
                                    "rows ** (1 / mixture_temperature)", above=0),
    "data.sequence_length": Key(128, "tokens in a sequence; below the prepared length, pairs are cut; above it, an "
                                "error", least=8,
                                synonyms="max_length max_len max_seq_len seq_length seq_len max_seq_length maxlen"),
    "data.mask_prob": Key(0.15, "fraction of tokens that are masked, that is, to be predicted", above=0, below=1,
                          synonyms="mlm_probability masked_lm_prob masking_prob mask_ratio mask_rate mlm_prob"),
    "data.max_predictions": Key(0, "maximum number of masked tokens in a sequence; 0 = mask_prob * "
                                "sequence_length", least=0,
                                synonyms="max_predictions_per_seq max_predictions_per_sequence"),
    "data.mask_unit": Key("token", "unit of masking: a token, a whole word or a span of words", MASK_UNITS,
                          synonyms="whole_word_masking wwm do_whole_word_mask mask_strategy"),
    "data.mask_replace_prob": Key(0.8, "fraction of the masked tokens that are replaced by [MASK]", least=0,
                                  former="data.hidden_share"),
    "data.random_replace_prob": Key(0.1, "fraction of the masked tokens that are replaced by a random token; the rest "
                                    "stay as they are", least=0, former="data.random_share"),
    "data.static_masks": Key(0, "number of fixed masks per example, which epochs reuse in turn; 0 = a new mask each "
                             "epoch", least=0),
    "data.eval_batches": Key(0, "number of held-out batches in an evaluation; 0 = all", least=0,
                             may_change=EVALUATIONS),
    "data.eval_sequence_length": Key(0, "sequence length of held-out examples; 0 = that of the stage with the most "
                                     "steps", least=0),
}  # fmt: skip


def check(c: ConfigDict) -> None:
    """Raise InputError when the fractions of masked tokens or the settings of the mixture contradict each other."""
    if "mask_replace_prob" in c.data and c.data.mask_replace_prob + c.data.random_replace_prob > 1:
        raise InputError(
            "config.data: expected mask_replace_prob + random_replace_prob of at most 1, "
            f"found {c.data.mask_replace_prob} + {c.data.random_replace_prob}"
        )
    _check_mixture(c)


def _check_mixture(c: ConfigDict) -> None:
    directories, weights, epochs = c.data.mixture, c.data.mixture_weights, c.data.mixture_epochs
    if not directories:
        for name in ("mixture_weights", "mixture_epochs"):
            if c.data[name]:
                raise InputError(f"config.data.{name}: expected () without data.mixture, found {c.data[name]!r}")
        return
    if c.data.prepared:
        raise InputError("config.data: expected prepared or mixture, found both")
    if not all(isinstance(directory, str) and directory for directory in directories):
        raise InputError(f"config.data.mixture: expected names of directories, found {directories!r}")
    if len(directories) > _MOST_MIXED:
        raise InputError(f"config.data.mixture: expected at most {_MOST_MIXED} directories, found {len(directories)}")
    if len(set(directories)) < len(directories):
        raise InputError(f"config.data.mixture: expected different directories, found {directories!r}")
    if weights and epochs:
        raise InputError("config.data: expected mixture_weights or mixture_epochs, found both")
    by_stage = bool(weights) and all(isinstance(part, tuple) for part in weights)
    if by_stage and len(weights) != max(len(c.stages), 1):
        raise InputError(f"config.data.mixture_weights: expected weights for each of the {len(c.stages)} stages, found "
                         f"{len(weights)}")  # fmt: skip
    for name, numbers in (
        ("mixture_epochs", epochs or None),
        *(("mixture_weights", part) for part in (weights if by_stage else (weights or None,))),
    ):
        if numbers is not None:
            _check_shares(f"config.data.{name}", numbers, len(directories))


def _check_shares(key: str, numbers: tuple[Any, ...], count: int) -> None:
    """Raise InputError unless there are `count` finite numbers of at least 0 whose sum is above 0."""
    valid = all(isinstance(n, (int, float)) and not isinstance(n, bool) and 0 <= n < math.inf for n in numbers)
    if not valid or len(numbers) != count or not sum(numbers):
        raise InputError(f"{key}: expected {count} numbers of at least 0, one for each directory of data.mixture, not "
                         f"all 0, found {numbers!r}")  # fmt: skip


RECIPE = TaskRecipe(
    "masked-LM and next-sentence pretraining, with the paper's values as defaults",
    build="bert_jax.tasks.pretraining.task.build",
    keys=KEYS,
    defaults={"num_steps": 1_000_000, "optimizer.warmup_steps": 10_000},
    check=check,
    pretraining=True,
    use=ModelUse("fill-mask", "fill-mask", '"A text with a {mask} word."'),
    synthetic_rows="bert_jax.tasks.pretraining.task.synthetic_rows",
)
