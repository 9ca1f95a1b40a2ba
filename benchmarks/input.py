"""`python -m benchmarks input`: the speed of batches for pretraining from a local disk and from an object store.

The store is the emulator of the tests, on this machine. One process makes whole batches with masks, as in a run on one
host. The bytes in memory are those of prefetched blocks.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bert_jax import storage
from bert_jax.data.pretraining.instances import Instance, encode_record, token_dtype
from bert_jax.data.pretraining.manifest import TOKENIZER_DIR, InstanceSet, Manifest
from bert_jax.data.pretraining.shards import write_shard
from bert_jax.data.pretraining.sources import PretrainingSource
from bert_jax.tokenization import word_piece

LENGTH, BATCH = 128, 256
_BUCKET = Path(__file__).parents[1] / "tests" / "bucket.py"
_VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(30_000)))


def write_examples(directory: storage.Path, num_rows: int, num_shards: int = 8) -> None:
    """Write a prepared directory of random pairs of full length."""
    tokenizer, dtype, rng = word_piece(_VOCABULARY), token_dtype(len(_VOCABULARY)), np.random.default_rng(0)
    tokenizer.save(directory / TOKENIZER_DIR)
    shards = []
    for number in range(num_shards):
        tokens = rng.integers(5, len(_VOCABULARY), (num_rows // num_shards, LENGTH - 3)).astype(dtype)
        records = [encode_record([Instance(row[:60], row[60:], 0)], dtype) for row in tokens]
        shards.append(write_shard(directory / f"train-{LENGTH}-{number:05d}.npy", records, dtype))
    rows = sum(shard.rows for shard in shards)
    instances = InstanceSet("train", LENGTH, rows, 1, rows * LENGTH, 0, tuple(shards))
    Manifest(
        settings={}, objective="nsp", packed=False, tokenizer_fingerprint=tokenizer.fingerprint,
        vocab_size=len(_VOCABULARY), token_dtype=dtype.name, documents={}, sentences={}, sets=(instances,),
    ).write(directory)  # fmt: skip


def read(directory: str, steps: int) -> dict[str, float]:
    """Make the batches of some steps, and return times, requests and memory."""
    start = time.perf_counter()
    source = PretrainingSource(directory, "train", LENGTH, BATCH)
    opened, requests_to_open = time.perf_counter(), storage.request_counts().requests
    source.batch(0)
    first, peak, slowest = time.perf_counter(), 0, 0.0
    requests, cpu = storage.request_counts().requests, time.process_time()
    for step in range(1, steps + 1):
        began = time.perf_counter()
        source.batch(step)
        slowest = max(slowest, time.perf_counter() - began)
        if step % 50 == 0:
            peak = max(peak, getattr(source.instances.reader, "cached_bytes", 0))
    seconds = time.perf_counter() - first
    return {
        "opened": opened - start,
        "requests_to_open": requests_to_open,
        "first": first - opened,
        "tokens": steps * BATCH * LENGTH / seconds,
        "cpu": (time.process_time() - cpu) / seconds,
        "slowest": slowest,
        "requests": (storage.request_counts().requests - requests) / steps,
        "peak": peak,
    }


def report(name: str, directory: str, steps: int, environment: dict[str, str]) -> None:
    """Run `read` in a separate process and print its result."""
    command = [sys.executable, "-m", "benchmarks.input", "--read", directory, "--steps", str(steps)]
    output = subprocess.run(command, env=os.environ | environment, check=True, stdout=subprocess.PIPE).stdout
    found = json.loads(output.splitlines()[-1])
    print(
        f"{name:26} {found['tokens'] / 1e6:5.2f} M tokens/s on {found['cpu']:.2f} cores; "
        f"{found['requests']:.3f} requests a step, {found['peak'] / 2**20:.0f} MiB of blocks; "
        f"slowest step {found['slowest'] * 1e3:.0f} ms; opened in {found['opened']:.2f} s by "
        f"{found['requests_to_open']:.0f} requests, first batch {found['first']:.2f} s later",
        flush=True,
    )


def main(words: list[str] | None = None) -> None:
    """Print tokens/s, requests and memory of each place."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.input", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=768_000, help="rows of the data (default: %(default)s, which are 192 MiB)"
    )
    parser.add_argument("--steps", type=int, default=2500, help="measured steps (default: %(default)s)")
    parser.add_argument("--read", help="only make batches from this directory, and print JSON")
    args = parser.parse_args(words)
    if args.read:
        print(json.dumps(read(args.read, args.steps)))
        return
    spec = importlib.util.spec_from_file_location("bucket", _BUCKET)
    assert spec is not None and spec.loader is not None
    emulator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(emulator)
    with tempfile.TemporaryDirectory() as folder:
        local = storage.Path(folder)
        write_examples(local, args.rows)
        report("local disk", folder, args.steps, {})
        for name, faults in (("gs://", {}), ("gs://, 20 ms a request", {"latency": 0.02})):
            with emulator.Bucket(faults=faults) as bucket:
                for file in local.files_below():
                    bucket.write(f"prepared/{file.relative_to(local)}", file.read_bytes())
                report(name, f"gs://{bucket.name}/prepared", args.steps, bucket.environment)


if __name__ == "__main__":
    main()
