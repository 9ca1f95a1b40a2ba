"""Students, teachers and batches of the tests of distillation."""

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.jobs.distillation.settings import Distillation
from bert_jax.jobs.distillation.task import DistillationTask
from bert_jax.modeling import Bert
from bert_jax.tasks.classification.task import ClassificationTask
from bert_jax.tasks.embedding.dense.task import SentenceEmbeddingTask
from bert_jax.tasks.pretraining.task import PretrainingTask

TEACHER = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64,
                     max_position_embeddings=32, initializer_range=0.3, num_labels=3, hidden_dropout_prob=0.0,
                     attention_probs_dropout_prob=0.0)  # fmt: skip
STUDENT = TEACHER.replace(hidden_size=16, num_hidden_layers=2, num_labels=3)
HEADS = {"classification": "sequence_classification", "mlm": "masked_lm", "embedding": "sentence_embedding"}
PAIRS = ((-1, -1), (0, 1), (1, 3))
TERMS = {
    "classification": {"soft_labels": 1.0, "hidden_states": 0.5, "attentions": 0.25, "relations": 2.0},
    "mlm": {"soft_labels": 1.0, "relations": 1.0},
    "embedding": {"embeddings": 1.0},
}


def settings(weights, labels=1.0, **changes):
    values = {"teacher": "teacher", "cache": "", "student_layers": (), "student_embeddings": False,
              "labels": labels, "weights": weights,
              "temperature": 2.0, "layer_map": PAIRS, "relations": ("qk", "vv"), "relation_heads": 8,
              "relation_layer": -1, "embedding_distance": "squared"}  # fmt: skip
    return Distillation(**(values | changes))


def distilled(kind, weights=None, student=STUDENT, **changes):
    """A task with a teacher, and parameters of both."""
    head = HEADS[kind]
    model, teacher = Bert(student, head), Bert(TEACHER, head)
    own = {
        "classification": lambda: ClassificationTask(model, ("accuracy",)),
        "mlm": lambda: PretrainingTask(model, majority_id=5, objective="mlm"),
        "embedding": lambda: SentenceEmbeddingTask(model, "none"),
    }[kind]()
    task = DistillationTask(own, settings(TERMS[kind] if weights is None else weights, **changes), teacher, PAIRS)
    return task, jax.jit(lambda: params_of(model, teacher))()


def params_of(model, teacher):
    keys = jax.random.split(jax.random.key(0), 5)
    widths = (model.config.hidden_size, teacher.config.hidden_size)
    names = ("embedding_output", "hidden_states", "sentence_embedding")
    return {
        "student": model.init(keys[0]),
        "teacher": teacher.init(keys[1]),
        "projections": {n: {"kernel": jax.random.normal(k, widths)} for n, k in zip(names, keys[2:], strict=True)},
    }


def batch_of(kind, rows=16, length=12, padded=12, seed=0):
    """Rows of 3 to `length` tokens, the last two of them padding, padded to `padded` tokens."""
    rng = np.random.default_rng(seed)
    texts = (rows, 2) if kind == "embedding" else (rows,)
    lengths = rng.integers(3, length + 1, texts)
    lengths[-2:] = 0
    mask = (np.arange(padded) < lengths[..., None]).astype(np.int32)
    ids = np.zeros((*texts, padded), np.int32)
    ids[..., :length] = rng.integers(5, TEACHER.vocab_size, (*texts, length))
    batch = {
        "input_ids": ids * mask,
        "attention_mask": mask,
        "token_type_ids": mask * (np.arange(padded) > 4).astype(np.int32),
        "example_weights": (np.arange(rows) < rows - 2).astype(np.float32),
    }
    if kind == "mlm":
        masked = rng.integers(0, 4, rows) * (np.arange(rows) < rows - 2)
        batch |= {
            "masked_positions": rng.integers(0, 3, (rows, 3)).astype(np.int32),
            "masked_labels": rng.integers(5, TEACHER.vocab_size, (rows, 3)).astype(np.int32),
            "masked_weights": (np.arange(3) < masked[:, None]).astype(np.float32),
        }
    else:
        batch["labels"] = rng.integers(0, 3, rows).astype(np.float32 if kind == "embedding" else np.int32)
    return batch
