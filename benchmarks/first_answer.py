"""Seconds from the start of a process to its first answer, with a warm cache, compared with sentence-transformers."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.pipelines import write_classifier

_COMPILATIONS = """
import sys, jax
events = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))
from bert_jax.inference import pipeline
pipeline(sys.argv[1], sys.argv[2])("a first text")
print(sum("backend_compile" in event for event in events), sum("trace" in event for event in events))
"""
_IMPORT_AND_READ = """
import sys, jax
with open(sys.argv[1] + "/model.safetensors", "rb") as file:
    file.read()
"""
_THEIRS = """
import sys
from sentence_transformers import SentenceTransformer
SentenceTransformer(sys.argv[1], device="cpu").encode("a first text")
"""


def main(model: Path, turns: int) -> None:
    """Print the median seconds of each process, in alternation, and the compilations of ours.

    Args:
        model: all-MiniLM-L6-v2.
        turns: number of processes of each kind.
    """
    with tempfile.TemporaryDirectory() as directory:
        classifier = f"{directory}/classifier"
        write_classifier(model, classifier)
        environment = os.environ | {"XDG_CACHE_HOME": f"{directory}/cache"}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        ours = [sys.executable, "-m", "bert_jax"]
        commands = {
            "bert-jax embed": [*ours, "embed", str(model), "a first text"],
            "bert-jax classify": [*ours, "classify", classifier, "a first text"],
            "sentence-transformers": [sys.executable, "-c", _THEIRS, str(model)],
            "import jax, and read the weights": [sys.executable, "-c", _IMPORT_AND_READ, str(model)],
        }
        run = _runner(environment)
        cold = {name: run(command)[0] for name, command in commands.items()}
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(turns):
            for name, command in commands.items():
                seconds[name].append(run(command)[0])
        for name, found in seconds.items():
            print(f"{name}: {statistics.median(found):.2f} s ({min(found):.2f} to {max(found):.2f}), "
                  f"the first time {cold[name]:.2f} s", flush=True)  # fmt: skip
        for task, path in (("embed", str(model)), ("classify", classifier)):
            _, printed = run([sys.executable, "-c", _COMPILATIONS, task, path])
            compiled, traced = printed.split()
            print(f"{task} with a warm cache: {compiled} compilations, {traced} traces")


def _runner(environment: dict[str, str]) -> Callable[[list[str]], tuple[float, str]]:
    def run(command: list[str]) -> tuple[float, str]:
        start = time.perf_counter()
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return time.perf_counter() - start, done.stdout

    return run
