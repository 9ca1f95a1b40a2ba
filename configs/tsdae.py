r"""Sentence embeddings from texts without labels: a decoder reconstructs a text from its vector (TSDAE).

    bert-jax finetune --config tsdae:sentences.txt --workdir runs/tsdae --config.init_from=path/to/bert

The argument is a text file with a text in each line, or a table with the column `text`.

Wang et al. 2021 (arXiv:2104.06979), section 4: batches of 8, a constant learning rate of 3e-5, deletion of 60% of
the tokens, and the vector of [CLS].
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(texts: str = "sentences.txt") -> ConfigDict:
    """The recipe."""
    c = recipes.sentence_embedding()
    c.global_batch_size, c.eval_batch_size = 8, 256
    c.num_epochs = 1.0
    c.optimizer.learning_rate = 3e-5
    c.optimizer.schedule = "constant"
    c.optimizer.warmup_ratio = 0.0
    c.optimizer.weight_decay = 0.0
    c.optimizer.bias_correction = True
    c.model.pooling = "cls"
    c.data.train, c.data.train_columns = texts, ("text",)
    c.data.loss, c.data.deletion = "tsdae", 0.6
    c.data.max_seq_length = 128
    return c
