"""Check that JAX is not called in a process that was forked from one that runs models."""

import os

_runs_jax: int | None = None  # id of the process that has begun to run models


def check_fork() -> None:
    """Raise RuntimeError in a process that was forked from one that runs models: a call of JAX there would hang."""
    global _runs_jax
    if _runs_jax not in (None, os.getpid()):
        raise RuntimeError(
            "expected a spawned process, found one forked from a process that runs models, where JAX would hang: "
            'start it with multiprocessing.get_context("spawn"), or load and call models only after the fork'
        )
    _runs_jax = os.getpid()
