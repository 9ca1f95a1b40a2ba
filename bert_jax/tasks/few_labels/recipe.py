"""The recipe of text classification from few labels."""

from ml_collections import ConfigDict

from bert_jax.data.finetuning.labels import MISSING_RULES, NEAR_DUPLICATE_RULES
from bert_jax.errors import InputError
from bert_jax.metrics import metric_names
from bert_jax.recipes.base import Key, ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import (
    FINE_TUNING_KEYS,
    HAS_HEADER,
    TABLE_KEYS,
    fine_tuning,
    label_column,
    text_column,
)

KEYS = FINE_TUNING_KEYS | TABLE_KEYS | {
    "data.has_header": HAS_HEADER,
    "data.text_column": text_column("sentence", "column of the text"),
    "data.label_column": label_column("label", "column of the class"),
    "data.label_names": Key((), "names of the classes in order, so that labels may be numbers; () = the labels in the "
                            "data"),
    "data.near_duplicate_labels": Key("keep", "labels that differ only in case, spaces, quotes or the spelling of a "
                                      "number: keep = separate classes, with a warning; merge = one class",
                                      NEAR_DUPLICATE_RULES),
    "data.missing_labels": Key("keep", "labels that are empty, '-', 'nan' or the like: keep = empty ones are invalid, "
                               "the others a class, with a warning; drop = skip these rows", MISSING_RULES),
    "data.pairs_per_text": Key(20, "number of pairs of a text with texts of its class, and of pairs with texts of "
                               "other classes, in an epoch", least=1, synonyms="num_iterations"),
    "data.regularization_c": Key(1.0, "C of the logistic regression: the smaller, the stronger its L2 regularization",
                                 above=0, synonyms="inverse_regularization"),
    "data.metrics": Key((), f"metrics of evaluation: any of {metric_names('two_classes')}; () = accuracy and F1"),
}  # fmt: skip


def check(c: ConfigDict) -> None:
    """Raise InputError when a key is set that few labels do not have."""
    for name, value in (("distillation.teacher", c.distillation.teacher), ("quantization.mode", c.quantization.mode),
                        ("keep_head", c.keep_head)):  # fmt: skip
        if value:
            raise InputError(f"config.{name}: expected none for few_labels, found {value}")


RECIPE = TaskRecipe(
    "text classification from few labels: an embedding that pairs of texts train, and a logistic regression over it",
    build="bert_jax.tasks.few_labels.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=16, epochs=1.0, learning_rate=2e-5),
    check=check,
    use=ModelUse("text-classification", "text-classification", '"A text to classify."'),
    synthetic_rows="bert_jax.tasks.few_labels.task.synthetic_rows",
)
