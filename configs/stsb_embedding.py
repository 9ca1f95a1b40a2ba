r"""Sentence embeddings for STS-B from all-MiniLM-L6-v2: cosines that match human judgements of similarity.

    bert-jax finetune --config stsb_embedding:path/to/STS-B --workdir runs/stsb_embedding \
        --config.init_from=path/to/all-MiniLM-L6-v2

The argument is the directory of the data's train.tsv and dev.tsv (from GLUE). sentence-transformers can open the
finished model.

Spearman's correlation on the dev set is 0.867 before training, and 0.894 after one epoch (--config.num_epochs=1) in
float32.

Reimers and Gurevych 2019 (arXiv:1908.10084), section 4.2: batches of 16 and a learning rate of 2e-5.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(directory: str = "STS-B") -> ConfigDict:
    """The recipe."""
    c = recipes.sentence_embedding()
    c.global_batch_size, c.eval_batch_size = 16, 64
    c.num_epochs = 4.0
    c.best_metric, c.eval_every = "spearman", 360  # an epoch
    c.optimizer.learning_rate = 2e-5
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.data.train, c.data.dev = f"{directory}/train.tsv", f"{directory}/dev.tsv"
    c.data.loss, c.data.label_scale = "cosine", 5.0
    c.data.label_column = "score"
    return c
