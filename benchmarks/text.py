"""Speed of `prepare` and of making batches: tokens per second of one core, by CPU time."""

import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before the library is loaded: one core is measured

import tokenizers

from bert_jax.data.corpora.sources import open_corpus
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.data.pretraining.sources import PretrainingSource
from bert_jax.tokenization import load_tokenizer

_LINES = 1000  # that the plain tokenizer is given at once
_BATCHES = 40


def main(corpus: Sequence[str], vocabulary: Path, turns: int) -> None:
    """Print the speed of `prepare` relative to tokenization, and the speed of batches."""
    plain = tokenizers.BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    lines = list(open_corpus(corpus).texts())
    tokens = sum(len(line.ids) for line in plain.encode_batch(lines, add_special_tokens=False))
    print(f"{tokens:,} tokens of text; M tokens/s of one core, median of {turns}", flush=True)

    def encode(batch: Callable[..., Any]) -> None:
        for start in range(0, len(lines), _LINES):
            batch(lines[start : start + _LINES], add_special_tokens=False)

    with tempfile.TemporaryDirectory() as directory:

        def examples(turn: int) -> None:
            prepare(
                corpus, load_tokenizer(vocabulary), f"{directory}/{turn}", packed=True, max_seq_length=(128, 512),
                dupe_factor=1, num_workers=1,
            )  # fmt: skip

        alone = {name: list[float]() for name in ("encode_batch", "encode_batch_fast")}
        prepared = []
        for turn in range(turns):
            for name, taken in alone.items():
                taken.append(seconds(functools.partial(encode, getattr(plain._tokenizer, name))))
            prepared.append(seconds(functools.partial(examples, turn)))
        print(f"{'prepare, lengths 128 and 512':32} {tokens / statistics.median(prepared) / 1e6:6.2f}")
        for name, taken in alone.items():
            ratios = sorted(theirs / ours for ours, theirs in zip(prepared, taken, strict=True))
            rate = tokens / statistics.median(taken) / 1e6
            print(
                f"{'tokenizers, ' + name:32} {rate:6.2f}  prepare is {statistics.median(ratios):.2f} times as fast "
                f"({ratios[0]:.2f} to {ratios[-1]:.2f})",
                flush=True,
            )
        for length, rows in ((128, 256), (512, 64)):
            source = PretrainingSource(f"{directory}/0", "train", length, rows, mask_unit="word")
            read = functools.partial(_read, source)
            rates = [_BATCHES * rows * length / seconds(read) for _ in range(turns)]
            name = f"batches of {rows} x {length}"
            print(f"{name:32} {statistics.median(rates) / 1e6:6.2f}  packed pairs, whole words masked", flush=True)


def _read(source: PretrainingSource) -> None:
    for step in range(_BATCHES):
        source.batch(step)


def seconds(work: Callable[[], None]) -> float:
    """Return the CPU seconds of this process for `work`."""
    start = time.process_time()
    work()
    return time.process_time() - start


def memory(corpus: Sequence[str], vocabulary: Path, repetitions: Sequence[int]) -> None:
    """Print the peak memory of `prepare` over all processes, for a corpus repeated several times."""
    for times in repetitions:
        with tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, "-m", "bert_jax", "prepare", *list(corpus) * times, "--dupe-factor=1"]
            start = time.perf_counter()
            process = subprocess.Popen([*command, "--tokenizer", vocabulary, "--out", f"{directory}/prepared"])
            peak = 0
            while process.poll() is None:
                peak = max(peak, _resident(process.pid))
                time.sleep(0.1)
            size = open_corpus(list(corpus) * times).num_bytes
            print(f"{(size or 0) / 1e9:.2f} GB of text: at most {peak / 1e9:.2f} GB of memory, "
                  f"{time.perf_counter() - start:.0f} s, exit status {process.returncode}", flush=True)  # fmt: skip


def _resident(pid: int) -> int:
    """Return the memory of a process and its children in bytes, with shared memory counted once (Linux)."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0
    share = next((line for line in rollup.splitlines() if line.startswith("Pss:")), "Pss: 0 kB")
    return 1024 * int(share.split()[1]) + sum(_resident(int(child)) for child in children)
