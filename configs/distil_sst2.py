r"""A student with 3 layers that learns the sentiment of SST-2 from a classifier with 6 layers.

    bert-jax finetune --config sst2_minilm:path/to/SST-2 --workdir runs/sst2 \
        --config.init_from=path/to/all-MiniLM-L6-v2
    bert-jax distill --config distil_sst2:path/to/SST-2 --workdir runs/sst2_small \
        --config.distillation.teacher=runs/sst2/model

The argument is the directory of the data's train.tsv and dev.tsv (from GLUE). The student starts from three of the
teacher's layers. A narrower student starts from random parameters (`--config.distillation.student_layers=()` and the
keys of `model`) and needs more steps: pretrain it first with `distil_minilm`, and set `init_from`.

Hinton et al. 2015 (arXiv:1503.02531); Jiao et al. 2020 (arXiv:1909.10351), section 3.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(directory: str = "SST-2") -> ConfigDict:
    """The recipe."""
    c = recipes.classification()
    c.global_batch_size = 32
    c.num_epochs = 2.0
    c.optimizer.learning_rate = 1e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.06
    c.optimizer.bias_correction = True
    c.data.train, c.data.dev = f"{directory}/train.tsv", f"{directory}/dev.tsv"
    c.data.max_seq_length = 128
    c.data.metrics = ("accuracy",)
    c.distillation.student_layers = (1, 3, 5)
    c.distillation.temperature = 2.0
    c.distillation.weights.labels = 0.5
    c.distillation.weights.soft_labels = 1.0
    c.distillation.weights.hidden_states = 1.0
    return c
