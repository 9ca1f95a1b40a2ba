r"""A reranker (cross-encoder) from queries, passages that answer them, and hard negatives.

    bert-jax mine-negatives path/to/all-MiniLM-L6-v2 --data questions.jsonl --corpus passages.txt --out tuples.jsonl \
        --format n-tuple
    bert-jax finetune --config reranker:tuples.jsonl --workdir runs/reranker --config.init_from=path/to/bert
    bert-jax rerank runs/reranker/model "how do cats sleep?" --corpus documents.txt

The argument is the table, with the columns query, positive, negative_1, negative_2 and negative_3. The finished model
can be opened by CrossEncoder of sentence-transformers.

Gao et al. 2021 (arXiv:2101.08751), section 3.2: cross entropy over a relevant passage and mined ones.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(table: str = "tuples.jsonl") -> ConfigDict:
    """The recipe."""
    c = recipes.reranking()
    c.global_batch_size, c.eval_batch_size = 32, 64
    c.num_epochs = 1.0
    c.optimizer.learning_rate = 2e-5
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.data.train, c.data.validation_split = table, 0.05
    c.data.loss = "contrastive"
    c.data.text_column, c.data.pair_column, c.data.label_column = "query", "positive", ""
    c.data.negative_columns = ("negative_1", "negative_2", "negative_3")
    c.data.max_seq_length = 256
    return c
