r"""Sparse embeddings (SPLADE), trained from a masked LM on pairs of queries and documents.

    bert-jax finetune --config splade:pairs.csv --workdir runs/splade --config.init_from=path/to/bert \
        --config.data.text_column=a --config.data.pair_column=b

The argument is a table with a query and a document that answers it in each row. The finished model is a SparseEncoder
of sentence-transformers.

Formal et al. 2021 (arXiv:2109.10086), section 4: batches of 124, a learning rate of 2e-5, and in-batch negatives.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(train: str = "pairs.csv") -> ConfigDict:
    """The recipe."""
    c = recipes.sparse_embedding()
    c.global_batch_size = 124
    c.optimizer.learning_rate = 2e-5
    c.optimizer.schedule = "linear"
    c.data.train = train
    c.data.max_seq_length = 256
    return c
