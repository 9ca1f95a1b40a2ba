r"""Sentence embeddings from texts with classes: texts of a class are nearer to each other than to texts of others.

    bert-jax finetune --config class_embedding:train.csv --workdir runs/classes \
        --config.init_from=path/to/all-MiniLM-L6-v2

The argument is the table, with the columns text and label. A batch has several rows of each of its classes. To classify
texts, use recipe few_labels or classification.

Hermans et al. 2017 (arXiv:1703.07737), section 2: the hardest positive and negative in the batch, with a soft margin.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(table: str = "train.csv") -> ConfigDict:
    """The recipe."""
    c = recipes.sentence_embedding()
    c.global_batch_size, c.eval_batch_size = 32, 256
    c.num_epochs = 3.0
    c.optimizer.learning_rate = 2e-5
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.data.train, c.data.loss = table, "batch_hard_soft_margin_triplet"
    c.data.text_column, c.data.label_column = "text", "label"
    return c
