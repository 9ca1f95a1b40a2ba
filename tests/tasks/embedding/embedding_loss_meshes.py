"""Run by test_embedding_losses.py in a process with 8 devices: losses and gradients whole, in parts and accumulated.

The last way to compute them, in parts on a mesh, is compared with the first; with the argument `all`, each way is.
"""

import dataclasses
import json
import sys

import embedding_meshes
import jax
import numpy as np

from bert_jax import sharding
from bert_jax.data.batches import POOLING_MASK
from bert_jax.modeling import Bert
from bert_jax.tasks.embedding.dense.guide import GUIDE
from bert_jax.tasks.embedding.dense.recipe import EMBEDDING_LOSSES
from bert_jax.tasks.embedding.dense.task import SentenceEmbeddingTask
from bert_jax.tasks.embedding.in_batch_negatives import Contrast
from bert_jax.training import step as steps
from bert_jax.training.feed import device_batch

TASKS = {
    "cosent": {"scale": 5.0},  # at 20, rounding of the cosines alone moves the gradient by 1e-4
    "angle": {"scale": 5.0},
    "triplet": {},
    "margin_mse": {},
    "batch_hard_triplet": {},
    "batch_hard_soft_margin_triplet": {"distance": "cosine"},
    "batch_semi_hard_triplet": {},
    "batch_all_triplet": {"distance": "cosine", "margin": 0.5},
    "supervised_contrastive": {"scale": 5.0},
    "contrastive": {},
    "online_contrastive": {"distance": "cosine", "margin": 0.9},
    "cosine": {"matryoshka": ((32, 1.0), (8, 0.5))},
    "in_batch_negatives": {
        "matryoshka": ((32, 1.0), (8, 0.5)),
        "guided": True,
        "contrast": Contrast(True, True, 0.1),
        "mask_duplicates": True,
    },
}


def batch():
    rng, rows = np.random.default_rng(1), embedding_meshes.ROWS
    labels = rng.integers(0, 5, rows).astype(np.float32) / 5
    guide = rng.normal(size=(rows, embedding_meshes.TEXTS, 5)).astype(np.float32)
    made = embedding_meshes.batch()
    pooled = made["attention_mask"] * (np.arange(embedding_meshes.LENGTH) >= np.array([[0], [1], [2]]))
    return made | {"labels": labels, GUIDE: guide, POOLING_MASK: pooled.astype(np.int32)}


def gradients(task, devices, micro_batches):
    mesh = sharding.make_mesh(devices=jax.devices()[:devices])
    with jax.set_mesh(mesh):
        where = jax.sharding.NamedSharding(mesh, sharding.batch_spec())
        given = batch()
        arrays = device_batch(lambda rows: {k: v[rows] for k, v in given.items()}, embedding_meshes.ROWS, where)
        params = jax.jit(task.model.init)(jax.random.key(0))
        run = jax.jit(lambda p, b: steps._gradients(task, p, b, jax.random.key(0), micro_batches))
        grads, metrics = run(params, arrays)
    return jax.tree.map(np.asarray, grads), float(metrics["loss"][0])


def relative(a, b):
    """The greatest difference, relative to the greatest gradient of the parameter."""
    return float(abs(a - b).max() / max(abs(b).max(), 1e-3))


def compare(name, options):
    task = SentenceEmbeddingTask(Bert(embedding_meshes.CONFIG, "sentence_embedding"), name, **options)
    whole = EMBEDDING_LOSSES[name].whole_batch
    in_four = (dataclasses.replace(task, parts=4), 1) if whole else (task, 4)
    in_two = (dataclasses.replace(task, parts=2), 1) if whole else (task, 2)
    expected, loss = gradients(task, 1, 1)
    ways = [(task, 8, 1), (in_four[0], 1, in_four[1]), (in_two[0], 8, in_two[1])]
    others = [gradients(*way) for way in (ways if "all" in sys.argv else ways[-1:])]
    apart = [jax.tree.map(relative, x, expected) for x, _ in others]
    return [[loss, *(other for _, other in others)], [float(np.max(jax.tree.leaves(x))) for x in apart]]


if __name__ == "__main__":
    print(json.dumps({name: compare(name, options) for name, options in TASKS.items()}))
