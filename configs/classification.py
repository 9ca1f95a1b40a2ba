r"""Fine-tuning on the sentences of a table, for classes or a number, with values from the middle of BERT's ranges.

    bert-jax finetune --config classification --workdir runs/reviews --config.init_from=path/to/bert \
        --config.data.train=train.csv --config.data.dev=dev.csv --config.data.text_column=review
    bert-jax finetune --config classification:cola,path/to/CoLA --workdir runs/cola \
        --config.init_from=path/to/bert

The argument is a task of GLUE and the directory of its files: cola, mnli, mrpc, qnli, qqp, rte, sst2, stsb or wnli.
Without it, the keys of `data` name files and columns. Columns of a table without a header are numbered from 0:
--config.data.has_header=false --config.data.text_column=3. For pairs of texts set data.pair_column; for numbers,
data.task_type=regression.

Devlin et al. 2018 (arXiv:1810.04805), section 4.1 and appendix A.3; Wang et al. 2018 (arXiv:1804.07461), table 1.
"""

from ml_collections import ConfigDict

from bert_jax import recipes
from bert_jax.errors import InputError, did_you_mean

# Task -> columns (text, pair, label) in GLUE's own files, the metrics that are reported for it, and the dev file.
GLUE = {
    "cola": (("3", "", "1"), ("matthews",), "dev.tsv"),
    "mnli": (("sentence1", "sentence2", "gold_label"), ("accuracy",), "dev_matched.tsv"),
    "mrpc": (("#1 String", "#2 String", "Quality"), ("f1", "accuracy"), "dev.tsv"),
    "qnli": (("question", "sentence", "label"), ("accuracy",), "dev.tsv"),
    "qqp": (("question1", "question2", "is_duplicate"), ("f1", "accuracy"), "dev.tsv"),
    "rte": (("sentence1", "sentence2", "label"), ("accuracy",), "dev.tsv"),
    "sst2": (("sentence", "", "label"), ("accuracy",), "dev.tsv"),
    "stsb": (("sentence1", "sentence2", "score"), ("pearson", "spearman"), "dev.tsv"),
    "wnli": (("sentence1", "sentence2", "label"), ("accuracy",), "dev.tsv"),
}


def get_config(task: str = "") -> ConfigDict:
    """The recipe, for `NAME,DIRECTORY` of GLUE or for data that other keys name."""
    c = recipes.classification()
    c.global_batch_size = 32
    c.num_epochs = 3.0
    c.optimizer.learning_rate = 3e-5
    c.optimizer.warmup_ratio = 0.1
    c.data.max_seq_length = 128
    if task:
        _glue(c, *task.partition(",")[::2])
    return c


def _glue(c: ConfigDict, name: str, directory: str) -> None:
    if name not in GLUE or not directory:
        hint = did_you_mean(name, GLUE) if name not in GLUE else " without a comma and the directory of its files"
        raise InputError(f"classification: expected a task of GLUE, found {name!r}{hint}")
    (c.data.text_column, c.data.pair_column, c.data.label_column), c.data.metrics, dev = GLUE[name]
    c.data.has_header = name != "cola"
    c.data.task_type = "regression" if name == "stsb" else "classification"
    c.data.train, c.data.dev = f"{directory}/train.tsv", f"{directory}/{dev}"
