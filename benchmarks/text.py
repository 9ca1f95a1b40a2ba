"""Text into examples, and examples into batches: tokens a second of one core, by CPU time."""

import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before the library is loaded: one core is measured

import tokenizers

from bert_jax.data.corpora import open_corpus
from bert_jax.data.pipeline import PretrainingSource
from bert_jax.data.prepare import prepare
from bert_jax.tokenization import load_tokenizer

_LINES = 1000  # that the plain tokenizer is given at once
_BATCHES = 40


def main(corpus: Sequence[str], vocabulary: Path, turns: int) -> None:
    """Prints what preparing a corpus costs beside tokenizing it, and how fast batches come out of it."""
    plain = tokenizers.BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    lines = list(open_corpus(corpus).texts())
    tokens = sum(len(line.ids) for line in plain.encode_batch(lines, add_special_tokens=False))
    print(f"{tokens:,} tokens of text; M tokens/s of one core, median of {turns}", flush=True)

    def encode() -> None:
        for start in range(0, len(lines), _LINES):
            plain._tokenizer.encode_batch_fast(lines[start : start + _LINES], add_special_tokens=False)

    with tempfile.TemporaryDirectory() as directory:

        def examples(turn: int) -> None:
            prepare(
                corpus, load_tokenizer(vocabulary), f"{directory}/{turn}", packed=True, max_seq_length=(128, 512),
                dupe_factor=1, num_workers=1,
            )  # fmt: skip

        alone, prepared = [], []
        for turn in range(turns):
            alone.append(tokens / seconds(encode))
            prepared.append(tokens / seconds(functools.partial(examples, turn)))
        ratios = sorted(ours / theirs for ours, theirs in zip(prepared, alone, strict=True))
        for name, rates in (("tokenizers, encode_batch", alone), ("prepare, lengths 128 and 512", prepared)):
            print(f"{name:32} {statistics.median(rates) / 1e6:6.2f}")
        print(f"{'ratio':32} {statistics.median(ratios):6.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)
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
    """CPU seconds of this process that `work` takes."""
    start = time.process_time()
    work()
    return time.process_time() - start
