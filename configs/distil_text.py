r"""A small sentence embedding model from plain text: a student of 2 layers learns a teacher's vectors, without labels.

    bert-jax distill --config distil_text:texts.tsv,text --workdir runs/embed \
        --config.distillation.teacher=path/to/all-MiniLM-L6-v2

The argument names a table and its column of texts. To evaluate during training, add pairs with a similarity score:

    --config.data.dev=STS-B/dev.tsv --config.data.label_column=score

A student with fewer dimensions (`--config.distillation.student_layers=()` and the keys of `model`) learns the vectors
through a projection that is not saved. With `--config.distillation.embedding_distance=similarities` it learns the
cosines within a batch instead.

Reimers and Gurevych 2020 (arXiv:2004.09813), section 2; Tung and Mori 2019 (arXiv:1907.09682), section 3.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(argument: str = "texts.tsv,text") -> ConfigDict:
    """The recipe, for `TABLE,COLUMN`."""
    table, _, column = argument.rpartition(",")
    c = recipes.sentence_embedding()
    c.global_batch_size, c.eval_batch_size = 64, 64
    c.num_epochs = 1.0
    c.optimizer.learning_rate = 3e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.05
    c.optimizer.bias_correction = True
    c.data.train, c.data.train_columns = table, (column,)
    c.data.loss = "none"
    c.data.max_seq_length = 64
    c.distillation.student_layers = (2, 5)
    c.distillation.embedding_distance = "cosine"
    c.distillation.weights.labels = 0.0
    c.distillation.weights.embeddings = 1.0
    return c
