r"""Text classification from 8 to 64 labelled texts of each class (SetFit).

    bert-jax finetune --config few_labels:train.csv --workdir runs/few \
        --config.init_from=path/to/all-MiniLM-L6-v2 --config.data.dev=dev.csv

The argument is the table, with the columns text and label. Pairs of texts train a model of sentence embeddings, and a
logistic regression over the embeddings of the texts is its classifier. The finished model opens like any other
classifier. Needs the extra `few-labels` (scikit-learn).

Tunstall et al. 2022 (arXiv:2209.11055), section 3: 20 pairs of each kind for a text, one epoch, batches of 16.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(table: str = "train.csv") -> ConfigDict:
    """The recipe."""
    c = recipes.few_labels()
    c.global_batch_size, c.eval_batch_size = 16, 64
    c.num_epochs = 1.0
    c.optimizer.learning_rate = 2e-5
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.data.train = table
    c.data.text_column, c.data.label_column = "text", "label"
    return c
