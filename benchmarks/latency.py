"""Milliseconds from one text to its vector, beside onnxruntime: `python -m benchmarks latency`.

python -m benchmarks.latency ours|onnxruntime MODEL EXPORTED TOKENS
"""

import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.pipelines import exported_embedder
from benchmarks.quantization import export_onnx, run_apart
from benchmarks.turns import Rival, append, ratio, serve

TOKENS = (16, 128, 512)
SIDES = ("ours", "onnxruntime")


def main(model: Path, turns: int, record: Path | None) -> None:
    """Print medians of both sides in float32, in alternation; append them to a JSON lines file.

    Args:
        model: all-MiniLM-L6-v2, which onnxruntime runs as PyTorch exports it, with the same tokenizer library.
        turns: turns of each side and length, about a second each.
        record: JSON lines file, or None.
    """
    print("| tokens | bert_jax, ms | onnxruntime, ms | bert_jax is ahead by |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "model.onnx"
        run_apart(export_onnx, "stsb", model, file, file)
        whole = Path(shutil.copytree(model, Path(directory) / "model"))
        (whole / "sentence_bert_config.json").unlink()  # its limit of 256 tokens
        for tokens in TOKENS:
            rivals = [Rival("benchmarks.latency", side, str(whole), directory, str(tokens)) for side in SIDES]
            for _ in range(turns):
                for rival in rivals:
                    rival.turn(max(5, 2000 // tokens))
            for rival in rivals:
                rival.end()
            ours, theirs = (1e3 / statistics.median(rival.rates) for rival in rivals)
            ahead = ratio(*(rival.rates for rival in rivals))
            print(f"| {tokens} | {ours:.2f} | {theirs:.2f} | {ahead:.2f} |", flush=True)
            append(record, {"tokens": tokens, "bert_jax_ms": ours, "onnxruntime_ms": theirs, "ratio": ahead})


def _ours(model: str, _: str) -> Callable[[list[str]], Any]:
    import bert_jax

    return bert_jax.pipeline("embed", model)


def _onnxruntime(model: str, exported: str) -> Callable[[list[str]], Any]:
    return exported_embedder("onnxruntime float32", model, exported, limit=512)


def rival(side: str, model: str, exported: str, tokens: str) -> None:
    """Run one side: embed a text of so many tokens, one call after the other."""
    embed = {"ours": _ours, "onnxruntime": _onnxruntime}[side](model, exported)
    text = " ".join(["cat"] * (int(tokens) - 2))

    def work(count: int) -> int:
        for _ in range(count):
            embed([text])
        return count

    serve(work)


if __name__ == "__main__":
    rival(*sys.argv[1:])
