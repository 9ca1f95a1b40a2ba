"""The recipe of multiple choice."""

from bert_jax.recipes.base import ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import (
    FINE_TUNING_KEYS,
    HAS_HEADER,
    TABLE_KEYS,
    column,
    fine_tuning,
    label_column,
    max_seq_length,
)

KEYS = (
    FINE_TUNING_KEYS
    | TABLE_KEYS
    | {
        "data.context_column": column("context", "column of the context"),
        "data.question_column": column("", "column of a text that is put before every choice; empty = none"),
        "data.choice_columns": column(
            ("choices",), "columns with one choice each, or one column of lists (JSON lines, TFDS)"
        ),
        "data.label_column": label_column(
            "label", "column of the right choice: its number from 0, or its letter from A"
        ),
        "data.has_header": HAS_HEADER,
        "data.max_seq_length": max_seq_length(
            128, "maximum number of tokens in a context with a choice; longer texts are cut", least=3
        ),
    }
)

RECIPE = TaskRecipe(
    "multiple choice: questions with several choices, one of them right",
    build="bert_jax.tasks.multiple_choice.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=16, epochs=3.0, learning_rate=2e-5),
    use=ModelUse(
        inputs='{name: array[None] for name, array in {tokenizer}(["A question."] * 2, ["An answer.", "Another '
        'answer."]{options}).items()}'
    ),
    synthetic_rows="bert_jax.tasks.multiple_choice.task.synthetic_rows",
)
