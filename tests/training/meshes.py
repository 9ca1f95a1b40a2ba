"""Run by test_parallel.py in a process with 8 devices: trains on several meshes and prints what it saw as JSON."""

import collections
import json
import re

import jax
import numpy as np
from synthetic import CONFIG, pretraining_task, random_batch

from bert_jax import sharding
from bert_jax.modeling import Bert
from bert_jax.tasks.pretraining import PretrainingTask
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
SPLITS = ((1, 4), (2, 1), (2, 4), (8, 1), (8, 4))  # devices and micro-batches
COLLECTIVES = re.compile(r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")


def between_layers(sizes):
    """The shape of what a device holds of each hidden state of 16 sequences of 16 tokens."""
    model, mesh = pretraining_task().model, sharding.make_mesh(**sizes)
    with jax.set_mesh(mesh):
        where = jax.sharding.NamedSharding(mesh, sharding.batch_spec())
        ids = device_batch(lambda rows: {"ids": random_batch()["input_ids"][rows]}, 16, where)["ids"]
        run = jax.jit(lambda params: model.apply(params, ids, output_hidden_states=True).hidden_states)
        return [state.addressable_shards[0].data.shape for state in run(jax.jit(model.init)(jax.random.key(0)))]


def gradients(devices, parts):
    """Those of a batch whose examples have 0 to 6 masks each, without dropout."""
    config = CONFIG.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    task = PretrainingTask(Bert(config, "pretraining"), commonest_id=5)
    mesh = sharding.make_mesh(devices=jax.devices()[:devices])
    with jax.set_mesh(mesh):
        where = jax.sharding.NamedSharding(mesh, sharding.batch_spec())
        batch = device_batch(lambda rows: {k: v[rows] for k, v in random_batch(rows=32).items()}, 32, where)
        params = jax.jit(task.model.init)(jax.random.key(0))
        found = jax.jit(lambda p, b: steps._gradients(task, p, b, jax.random.key(0), parts)[0])(params, batch)
    return jax.tree.map(np.asarray, found)


def deviations():
    """How far gradients are from those of the whole batch on one device: parts of (their size + 0.01), at the most."""
    whole = gradients(1, 1)

    def deviation(found):
        parts = jax.tree.map(lambda a, b: float((abs(a - b) / (abs(b) + 0.01)).max()), found, whole)
        return float(np.max(jax.tree.leaves(parts)))  # not max(), which may pass over a NaN

    return {f"{devices} devices, {parts} parts": deviation(gradients(devices, parts)) for devices, parts in SPLITS}


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
    seen = {
        "runs": {name: run(**sizes) for name, sizes in MESHES.items()},
        "between_layers": between_layers({"data": 2, "tensor": 4}),
        "deviations": deviations(),
    }
    print(json.dumps(seen))
