"""Time and memory of converting a checkpoint, compared with loading and saving it in transformers."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bert_jax.config import BertConfig

_THEIRS = """
import sys, transformers
transformers.BertForPreTraining.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])
"""
_MAKE = """
import json, sys, torch, transformers
torch.manual_seed(0)
config = transformers.BertConfig(**json.loads(sys.argv[2]))
model = transformers.BertForPreTraining(config)
config.architectures = ["BertForPreTraining"]
config.save_pretrained(sys.argv[1])
torch.save(model.state_dict(), sys.argv[1] + "/pytorch_model.bin")
"""


def main(size: str, turns: int) -> None:
    """Print time and peak memory of `bert-jax convert` and of transformers, in alternation, on a pickled checkpoint."""
    config = BertConfig.named(size)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    with tempfile.TemporaryDirectory() as directory:
        source = f"{directory}/source"
        shape = json.dumps({name: getattr(config, name) for name in names})
        subprocess.run([sys.executable, "-c", _MAKE, source, shape], check=True, stderr=subprocess.DEVNULL)
        megabytes = Path(source, "pytorch_model.bin").stat().st_size / 1e6
        print(f"BERT-{size}, pytorch_model.bin of {megabytes:,.0f} MB to model.safetensors", flush=True)
        results: dict[str, list[tuple[float, float]]] = {"bert_jax": [], "transformers": []}
        for turn in range(turns):
            commands = {
                "bert_jax": [sys.executable, "-m", "bert_jax", "convert", source, f"{directory}/ours{turn}"],
                "transformers": [sys.executable, "-c", _THEIRS, source, f"{directory}/theirs{turn}"],
            }
            for who, command in commands.items():
                results[who].append(measured(command))
    for who, turns_of in results.items():
        seconds, most = zip(*turns_of, strict=True)
        low, high, middle = min(seconds), max(seconds), sorted(seconds)[len(seconds) // 2]
        print(f"{who:13} {middle:6.1f} s ({low:.1f} to {high:.1f})   {max(most):7,.0f} MB at most")


def measured(command: list[str]) -> tuple[float, float]:
    """Return the seconds and the peak resident memory in MB of a process."""
    measuring = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=2); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", measuring, *command], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return time.perf_counter() - start, int(done.stdout) * unit / 1e6
