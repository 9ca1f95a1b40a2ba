"""Run by tests: trains by a recipe in one run after another, each in forked processes, and kills those that are to die.

Usage: runs.py RECIPE.json WORKDIR RUNS.json. RUNS is a list of objects, all keys optional:

    kill_at    step; within `within` seconds of reading its batch, or a later one's, each process is killed by SIGKILL
    within     seconds, default 0.02
    stop_at    step; on reading its batch, the last process alone is told to stop by SIGTERM
    processes  default 1, with `devices` each (default 1)
    mesh       sizes in place of the recipe's
    damage     name of a folder in the newest checkpoint; before the run, its files are cut short
    skew       seconds by which each process's clock is ahead of that of the process before it

Prints "killed", "stopped" or "finished" for each. The imports happen once, before the forks.
"""

import json
import os
import pathlib
import random
import signal
import socket
import sys
import threading
import time
import traceback

import jax
from kill_moments import SEED

import bert_jax.tasks.classification.task
import bert_jax.tasks.electra.task
import bert_jax.tasks.pretraining.task  # noqa: F401
from bert_jax import jobs, recipes
from bert_jax.training.loop import Preempted, train


def signal_self_at(step: int, number: int, delay: float) -> None:
    """Has this process send itself a signal `delay` seconds after the reading of the batch of `step`."""
    build = jobs.build

    def build_with_a_bomb(recipe):
        job = build(recipe)
        batch, lit = job.train_source.batch, threading.Event()

        def watched(at, rows=slice(None)):
            if at >= step and not lit.is_set():
                lit.set()
                threading.Timer(delay, os.kill, (os.getpid(), number)).start()
            return batch(at, rows)

        job.train_source.batch = watched
        return job

    jobs.build = build_with_a_bomb


def start(recipe_file: str, workdir: str, process: int, port: int, run: dict) -> int:
    """Forks a process that trains; returns its id."""
    child = os.fork()
    if child:
        return child
    try:
        os.dup2(2, 1)  # gloo talks on stdout
        jax.config.update("jax_num_cpu_devices", run.get("devices", 1))
        now, ahead = time.time, process * run.get("skew", 0)
        time.time = lambda: now() + ahead
        if run.get("processes", 1) > 1:
            jax.distributed.initialize(f"localhost:{port}", run["processes"], process)
        if "kill_at" in run:
            moment = random.Random(f"{SEED} {process} {run['kill_at']}")
            signal_self_at(run["kill_at"], signal.SIGKILL, moment.uniform(0, run.get("within", 0.02)))
        if "stop_at" in run and process == run.get("processes", 1) - 1:
            signal_self_at(run["stop_at"], signal.SIGTERM, 0.0)
        recipe = recipes.load_recipe(recipe_file)
        recipe.mesh.update(run.get("mesh", {}))
        status = 0
        try:
            train(recipe, workdir)
        except Preempted as stopped:
            status = stopped.code
        if run.get("processes", 1) > 1:
            jax.distributed.shutdown()  # which the others wait for: one that sees the first go away is ended
        os._exit(status)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def damage(workdir: str, name: str) -> None:
    """Cuts the files of a folder of the newest checkpoint short."""
    checkpoints = pathlib.Path(workdir, "checkpoints")
    newest = max((path for path in checkpoints.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    for path in newest.glob(f"*/{name}/d/*"):
        os.truncate(path, 100)


def main(recipe_file: str, workdir: str, runs_file: str) -> None:
    with open(runs_file) as file:
        runs = json.load(file)
    for run in runs:
        if "damage" in run:
            damage(workdir, run["damage"])
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        children = [start(recipe_file, workdir, i, port, run) for i in range(run.get("processes", 1))]
        statuses = [os.waitpid(child, 0)[1] for child in children]
        if signal.SIGKILL in statuses:  # a process that sees another die may end by itself
            done = "killed"
        else:
            done = {0: "finished", 128 + signal.SIGTERM: "stopped"}.get(os.waitstatus_to_exitcode(statuses[0]))
            assert done and len(set(statuses)) == 1, f"{run}: {statuses}"
        print(done, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
