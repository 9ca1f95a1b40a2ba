"""Run by test_parallel.py in a process with 8 devices: prints what one of PARTS sees on several meshes as JSON."""

import collections
import json
import re
import sys

import jax
import numpy as np
import optax
from synthetic import CONFIG, pretraining_task, random_batch

from bert_jax import parameter_sharding, sharding
from bert_jax.modeling import Bert, Compute
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.training import step as steps
from bert_jax.training.feed import device_batch
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import make_schedule
from bert_jax.training.state import abstract_state, init_state

MESHES = {
    "one": {"devices": 1},
    "data": {},
    "fsdp": {"data": 1, "fsdp": -1},
    "data_fsdp_tensor": {"data": 2, "fsdp": 2, "tensor": 2},
    "accumulated": {"data": 2, "fsdp": 2, "tensor": 2, "accumulation_steps": 2},
}
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
    task = PretrainingTask(Bert(config, "pretraining"), majority_id=5)
    mesh = sharding.make_mesh(devices=jax.devices()[:devices])
    with jax.set_mesh(mesh):
        where = jax.sharding.NamedSharding(mesh, sharding.batch_spec())
        batch = device_batch(lambda rows: {k: v[rows] for k, v in random_batch(rows=32).items()}, 32, where)
        params = jax.jit(task.model.init)(jax.random.key(0))
        found = jax.jit(lambda p, b: steps._gradients(task, p, b, jax.random.key(0), parts)[0])(params, batch)
    return jax.tree.map(np.asarray, found)


def reduced(**sizes):
    """How far gradients that devices sum in bfloat16 are from others, and how often each mesh gathers something."""
    config = CONFIG.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    mesh, seen = sharding.make_mesh(**sizes), {}
    for dtype in ("float32", "bfloat16"):
        compute = Compute("bfloat16", remat="dots", reduce_dtype=dtype)
        task = PretrainingTask(Bert(config, "pretraining", compute), majority_id=5)
        with jax.set_mesh(mesh):
            where = jax.sharding.NamedSharding(mesh, sharding.batch_spec())
            batch = device_batch(lambda rows: {k: v[rows] for k, v in random_batch(rows=32).items()}, 32, where)
            shardings = parameter_sharding.param_shardings(mesh, task.model.abstract_params())
            params = jax.jit(task.model.init, out_shardings=shardings)(jax.random.key(0))
            run = jax.jit(
                lambda p, b, task=task: steps._gradients(task, p, b, jax.random.key(0), 1)[0], out_shardings=shardings
            )
            compiled = run.lower(params, batch).compile()
            seen[dtype] = jax.tree.map(np.asarray, compiled(params, batch)), compiled.as_text().count(" all-gather(")
    (exact, gathers), (found, fewer) = seen["float32"], seen["bfloat16"]
    apart = jax.tree.map(lambda a, b: float(np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-3)), found, exact)
    return {
        "dtypes": sorted({str(leaf.dtype) for leaf in jax.tree.leaves(found)}),
        "apart": float(np.max(jax.tree.leaves(apart))),
        "gathers": [fewer, gathers],
    }


def deviation(found, expected):
    """How far arrays are from others: parts of (their size + 0.01), at the most."""
    parts = jax.tree.map(lambda a, b: float((abs(a - b) / (abs(b) + 0.01)).max()), found, expected)
    return float(np.max(jax.tree.leaves(parts)))  # not max(), which may pass over a NaN


def begin(task, optimizer, mesh):
    """The state of step 0, and its shardings."""
    shardings = parameter_sharding.param_shardings(mesh, abstract_state(task.model.init, optimizer))
    return init_state(task.model.init, optimizer, 0, shardings), shardings


def updated(name, devices=8, **sizes):
    """How far three updates of an optimizer moved each parameter, and what a device holds of a moment."""
    optimizer = make_optimizer(make_schedule("linear", 1e-2, 20, 2), name=name)
    mesh = sharding.make_mesh(**sizes, devices=jax.devices()[:devices])

    def move(params, opt_state, grads):
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    with jax.set_mesh(mesh):
        state, shardings = begin(pretraining_task(), optimizer, mesh)
        params, moments = state.params, state.opt_state
        update = jax.jit(move, out_shardings=(shardings.params, shardings.opt_state))
        rng = np.random.default_rng(0)
        for _ in range(3):
            host = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32), params)
            params, moments = update(params, moments, jax.device_put(host, shardings.params))
        moved = jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), params, state.params)
    return moved, held(moments, "attention/query/kernel")


def held(opt_state, name):
    """The shape of what a device holds of a moment of a parameter of the layers."""
    moment = re.compile(rf"\b(mu|v)/encoder/layers/{name}$")  # adafactor's second, all others' first
    leaves = jax.tree_util.tree_leaves_with_path(opt_state)
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    return next(leaf.addressable_shards[0].data.shape for path, leaf in named.items() if moment.search(path))


def run(devices=8, accumulation_steps=1, **sizes):
    task = pretraining_task()
    optimizer = make_optimizer(make_schedule("linear", 1e-3, 20, 2))
    mesh = sharding.make_mesh(**sizes, devices=jax.devices()[:devices])
    with jax.set_mesh(mesh):
        state, shardings = begin(task, optimizer, mesh)
        step = steps.jit_train_step(steps.make_train_step(task, optimizer, accumulation_steps), mesh, shardings)
        losses, norms, compiled = [], [], None
        for i in range(4):
            host = random_batch(seed=i)
            where = jax.sharding.NamedSharding(mesh, sharding.batch_spec())
            batch = device_batch(lambda rows, host=host: {k: v[rows] for k, v in host.items()}, 16, where)
            compiled = compiled or step.lower(state, batch, 0).compile()
            state, metrics = compiled(state, batch, 0)
            losses.append(float(metrics["loss"][0]))
            norms.append(float(metrics["grad_norm"][0]))
    kept = jax.tree.map(lambda a, b: a.sharding == b, state, shardings)
    return {
        "losses": losses,
        "grad_norms": norms,
        "copied": len(re.findall(r" copy\(%state_", compiled.as_text())),
        "collectives": collections.Counter(COLLECTIVES.findall(compiled.as_text())),
        "query": held(state.opt_state, "attention/query/kernel"),
        "down": held(state.opt_state, "mlp/down/kernel"),
        "words": state.params["embeddings"]["word_embeddings"]["embedding"].addressable_shards[0].data.shape,
        "all_kept": bool(np.all(jax.tree.leaves(kept))),
    }


def deviations(devices, parts):
    return deviation(gradients(int(devices), int(parts)), gradients(1, 1))


def optimizers():
    seen, (adamw, _) = {}, updated("adamw", devices=1)
    for name in ("lamb", "adafactor", "muon"):
        (expected, _), (found, query) = updated(name, devices=1), updated(name, data=2, fsdp=2, tensor=2)
        least = min(float(abs(leaf).max()) for leaf in jax.tree.leaves(found))
        apart = deviation(found, adamw)
        seen[name] = {"deviation": deviation(found, expected), "apart": apart, "least": least, "query": query}
    return seen


PARTS = {
    "runs": lambda: {name: run(**sizes) for name, sizes in MESHES.items()},
    "between_layers": lambda: between_layers({"data": 2, "tensor": 4}),
    "deviations": deviations,
    "optimizers": optimizers,
    "reduced": lambda: {name: reduced(**MESHES[name]) for name in ("data", "fsdp", "data_fsdp_tensor")},
}

if __name__ == "__main__":
    part, *words = sys.argv[1:]
    print(json.dumps(PARTS[part](*words)))
