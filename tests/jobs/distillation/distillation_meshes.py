"""Run by test_distillation.py in a process with 8 devices: gradients on 1 device, and on 8 in 4 micro-batches."""

import json

import jax
import numpy as np
from distilling import batch_of, distilled

from bert_jax import parameter_sharding, sharding
from bert_jax.training import step as steps
from bert_jax.training.feed import device_batch

ROWS = 32


def gradients(kind, devices, parts, **sizes):
    mesh = sharding.make_mesh(**sizes, devices=jax.devices()[:devices])
    task, params = distilled(kind)
    with jax.set_mesh(mesh):
        where = jax.sharding.NamedSharding(mesh, sharding.batch_spec())
        host = batch_of(kind, ROWS)
        arrays = device_batch(lambda rows: {k: v[rows] for k, v in host.items()}, ROWS, where)
        params = jax.device_put(jax.tree.map(np.asarray, params), parameter_sharding.param_shardings(mesh, params))
        grads, metrics = jax.jit(lambda p, b: steps._gradients(task, p, b, jax.random.key(0), parts))(params, arrays)
    return jax.tree.map(np.asarray, grads), float(metrics["loss"][0])


if __name__ == "__main__":
    found = {}
    for kind in ("classification", "mlm", "embedding"):
        expected, loss = gradients(kind, 1, 1)
        grads, other = gradients(kind, 8, 4, data=2, fsdp=2, tensor=2)
        apart = jax.tree.map(lambda a, b: float((abs(a - b) / (abs(b) + 0.01)).max()), grads, expected)
        found[kind] = [loss, other, float(np.max(jax.tree.leaves(apart)))]
    print(json.dumps(found))
