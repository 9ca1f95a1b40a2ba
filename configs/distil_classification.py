r"""A student with half the layers that learns the classes of a table from a fine-tuned classifier.

    bert-jax finetune reviews.csv --text review --label stars --model path/to/bert --out runs/reviews
    bert-jax distill --config distil_classification:12 --workdir runs/reviews_small \
        --config.distillation.teacher=runs/reviews/model --config.data.train=reviews.csv \
        --config.data.text_column=review --config.data.label_column=stars --config.data.validation_split=0.1

The argument is the teacher's number of layers; the student starts from every second layer. For texts without labels,
set distillation.weights.labels=0.

Hinton et al. 2015 (arXiv:1503.02531); Jiao et al. 2020 (arXiv:1909.10351), section 3.
"""

from ml_collections import ConfigDict

from bert_jax import recipes
from bert_jax.errors import InputError


def get_config(layers: str = "12") -> ConfigDict:
    """The recipe, for a teacher of `layers` layers."""
    if not layers.isdigit() or int(layers) < 2:
        raise InputError(f"distil_classification: expected the number of layers of the teacher, found {layers!r}")
    c = recipes.classification()
    c.global_batch_size = 32
    c.num_epochs = 2.0
    c.optimizer.learning_rate = 1e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_ratio = 0.06
    c.optimizer.bias_correction = True
    c.data.max_seq_length = 128
    c.distillation.student_layers = tuple(range(1, int(layers), 2))
    c.distillation.temperature = 2.0
    c.distillation.weights.labels = 0.5
    c.distillation.weights.soft_labels = 1.0
    c.distillation.weights.hidden_states = 1.0
    return c
