"""The recipe of masked diffusion."""

from bert_jax.data.diffusion import NOISE_SCHEDULES, NOISE_WEIGHTINGS
from bert_jax.recipes.base import Key, ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import (
    FINE_TUNING_KEYS,
    HAS_HEADER,
    PACKING,
    TABLE_KEYS,
    column,
    fine_tuning,
    max_seq_length,
    text_column,
)
from bert_jax.tasks.masked_diffusion.data import ANSWER_FILLS

NOISE_SCHEDULE = Key("linear", "distribution of the share of masked tokens: linear = uniform; cosine, quadratic = low "
                      "shares more often", NOISE_SCHEDULES)  # fmt: skip
NOISE_WEIGHTING = Key("bound", "weights of masked tokens: bound = the loss is the bound of the negative "
                       "log-likelihood; equal = 1", NOISE_WEIGHTINGS)  # fmt: skip
KEYS = FINE_TUNING_KEYS | TABLE_KEYS | {
    "data.text_column": text_column("", "column of the prompt, which is never masked; empty = no prompt"),
    "data.answer_column": column("", "column of the answer, the text to generate"),
    "data.messages_column": column("", "instead of prompt and answer, in JSON: column of conversations, lists of role "
                                   "and content; messages of the assistant are answers"),
    "data.has_header": HAS_HEADER,
    "data.max_seq_length": max_seq_length(256, "maximum number of tokens in a row; longer prompts are cut, "
                                          "conversations at their beginning", least=8),
    "data.answer_length": Key(64, "maximum number of tokens in an answer, end-of-text tokens included; longer answers "
                              "are cut", least=2),
    "data.answer_fill": Key("random", "end-of-text tokens behind an answer: full = fill it up to answer_length tokens; "
                            "random = up to a random length; none = one", ANSWER_FILLS),
    "data.noise_schedule": NOISE_SCHEDULE,
    "data.noise_weighting": NOISE_WEIGHTING,
    "data.packing": PACKING,
}  # fmt: skip

RECIPE = TaskRecipe(
    "masked diffusion: generate answers to prompts, or texts without prompts",
    build="bert_jax.tasks.masked_diffusion.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=32, epochs=10.0, learning_rate=1e-4),
    use=ModelUse("text-generation", "text-generation", '"A prompt."'),
    synthetic_rows="bert_jax.tasks.masked_diffusion.task.synthetic_rows",
)
