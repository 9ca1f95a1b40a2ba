"""Training steps and forward passes on a GPU, beside PyTorch's, in bfloat16: `python -m benchmarks gpu`.

Needs jax, flax, optax and orbax, whose wheels can be carried to a machine without a network, torch and transformers;
no data and no weights. After 7 minutes it starts no further competitor.
"""

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks.ours import pretraining_task, random_batch
from benchmarks.turns import Rival, append
from bert_jax.config import BertConfig
from bert_jax.training.flops import forward_flops, step_flops


class Case(NamedTuple):
    """What both sides do: `what` is a function of `benchmarks.ours` and of `benchmarks.pytorch`."""

    what: str
    size: str
    sequences: int
    length: int


CASES = (
    Case("pretraining", "base", 64, 128),
    Case("pretraining", "base", 32, 512),
    Case("pretraining", "large", 32, 128),
    Case("encoding", "base", 256, 128),
    Case("encoding", "base", 64, 512),
)
DTYPE = "bfloat16"
PRODUCT = (8192, 8192, 8192)  # of the limit
LIMIT = 420.0  # seconds after which no competitor is started
SECONDS = 1.0  # of a turn


def main(turns: int, record: Path | None, cases: Sequence[Case] = CASES, product: Sequence[int] = PRODUCT) -> None:
    """Print a table, and append its rows to a JSON lines file. Each side has the GPU to itself.

    Args:
        turns: turns of each side, about a second each.
        record: JSON lines file, or None.
        cases: what to run.
        product: sizes of the matrix product that is the limit.
    """
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # else this process and each competitor take all memory
    begun = time.monotonic()
    peak = max(_run(turns, "limits", library, DTYPE, *map(str, product))["rate"] for library in ("jax", "torch"))
    device = jax.devices()[0].device_kind
    print(f"{device}, jax {jax.__version__}; the fastest product {peak / 1e12:.1f} TFLOP/s\n")
    print(
        "| | | tokens/s | of the fastest product | GB, at most | ready after, s |\n|---|---|---|---|---|---|",
        flush=True,
    )
    for case in cases:
        flops = _flops(case)
        for name, words in {
            "bert_jax": ("ours", case.what, DTYPE),
            "PyTorch, eager": ("pytorch", case.what, DTYPE, "eager"),
            "PyTorch, compiled": ("pytorch", case.what, DTYPE, "compile"),
        }.items():
            if time.monotonic() - begun > LIMIT:
                print(f"| {' '.join(map(str, case))} | {name} | not measured after {LIMIT:.0f} s | | | |", flush=True)
                continue
            row = {"device": device, **case._asdict(), "implementation": name, "peak_tflops": peak / 1e12}
            row |= _run(turns, *words, case.size, str(case.sequences), str(case.length))
            row["share_of_peak"] = row["rate"] * flops / peak
            print(
                f"| {case.what}, {case.size}, {case.sequences} x {case.length} | {name} | {row['rate']:,.0f} | "
                f"{row['share_of_peak']:.0%} | {row['peak_gb']:.2f} | {row['warm_up_seconds']:.0f} |", flush=True
            )  # fmt: skip
            append(record, row)


def _run(turns: int, module: str, *words: str) -> dict[str, Any]:
    """Run a competitor alone; return its median rate, its peak memory, and the seconds until it was warm."""
    start = time.monotonic()
    rival = Rival(f"benchmarks.{module}", *words)
    warm = time.monotonic() - start
    units = 1
    while True:  # as many units as take a second
        start = time.monotonic()
        rival.turn(units)
        spent = time.monotonic() - start
        if spent > SECONDS / 2:
            break
        units *= 2
    for _ in range(turns):
        rival.turn(units)
    rival.end()
    return {
        "rate": statistics.median(rival.rates[-turns:]),
        "peak_gb": rival.peak_bytes / 1e9,
        "warm_up_seconds": warm,
    }


def _flops(case: Case) -> float:
    """Return the model FLOPs of a token."""
    config, tokens = BertConfig.named(case.size), case.sequences * case.length
    if case.what == "encoding":
        return forward_flops(config, "sentence_embedding", case.sequences, case.length) / tokens
    batch = random_batch(config.vocab_size, case.sequences, case.length)
    return step_flops(pretraining_task(DTYPE, case.size).model, batch) / tokens
