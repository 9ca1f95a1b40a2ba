"""Seconds from the start of `bert-jax pretrain` to its first step, with and without programs in the cache."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import BATCH, LENGTH
from benchmarks.loop import prepared_documentation
from benchmarks.turns import append

_IMPORT = "import time; start = time.perf_counter(); import bert_jax; print(time.perf_counter() - start)"


def main(turns: int, record: Path | None) -> None:
    """Print medians of `turns` processes each, in alternation; append them to a JSON lines file.

    Measured are `import bert_jax` (within Python), `bert-jax --help` and `python -c pass` (whole processes), and
    BERT-base's pretraining by its recipe: until its first step has been dispatched, and that step, of 16 x 128 tokens.
    """
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        prepared = prepared_documentation(Path(directory))
        for turn in range(turns):
            cache = f"{directory}/cache_{turn}"
            for name, found in {
                "python -c pass": _whole("-c", "pass"),
                "import bert_jax": float(_run("-c", _IMPORT)),
                "bert-jax --help": _whole("-m", "bert_jax", "--help"),
                **_pretraining("empty cache", prepared, f"{directory}/cold_{turn}", cache),
                **_pretraining("programs in the cache", prepared, f"{directory}/warm_{turn}", cache),
            }.items():
                seconds.setdefault(name, []).append(found)
    rows = [
        {"what": name, "seconds": round(statistics.median(found), 3), "least": round(min(found), 3),
         "most": round(max(found), 3)}
        for name, found in seconds.items()
    ]  # fmt: skip
    for row in rows:
        print(f"{row['what']}: {row['seconds']:.2f} s ({row['least']:.2f} to {row['most']:.2f})", flush=True)
    append(record, *rows)


def _run(*words: str) -> str:
    return subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True).stdout


def _whole(*words: str) -> float:
    start = time.perf_counter()
    _run(*words)
    return time.perf_counter() - start


def _pretraining(name: str, prepared: str, workdir: str, cache: str) -> dict[str, float]:
    """Start BERT-base's pretraining, end it after its first line of metrics; return the seconds until then by name."""
    keys = {"data.prepared": prepared, "data.sequence_length": LENGTH, "stages": "()", "global_batch_size": BATCH,
            "num_steps": 20_000, "log_every": 1}  # fmt: skip
    command = [sys.executable, "-m", "bert_jax", "pretrain", "--config", "bert_base", "--workdir", workdir, "--quiet"]
    environment = os.environ | {"XDG_CACHE_HOME": cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    start, metrics = time.perf_counter(), Path(workdir, "metrics.jsonl")
    run = subprocess.Popen([*command, *(f"--config.{key}={value}" for key, value in keys.items())], env=environment)
    while not (metrics.exists() and metrics.read_text()):
        if run.poll() is not None:
            raise SystemExit(f"benchmarks: pretraining ended with status {run.returncode}")
        time.sleep(0.01)
    seconds = time.perf_counter() - start
    run.kill()
    run.wait()
    of_step = json.loads(metrics.read_text().splitlines()[0])["train/training_seconds"]
    return {f"{name}: before the first step": seconds - of_step, f"{name}: the first step itself": of_step}
