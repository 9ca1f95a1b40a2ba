"""Run by test_parallel.py in a process with 8 devices: trains on several meshes and prints what it saw as JSON."""

import collections
import json
import re

import jax
import numpy as np
from synthetic import pretraining_task, random_batch

from bert_jax import sharding
from bert_jax.training import step as steps
from bert_jax.training.feed import device_batch
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import make_schedule

MESHES = {
    "one": {"devices": 1},
    "data": {},
    "fsdp": {"data": 1, "fsdp": -1},
    "data_fsdp_tensor": {"data": 2, "fsdp": 2, "tensor": 2},
    **{f"{name}_one": {"devices": 1, "optimizer": name} for name in ("muon", "lamb", "adafactor")},
    **{name: {"data": 2, "fsdp": 2, "tensor": 2, "optimizer": name} for name in ("muon", "lamb", "adafactor")},
    "accumulated": {"data": 2, "fsdp": 2, "tensor": 2, "accumulation_steps": 2},
}
COLLECTIVES = re.compile(r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")


def run(devices=8, accumulation_steps=1, optimizer="adamw", **sizes):
    task = pretraining_task()
    optimizer = make_optimizer(make_schedule("linear", 1e-3, 20, 2), name=optimizer)
    mesh = sharding.make_mesh(**sizes, devices=jax.devices()[:devices])
    with jax.set_mesh(mesh):
        abstract = steps.abstract_state(task.model.init, optimizer)
        shardings = sharding.param_shardings(mesh, abstract)
        state = steps.init_state(task.model.init, optimizer, 0, shardings)
        step = steps.jit_train_step(steps.make_train_step(task, optimizer, 0, accumulation_steps), mesh, shardings)
        losses, norms, compiled = [], [], None
        for i in range(4):
            host = random_batch(seed=i)
            where = jax.sharding.NamedSharding(mesh, sharding.batch_spec())
            batch = device_batch(lambda rows, host=host: {k: v[rows] for k, v in host.items()}, 16, where)
            compiled = compiled or step.lower(state, batch).compile()
            state, metrics = compiled(state, batch)
            losses.append(float(metrics["loss"][0]))
            norms.append(float(metrics["grad_norm"][0]))
    moments = jax.tree_util.tree_leaves_with_path(state.opt_state)
    shards = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf.addressable_shards[0] for path, leaf in moments
    }

    def shape(name):
        moment = re.compile(rf"\b(mu|v)/encoder/layers/{name}$")  # adafactor's second, all others' first
        return next(shard.data.shape for path, shard in shards.items() if moment.search(path))

    kept = jax.tree.map(lambda a, b: a.sharding == b, state, shardings)
    return {
        "losses": losses,
        "grad_norms": norms,
        "collectives": collections.Counter(COLLECTIVES.findall(compiled.as_text())),
        "query": shape("attention/query/kernel"),
        "down": shape("mlp/down/kernel"),
        "words": state.params["embeddings"]["word_embeddings"]["embedding"].addressable_shards[0].data.shape,
        "all_kept": bool(np.all(jax.tree.leaves(kept))),
    }


if __name__ == "__main__":
    print(json.dumps({name: run(**sizes) for name, sizes in MESHES.items()}))
