r"""Sentence embeddings from three data sets in one run: inference, questions with answers, and similarities.

    bert-jax finetune --config embedding_mixture:path/to/embedding_data --workdir runs/mixture \
        --config.init_from=path/to/all-MiniLM-L6-v2

The argument is a directory with nli.jsonl (anchor, positive, negative), questions.jsonl (question, answer), and
sts.tsv and sts_dev.tsv (sentence1, sentence2, score from 0 to 5). Each set has a loss of its own. A tenth of the
questions is held out, and the model is the best by Spearman's correlation on sts_dev.tsv.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(directory: str = "embedding_data") -> ConfigDict:
    """The recipe."""
    c = recipes.sentence_embedding()
    c.global_batch_size, c.eval_batch_size = 64, 64
    c.num_epochs = 1.0
    c.best_metric, c.eval_every = "sts/spearman", 500
    c.optimizer.learning_rate = 2e-5
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.data.sets = {
        "nli": {
            "train": f"{directory}/nli.jsonl",
            "text_column": "anchor",
            "pair_column": "positive",
            "negative_column": "negative",
            "mask_duplicates": True,
        },
        "questions": {
            "train": f"{directory}/questions.jsonl",
            "text_column": "question",
            "pair_column": "answer",
            "validation_split": 0.1,
            "max_seq_length": 256,
        },
        "sts": {
            "train": f"{directory}/sts.tsv",
            "dev": f"{directory}/sts_dev.tsv",
            "loss": "cosent",
            "label_column": "score",
        },
    }
    c.data.sampling = "proportional"
    return c
