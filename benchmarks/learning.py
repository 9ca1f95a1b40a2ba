"""Held-out loss by step: bert_jax compared with a loop of transformers, or several runs."""

import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bert_jax.data.pretraining.prepare import prepare
from bert_jax.tokenization import load_tokenizer

LENGTH, BATCH, LEARNING_RATE = 128, 16, 1e-3
SIZE = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
HELD_OUT = 512  # examples
_EVALUATIONS = 12

Curve = dict[int, float]  # step -> masked-LM loss on the held-out examples


def main(corpus: Sequence[str], vocabulary: Path, steps: int, seeds: int, picture: Path) -> None:
    """Print both losses after the last step and draw the curves: one a seed, both with the same hyper-parameters."""
    with tempfile.TemporaryDirectory() as directory:
        prepared = f"{directory}/prepared"
        prepare(corpus, load_tokenizer(vocabulary), prepared, max_seq_length=LENGTH, validation_fraction=0.05)
        every = max(1, steps // _EVALUATIONS)
        curves: dict[str, list[Curve]] = {"bert_jax": [], "transformers": []}
        for seed in range(seeds):
            curves["bert_jax"].append(_ours(prepared, f"{directory}/{seed}", steps, every, seed))
            curves["transformers"].append(_theirs(prepared, steps, every, seed))
            for name, found in curves.items():
                print(f"seed {seed}  {name:12} " + "  ".join(f"{v:.3f}" for v in found[-1].values()), flush=True)
    last = {name: [list(curve.values())[-1] for curve in found] for name, found in curves.items()}
    for name, losses in last.items():
        spread = statistics.stdev(losses) if seeds > 1 else 0.0
        print(f"{name:12} after {steps} steps of {BATCH}: {statistics.mean(losses):.3f} +- {spread:.3f}")
    _draw(curves, picture, f"steps of {BATCH} x {LENGTH} tokens")


def _ours(prepared: str, workdir: str, steps: int, every: int, seed: int) -> Curve:
    settings = {
        "data.prepared": prepared, "data.sequence_length": LENGTH, "data.eval_batches": HELD_OUT // BATCH,
        "stages": "()", "num_steps": steps, "global_batch_size": BATCH, "seed": seed, "model.size": "mini",
        "optimizer.learning_rate": LEARNING_RATE, "optimizer.schedule": "linear", "optimizer.warmup_steps": steps // 10,
        "optimizer.bias_correction": True, "optimizer.eps": 1e-8, "eval_every": every, "checkpoint_every": 0,
        "dtype": "float32",
    }  # fmt: skip
    command = [sys.executable, "-m", "bert_jax", "pretrain", "--config", "bert_base", "--workdir", workdir]
    subprocess.run([*command, *(f"--config.{k}={v}" for k, v in settings.items())], check=True, stderr=subprocess.PIPE)
    return _curve(Path(workdir))


def _theirs(prepared: str, steps: int, every: int, seed: int) -> Curve:
    command = [sys.executable, "-m", "benchmarks.pytorch", "learning", prepared, *map(str, (steps, every, seed))]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss ([\d.]+)", said)}


def runs(workdirs: Sequence[Path], picture: Path) -> None:
    """Draw the held-out loss of the runs in these work directories."""
    _draw({workdir.name: [_curve(workdir)] for workdir in workdirs}, picture, "steps")


def _curve(workdir: Path) -> Curve:
    lines = map(json.loads, Path(workdir, "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return {line["step"]: line["eval/mlm_loss"] for line in lines if "eval/mlm_loss" in line}


def _draw(curves: Mapping[str, Sequence[Curve]], picture: Path, unit: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for number, (name, found) in enumerate(curves.items()):
        for i, curve in enumerate(found):
            axes.plot(list(curve), list(curve.values()), color=f"C{number}", alpha=0.7, label=None if i else name)
    axes.set(xlabel=unit, ylabel="held-out masked-LM loss (nats)")
    axes.legend()
    figure.savefig(picture, dpi=120, bbox_inches="tight")
