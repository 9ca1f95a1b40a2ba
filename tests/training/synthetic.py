"""A tiny pretraining model and random batches for it."""

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Compute
from bert_jax.tasks.pretraining.task import PretrainingTask

CONFIG = BertConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=32,
)


def pretraining_task(**compute) -> PretrainingTask:
    return PretrainingTask(Bert(CONFIG, "pretraining", Compute(**compute)), majority_id=5)


def random_batch(rows=16, length=16, predictions=6, seed=0) -> dict[str, np.ndarray]:
    """Examples that differ wildly in length and in how many tokens are masked: 0 in some, all that fit in others."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, length + 1, size=rows)
    masked = rng.integers(0, predictions + 1, size=rows)
    masked[: rows // 4] = 0
    return {
        "input_ids": rng.integers(5, CONFIG.vocab_size, size=(rows, length)).astype(np.int32),
        "attention_mask": (np.arange(length) < lengths[:, None]).astype(np.int32),
        "token_type_ids": (np.arange(length) >= lengths[:, None] // 2).astype(np.int32),
        "masked_positions": rng.integers(0, length, size=(rows, predictions)).astype(np.int32),
        "masked_labels": rng.integers(5, CONFIG.vocab_size, size=(rows, predictions)).astype(np.int32),
        "masked_weights": (np.arange(predictions) < masked[:, None]).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, size=rows).astype(np.int32),
        "example_weights": np.ones(rows, np.float32),
    }
