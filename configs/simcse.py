r"""Sentence embeddings from texts without labels: a text's positive is itself under other dropout (SimCSE).

    bert-jax finetune --config simcse:sentences.txt --workdir runs/simcse --config.init_from=path/to/bert

The argument is a text file with a text in each line, or a table with the column `text`.

Gao et al. 2021 (arXiv:2104.08821), section 3 and appendix A: a million sentences, batches of 64, a learning rate of
3e-5 for BERT-base, 32 tokens, the vector of [CLS], and a temperature of 0.05.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(texts: str = "sentences.txt") -> ConfigDict:
    """The recipe."""
    c = recipes.sentence_embedding()
    c.global_batch_size, c.eval_batch_size = 64, 256
    c.num_epochs = 1.0
    c.optimizer.learning_rate = 3e-5
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.model.pooling = "cls"
    c.data.train, c.data.train_columns = texts, ("text",)
    c.data.loss, c.data.scale = "simcse", 20.0
    c.data.max_seq_length = 32
    return c
