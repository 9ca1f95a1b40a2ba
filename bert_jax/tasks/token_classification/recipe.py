"""The recipe of token classification."""

from bert_jax.recipes.base import Key, ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import (
    FINE_TUNING_KEYS,
    PACKING,
    fine_tuning,
    label_column,
    max_seq_length,
    text_column,
    training_data,
)

KEYS = FINE_TUNING_KEYS | {
    "data.train": training_data(
        "training data: CoNLL (.conll, .txt, .tsv, .iob, .bio), .conllu, .jsonl or tfds:NAME:SPLIT"
    ),
    "data.text_column": text_column(
        "", "column of the words; in CoNLL a number, empty = the first; elsewhere a name, empty = tokens"
    ),
    "data.label_column": label_column(
        "", "column of the tags; in CoNLL a number, empty = the last; elsewhere a name, empty = upos, tags or ner_tags"
    ),
    "data.tag_names": Key((), "names of the tags 0, 1, ... if the data has numbers for tags; () = tags are names"),
    "data.metrics": Key(
        (),
        "metrics of evaluation: any of f1, precision, recall, accuracy, types (f1 of each entity type or tag); "
        "() = all but types",
    ),
    "data.max_seq_length": max_seq_length(
        128, "maximum number of tokens in a sentence; longer sentences become overlapping windows", least=3
    ),
    "data.packing": PACKING,
}

RECIPE = TaskRecipe(
    "token classification: sentences with a tag for each word, such as entities",
    build="bert_jax.tasks.token_classification.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=32, epochs=3.0, learning_rate=5e-5),
    teacher_cache=True,
    use=ModelUse("token-classification", "token-classification", '"A text to tag."'),
    synthetic_rows="bert_jax.tasks.token_classification.task.synthetic_rows",
)
