r"""A retrieval model from queries, passages that answer them, and hard negatives.

    bert-jax mine-negatives path/to/all-MiniLM-L6-v2 --data questions.jsonl --corpus passages.txt --out tuples.jsonl \
        --format n-tuple
    bert-jax finetune --config retrieval:tuples.jsonl --workdir runs/retrieval \
        --config.init_from=path/to/all-MiniLM-L6-v2

The argument is the table, with the columns query, positive, negative_1, negative_2 and negative_3. All passages of the
other rows of a batch are negatives too: the larger the batch, the harder the task. A batch that does not fit in memory
can be split with accumulation_steps.

Karpukhin et al. 2020 (arXiv:2004.04906), section 3.2: in-batch negatives with one hard negative for each query.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(table: str = "tuples.jsonl") -> ConfigDict:
    """The recipe."""
    c = recipes.sentence_embedding()
    c.global_batch_size, c.eval_batch_size = 256, 256
    c.num_epochs = 1.0
    c.optimizer.learning_rate = 2e-5
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.data.train, c.data.validation_split = table, 0.05
    c.data.text_column, c.data.pair_column = "query", "positive"
    c.data.negative_columns = ("negative_1", "negative_2", "negative_3")
    c.data.mask_duplicates = True
    c.data.max_seq_length = 256
    return c
