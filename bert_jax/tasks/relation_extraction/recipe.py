"""The recipe of relation extraction."""

from bert_jax.recipes.base import Key, ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import FINE_TUNING_KEYS, fine_tuning, max_seq_length, training_data
from bert_jax.tasks.relation_extraction.markers import MARKERS

KEYS = FINE_TUNING_KEYS | {
    "data.train": training_data("training data: JSON of TACRED or DocRED, or JSON lines of text, head, tail and label"),
    "data.markers": Key("typed_entity_marker_punct", "markers of the two entities (docs/relation_extraction.md); those "
                        "without _punct add tokens to the vocabulary", tuple(MARKERS)),
    "data.null_label": Key("", "class of pairs without a relation, left out of f1; empty = no_relation or NA, if the "
                           "data has it"),
    "data.null_ratio": Key(0.0, "maximum number of training pairs without a relation per pair with one; 0 = all",
                           least=0),
    "data.multi_label": Key(False, "whether a pair may have several relations, as in DocRED"),
    "data.metrics": Key((), "metrics of evaluation: any of f1, precision, recall, accuracy, types (f1 of each "
                        "relation); () = all but types"),
    "data.max_seq_length": max_seq_length(128, "maximum number of tokens in an example; longer texts are cut around "
                                          "the entities", least=8),
}  # fmt: skip

RECIPE = TaskRecipe(
    "relation extraction: texts with two entities and the relation between them",
    build="bert_jax.tasks.relation_extraction.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=32, epochs=5.0, learning_rate=3e-5),
    use=ModelUse(
        "text-classification",
        "relation-extraction",
        '{"text": "Ada lived in London.", "head": (0, 3), "tail": (13, 19)}',
    ),
    synthetic_rows="bert_jax.tasks.relation_extraction.task.synthetic_rows",
)
