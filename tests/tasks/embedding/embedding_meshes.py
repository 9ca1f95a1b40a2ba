"""Run by test_sentence_embedding.py in a process with 8 devices: loss and gradients of a batch, whole and in parts."""

import dataclasses
import json

import jax
import numpy as np

from bert_jax import sharding
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert
from bert_jax.tasks.embedding.dense.task import SentenceEmbeddingTask
from bert_jax.training import step as steps
from bert_jax.training.feed import device_batch

CONFIG = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
                    max_position_embeddings=16, initializer_range=0.2, hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0, pooler=False)  # fmt: skip
ROWS, TEXTS, LENGTH = 16, 3, 8


def batch():
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, LENGTH + 1, (ROWS, TEXTS, 1))
    lengths[-3:] = 0  # rows that fill the batch
    mask = (np.arange(LENGTH) < lengths).astype(np.int32)
    return {
        "input_ids": rng.integers(5, 64, mask.shape).astype(np.int32) * mask,
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(mask),
        "labels": np.zeros(ROWS, np.float32),
        "example_weights": (np.arange(ROWS) < ROWS - 3).astype(np.float32),
    }


def gradients(task, devices):
    mesh = sharding.make_mesh(devices=jax.devices()[:devices])
    with jax.set_mesh(mesh):
        where = jax.sharding.NamedSharding(mesh, sharding.batch_spec())
        arrays = device_batch(lambda rows: {k: v[rows] for k, v in batch().items()}, ROWS, where)
        params = jax.jit(task.model.init)(jax.random.key(0))
        run = jax.jit(lambda p, b: steps._gradients(task, p, b, jax.random.key(0), 1))
        grads, metrics = run(params, arrays)
    return jax.tree.map(np.asarray, grads), float(metrics["loss"][0])


if __name__ == "__main__":
    task = SentenceEmbeddingTask(Bert(CONFIG, "sentence_embedding"), "in_batch_negatives")
    in_parts = dataclasses.replace(task, parts=2)
    expected, loss = gradients(task, 1)
    others = [gradients(task, 8), gradients(in_parts, 1), gradients(in_parts, 8)]
    apart = [jax.tree.map(lambda a, b: float((abs(a - b) / (abs(b) + 0.01)).max()), x, expected) for x, _ in others]
    print(json.dumps([loss, [other for _, other in others], [float(np.max(jax.tree.leaves(x))) for x in apart]]))
