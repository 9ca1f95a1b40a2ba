r"""Several tasks on one encoder, each with a head of its own; the model of each head is a directory that PyTorch opens.

    bert-jax finetune --config multi_task --workdir runs/several --config.init_from=path/to/bert \
        --config.data.sets.reviews.task=classification --config.data.sets.reviews.train=train.csv \
        --config.data.sets.reviews.text_column=review \
        --config.data.sets.names.task=token_classification \
        --config.data.sets.names.train=path/to/conll2003/train.txt

A set has the keys of `data` of its task. docs/multi_task.md describes shares, losses and what is written.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config() -> ConfigDict:
    """The recipe, for the sets that other keys name."""
    c = recipes.multi_task()
    c.global_batch_size = 32
    c.num_epochs = 3.0
    c.optimizer.learning_rate = 3e-5
    c.optimizer.warmup_ratio = 0.1
    return c
