r"""A student with 3 layers that learns the named entities of CoNLL-2003 from a tagger with 6 layers.

    bert-jax finetune --config conll2003:path/to/conll2003 --workdir runs/conll2003 \
        --config.init_from=path/to/all-MiniLM-L6-v2
    bert-jax distill --config distil_conll2003:path/to/conll2003 --workdir runs/conll2003_small \
        --config.distillation.teacher=runs/conll2003/model

The argument is the directory of the data's train.txt and valid.txt, as for the recipe `conll2003`.

Hinton et al. 2015 (arXiv:1503.02531); Jiao et al. 2020 (arXiv:1909.10351), section 3.
"""

from ml_collections import ConfigDict

from bert_jax import recipes


def get_config(directory: str = "conll2003") -> ConfigDict:
    """The recipe."""
    c = recipes.token_classification()
    c.global_batch_size = 32
    c.num_epochs = 4.0
    c.optimizer.learning_rate = 2e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.1
    c.optimizer.bias_correction = True
    c.data.train, c.data.dev = f"{directory}/train.txt", f"{directory}/valid.txt"
    c.data.max_seq_length = 128
    c.distillation.student_layers = (1, 3, 5)
    c.distillation.temperature = 2.0
    c.distillation.weights.labels = 0.5
    c.distillation.weights.soft_labels = 1.0
    c.distillation.weights.hidden_states = 1.0
    return c
