"""Run by test_reranking.py in a process with 8 devices: losses and gradients whole and accumulated."""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from bert_jax import sharding
from bert_jax.data.finetuning.ranked_passages import MISSING
from bert_jax.modeling import Bert
from bert_jax.tasks.reranking.losses import RERANKING_LOSSES
from bert_jax.tasks.reranking.task import RerankingTask
from bert_jax.training import step as steps
from bert_jax.training.feed import device_batch

sys.path.append(str(Path(__file__).parents[1] / "embedding"))
import embedding_meshes

CONFIG = embedding_meshes.CONFIG


def batch():
    rng, rows = np.random.default_rng(1), embedding_meshes.batch()
    labels = rng.integers(0, 3, rows["input_ids"].shape[:2]).astype(np.float32) / 2
    labels[:, 0] = 1
    labels[::3, 2] = MISSING
    return rows | {"labels": np.where(rows["example_weights"][:, None] > 0, labels, 0)}


def gradients(task, devices, micro_batches, init=None):
    mesh = sharding.make_mesh(devices=jax.devices()[:devices])
    with jax.set_mesh(mesh):
        where, given = jax.sharding.NamedSharding(mesh, sharding.batch_spec()), batch()
        arrays = device_batch(lambda rows: {k: v[rows] for k, v in given.items()}, embedding_meshes.ROWS, where)
        params = jax.jit(init or task.model.init)(jax.random.key(0))
        run = jax.jit(lambda p, b: steps._gradients(task, p, b, jax.random.key(0), micro_batches))
        grads, metrics = run(params, arrays)
    return jax.tree.map(np.asarray, grads), float(metrics["loss"][0])


def compare(name):
    config = CONFIG.replace(pooler=True, num_labels=1)
    task = RerankingTask(Bert(config, "sequence_classification"), name)
    expected, loss = gradients(task, 1, 1)
    others = [gradients(task, 8, 1), gradients(task, 1, 4), gradients(task, 8, 2)]
    apart = [jax.tree.map(lambda a, b: float((abs(a - b) / (abs(b) + 0.01)).max()), x, expected) for x, _ in others]
    return [[loss, *(other for _, other in others)], [float(np.max(jax.tree.leaves(x))) for x in apart]]


if __name__ == "__main__":
    print(json.dumps({name: compare(name) for name in RERANKING_LOSSES}))
