r"""Fine-tuning on the sentences of a table, for classes: the middle of the paper's ranges.

    bert-jax finetune --config configs/classification.py --workdir runs/sst2 --config.init_from=path/to/bert \
        --config.data.train=SST-2/train.tsv --config.data.dev=SST-2/dev.tsv

A table without a header, such as CoLA, numbers its columns: --config.data.has_header=false --config.data.text_column=3
--config.data.label_column=1. For pairs of texts set data.pair_column; for numbers, data.task_type=regression.

Devlin et al. 2018 (arXiv:1810.04805), section 4.1 and appendix A.3.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config() -> ConfigDict:
    """The recipe."""
    c = recipes.classification()
    c.global_batch_size = 32
    c.num_epochs = 3.0
    c.optimizer.learning_rate = 3e-5
    c.optimizer.warmup_ratio = 0.1
    c.data.max_seq_length = 128
    return c
