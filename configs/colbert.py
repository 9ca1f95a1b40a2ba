r"""Late interaction (ColBERT) from pairs of queries and documents: a vector of 128 dimensions for each token.

    bert-jax finetune --config colbert:pairs.csv --workdir runs/colbert --config.init_from=path/to/bert \
        --config.data.text_column=a --config.data.pair_column=b

The argument is a table with a query and a document that answers it in each row. The finished model is a
MultiVectorEncoder of sentence-transformers. The prefixes are two unused tokens of BERT's vocabulary.

Khattab and Zaharia 2020 (arXiv:2004.12832), section 4.1, with a learning rate of 3e-6 and queries of 32 tokens;
documents of 180 tokens and the larger batches are ColBERTv2's (arXiv:2112.01488).
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(train: str = "pairs.csv") -> ConfigDict:
    """The recipe."""
    c = recipes.multi_vector()
    c.global_batch_size = 32
    c.optimizer.learning_rate = 1e-5
    c.optimizer.schedule = "linear"
    c.data.train = train
    c.data.max_seq_length = 180
    c.data.query_prefix = "[unused0] "
    c.data.document_prefix = "[unused1] "
    return c
