"""Run by test_resume.py: trains by a recipe again and again in forked processes, killing all but the last of them.

Usage: killed_runs.py RECIPE.json WORKDIR KILL_AT_STEP...   The imports happen once, before the forks.
"""

import os
import random
import signal
import sys
import threading

import bert_jax.tasks.classification
import bert_jax.tasks.pretraining  # noqa: F401
from bert_jax import recipes, tasks
from bert_jax.training.loop import train


def kill_self_at(step: int) -> None:
    """Has this process killed at some moment around the reading of the batch of `step`."""
    build = tasks.build

    def build_with_a_bomb(recipe, workdir):
        job = build(recipe, workdir)
        batch = job.train_source.batch

        def watched(at, rows=slice(None)):
            if at == step:
                delay = random.uniform(0, 0.02)
                threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return batch(at, rows)

        job.train_source.batch = watched
        return job

    tasks.build = build_with_a_bomb


def run(recipe: str, workdir: str, kill_at: int | None) -> int:
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        if kill_at is not None:
            kill_self_at(kill_at)
        train(recipes.load_recipe(recipe), workdir)
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
    recipe, workdir, *steps = sys.argv[1:]
    for step in [*map(int, steps), None]:
        status = run(recipe, workdir, step)
        assert status in (0, signal.SIGKILL), f"status {status} with the kill at step {step}"
        print(step, "killed" if status else "finished")
