"""Keys of recipes whose losses compare scores of documents with those of a teacher."""

from bert_jax.modeling.score_losses import SCORE_LOSSES
from bert_jax.recipes.base import Key

SCORE_LOSS_KEYS = {
    "data.temperature": Key(1.0, "kl_divergence: divisor of the scores of model and teacher before the softmax",
                            above=0),
    "data.teacher_temperature": Key(float, "kl_divergence: divisor of the teacher's scores; not set = temperature",
                                    above=0),
    "distillation.score_loss": Key("mse", "soft labels: loss between the scores of documents and those of the teacher, "
                                   "at distillation.temperature: mse, margin_mse or kl_divergence", SCORE_LOSSES),
}  # fmt: skip
