"""The recipe of classification."""

from ml_collections import ConfigDict

from bert_jax.data.finetuning.features import LONG_TEXTS
from bert_jax.data.finetuning.labels import MISSING_RULES, NEAR_DUPLICATE_RULES
from bert_jax.errors import InputError
from bert_jax.metrics import metric_names
from bert_jax.recipes.base import CONTENT, Key, ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import (
    DOC_STRIDE,
    FINE_TUNING_KEYS,
    HAS_HEADER,
    PACKING,
    TABLE_KEYS,
    fine_tuning,
    label_column,
    label_smoothing,
    pair_column,
    text_column,
)

KEYS = FINE_TUNING_KEYS | TABLE_KEYS | {
    "label_smoothing": label_smoothing("fraction of the label's probability that is spread evenly over all classes"),
    "r_drop": Key(0.0, "R-Drop: weight of the divergence between two passes with different dropout; 0 = one pass",
                  least=0),
    "data.task_type": Key("classification", "type of labels: classification = one class per text, multi_label = any "
                          "number of classes, regression = a number", ("classification", "multi_label", "regression"),
                          synonyms="problem_type is_regression"),
    "data.label_separator": Key(",", "separator of several labels in a cell (multi_label); JSON lines may have lists",
                                may_change=CONTENT),
    "data.label_names": Key((), "names of the classes in order, so that labels may be numbers; () = the labels in the "
                            "data"),
    "data.near_duplicate_labels": Key("keep", "labels that differ only in case, spaces, quotes or the spelling of a "
                                      "number: keep = separate classes, with a warning; merge = one class",
                                      NEAR_DUPLICATE_RULES, former="data.label_twins"),
    "data.missing_labels": Key("keep", "labels that are empty, '-', 'nan' or the like: keep = empty ones are invalid, "
                               "the others a class, with a warning; drop = skip these rows", MISSING_RULES),
    "data.class_weights": Key("", "weights of classes in the loss: balanced = inverse to their frequency; empty = "
                              "equal", ("", "balanced"), synonyms="class_weight weights pos_weight"),
    "data.text_column": text_column("sentence", "column of the text"),
    "data.pair_column": pair_column("", "column of the second text of a pair; empty = single texts"),
    "data.label_column": label_column("label", "column of the label"),
    "data.has_header": HAS_HEADER,
    "data.metrics": Key((), f"metrics of evaluation: any of {metric_names('two_classes', 'label_sets', 'numbers')}; () "
                        "= chosen by the task type"),
    "data.long_texts": Key("cut", "single texts over max_seq_length: cut, or split into windows whose logits are "
                           "averaged", LONG_TEXTS),
    "data.doc_stride": Key(0, f"{DOC_STRIDE}; 0 = half a window", least=0),
    "data.packing": PACKING,
    "data.token_dropout": Key(0.0, "fraction of input tokens that a training step replaces with [MASK]", least=0,
                              below=1),
}  # fmt: skip


def check(c: ConfigDict) -> None:
    """Raise InputError when settings do not fit the type of the labels or a teacher."""
    kind = c.data.task_type
    if kind != "classification" and c.data.class_weights:
        raise InputError(f"config.data.class_weights: expected '' for this task_type, found {c.data.class_weights!r}")
    if c.label_smoothing and kind != "classification":
        raise InputError(f"config.label_smoothing: expected 0 for {kind}, found {c.label_smoothing}")
    if kind == "multi_label" and not c.data.label_separator:
        raise InputError("config.data.label_separator: expected the separator of labels, found none")
    if c.distillation.teacher and c.r_drop:
        raise InputError(f"config.r_drop: expected 0 with distillation, found {c.r_drop}")
    if c.distillation.teacher and c.distillation.cache and c.data.long_texts == "windows":
        raise InputError("config.data.long_texts: expected cut with config.distillation.cache, found windows")


RECIPE = TaskRecipe(
    "sequence classification or regression (`data.task_type`) on single texts or pairs",
    build="bert_jax.tasks.classification.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=32, epochs=3.0, learning_rate=3e-5),
    check=check,
    teacher_cache=True,
    use=ModelUse("text-classification", "text-classification", '"A text to classify."'),
    synthetic_rows="bert_jax.tasks.classification.synthetic.synthetic_rows",
)
