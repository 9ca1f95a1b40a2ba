"""The recipe of several tasks on one encoder."""

from bert_jax.recipes.base import TaskRecipe
from bert_jax.recipes.data_sets import SET_KEYS
from bert_jax.recipes.shared_keys import FINE_TUNING_KEYS, TABLE_KEYS, fine_tuning

TASKS_OF_SETS = ("classification", "token_classification", "sentence_embedding", "reranking", "question_answering")

RECIPE = TaskRecipe(
    "several tasks on one encoder, each with its own data set and head",
    build="bert_jax.tasks.multi_task.task.build",
    keys=FINE_TUNING_KEYS | TABLE_KEYS | SET_KEYS,
    defaults=fine_tuning(batch_size=32, epochs=3.0, learning_rate=3e-5),
    tasks_of_sets=TASKS_OF_SETS,
)
