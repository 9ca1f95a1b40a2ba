r"""A student with 3 layers that learns sentence embeddings for STS-B from a model with 6 layers.

    bert-jax finetune --config stsb_embedding:path/to/STS-B --workdir runs/stsb_embedding \
        --config.init_from=path/to/all-MiniLM-L6-v2
    bert-jax distill --config distil_stsb:path/to/STS-B --workdir runs/stsb_small \
        --config.distillation.teacher=runs/stsb_embedding/model

The argument is the directory of the data's train.tsv and dev.tsv (from GLUE). The student learns the labels and the
teacher's vectors. The recipe `distil_text` needs no labels.

Reimers and Gurevych 2020 (arXiv:2004.09813), section 2.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(directory: str = "STS-B") -> ConfigDict:
    """The recipe."""
    c = recipes.sentence_embedding()
    c.global_batch_size, c.eval_batch_size = 16, 64
    c.num_epochs = 4.0
    c.optimizer.learning_rate = 1e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.data.train, c.data.dev = f"{directory}/train.tsv", f"{directory}/dev.tsv"
    c.data.loss, c.data.label_scale = "cosine", 5.0
    c.data.label_column = "score"
    c.data.max_seq_length = 128
    c.distillation.student_layers = (1, 3, 5)
    c.distillation.embedding_distance = "cosine"
    c.distillation.weights.labels = 0.5
    c.distillation.weights.embeddings = 1.0
    return c
