"""BERT-base's pretraining step: bert_jax and PyTorch at its best, beside the fastest matrix products of the machine."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import BATCH, LENGTH
from benchmarks.limits import limits, peak_of
from benchmarks.ours import pretraining_task, random_batch
from benchmarks.turns import Rival, append, ratio
from bert_jax.training.flops import step_flops

DTYPES = ("float32", "bfloat16")
PYTORCH = ("eager", "compile")


def measure(dtype: str, turns: int, modes: Sequence[str] = PYTORCH) -> list[dict[str, Any]]:
    """Run the competitors in alternation; return a row for each."""
    task = pretraining_task(dtype)
    flops = step_flops(task.model, random_batch(task.model.config.vocab_size)) / (BATCH * LENGTH)  # a token
    products = limits(dtype)
    ours = Rival("benchmarks.ours", "pretraining", dtype)
    theirs = {f"PyTorch {mode}": Rival("benchmarks.pytorch", "pretraining", dtype, mode) for mode in modes}
    rivals = {"bert_jax": ours, **theirs}
    for _ in range(turns):
        for product in products:
            product.turn(100)
        for name, rival in rivals.items():
            rival.turn(2 if name == "bert_jax" else 1)
    for rival in (*products, *rivals.values()):
        rival.end()
    peak = peak_of(products)
    return [
        {
            "dtype": dtype,
            "implementation": name,
            "tokens_per_second": round(statistics.median(rival.rates), 1),
            "ratio": round(ratio(ours.rates, rival.rates), 3),
            "share_of_peak": round(statistics.median(rival.rates) * flops / peak, 4),
            "peak_gflops": round(peak / 1e9, 1),
            "resident_gb": round(rival.resident_bytes / 1e9, 3),
            "peak_resident_gb": round(rival.peak_bytes / 1e9, 3),
        }
        for name, rival in rivals.items()
    ]


def main(turns: int, record: Path | None, dtypes: Sequence[str] = DTYPES, modes: Sequence[str] = PYTORCH) -> None:
    """Print a table, and append its rows to a JSON lines file.

    Args:
        turns: turns of each side.
        record: JSON lines file, or None.
        dtypes: dtypes of both sides.
        modes: how PyTorch runs, of `PYTORCH`.
    """
    print(f"BERT-base pretraining step, {BATCH} x {LENGTH}, dropout; medians of {turns} turns\n")
    print("| dtype | | tokens/s | bert_jax is ahead by | share of the fastest product | resident GB, at most |")
    print("|---|---|---|---|---|---|", flush=True)
    for dtype in dtypes:
        for row in measure(dtype, turns, modes):
            print(
                f"| {dtype} | {row['implementation']} | {row['tokens_per_second']:.0f} | {row['ratio']:.2f} | "
                f"{row['share_of_peak']:.0%} of {row['peak_gflops']:.0f} GFLOP/s | "
                f"{row['resident_gb']:.2f}, {row['peak_resident_gb']:.2f} |",
                flush=True,
            )
            append(record, row)
