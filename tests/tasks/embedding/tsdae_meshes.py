"""Run by test_tsdae.py in a process with 8 devices: loss and gradients of a batch, whole and accumulated.

The last way to compute them, accumulated on a mesh, is compared with the first; with the argument `all`, each way is.
"""

import json
import sys

import embedding_meshes
import jax
import numpy as np

from bert_jax import parameter_sharding, sharding
from bert_jax.modeling import Bert
from bert_jax.modeling.reconstruction import init_decoder
from bert_jax.tasks.embedding.dense.task import SentenceEmbeddingTask
from bert_jax.tasks.embedding.dense.tsdae import DenoisingTask
from bert_jax.training import step as steps
from bert_jax.training.feed import device_batch

MODEL = Bert(embedding_meshes.CONFIG, "sentence_embedding")


def batch():
    rows = embedding_meshes.batch()
    return rows | {name: array[:, :1] for name, array in rows.items() if array.ndim == 3}


def init(key):
    return {"student": MODEL.init(key), "decoder": init_decoder(embedding_meshes.CONFIG, key)}


def gradients(devices, micro_batches, fsdp=1):
    task = DenoisingTask(SentenceEmbeddingTask(MODEL, "none"), 0.0, (0,))  # so that no random numbers differ
    mesh = sharding.make_mesh(fsdp=fsdp, devices=jax.devices()[:devices])
    with jax.set_mesh(mesh):
        where, given = jax.sharding.NamedSharding(mesh, sharding.batch_spec()), batch()
        arrays = device_batch(lambda rows: {k: v[rows] for k, v in given.items()}, embedding_meshes.ROWS, where)
        shardings = parameter_sharding.param_shardings(mesh, jax.eval_shape(init, jax.random.key(0)))
        params = jax.jit(init, out_shardings=shardings)(jax.random.key(0))
        run = jax.jit(lambda p, b: steps._gradients(task, p, b, jax.random.key(0), micro_batches))
        grads, metrics = run(params, arrays)
    return jax.tree.map(np.asarray, grads), float(metrics["loss"][0])


if __name__ == "__main__":
    expected, loss = gradients(1, 1)
    ways = [(8, 1, 1), (1, 4, 1), (8, 2, 2)]
    others = [gradients(*way) for way in (ways if "all" in sys.argv else ways[-1:])]
    apart = [jax.tree.map(lambda a, b: float((abs(a - b) / (abs(b) + 0.01)).max()), x, expected) for x, _ in others]
    print(json.dumps([[loss, *(other for _, other in others)], [float(np.max(jax.tree.leaves(x))) for x in apart]]))
