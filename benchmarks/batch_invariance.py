"""What `batch_invariant` guarantees and costs: bits of texts alone, in batches, shuffled and padded, and texts/s."""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.inference import pipeline

TEXTS = 10_000
_ALONE = 200  # texts of a turn that are embedded alone


def main(data: Path, model: Path, turns: int) -> None:
    """Print the number of texts with equal bits for each way to embed them, and texts/s with and without the option.

    Args:
        data: the directory of SST-2, whose training sentences are the texts.
        model: all-MiniLM-L6-v2.
        turns: number of turns for each speed.
    """
    lines = (data / "train.tsv").read_text().splitlines()[1 : TEXTS + 1]
    texts = [line.split("\t")[0] for line in lines]
    plain, invariant = pipeline("embed", model), pipeline("embed", model, batch_invariant=True)
    together = invariant(texts)
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = np.empty_like(together)
    shuffled[order] = invariant([texts[i] for i in order])
    ways = {
        "in batches of 64": np.concatenate([invariant(texts[i : i + 64]) for i in range(0, len(texts), 64)]),
        "shuffled": shuffled,
        "padded to 512": _padded(invariant, texts),
        "alone": np.stack([invariant(text) for text in texts]),
    }
    for name, vectors in ways.items():
        print(f"{name}: {int((vectors == together).all(axis=1).sum()):,} of {len(texts):,} equal", flush=True)
    others = np.stack([plain(text) for text in texts[:_ALONE]])
    print(f"without the option, alone: {int((others == plain(texts)[:_ALONE]).all(axis=1).sum()):,} of {_ALONE} equal")
    for name, calls in (("all texts", [texts]), ("texts alone", texts[:_ALONE])):
        rates: dict[str, list[float]] = {"without": [], "with": []}
        for _ in range(turns):
            for which, embed in (("without", plain), ("with", invariant)):
                start = time.perf_counter()
                for call in calls:
                    embed(call)
                rates[which].append((len(texts) if calls[0] is texts else _ALONE) / (time.perf_counter() - start))
        slow, fast = (statistics.median(rates[which]) for which in ("with", "without"))
        print(f"{name}: {fast:.0f} texts/s without the option, {slow:.0f} with it, ratio {slow / fast:.2f}", flush=True)


def _padded(embed: Any, texts: list[str]) -> np.ndarray:
    """Return the vectors of texts whose rows of tokens are padded to 512."""
    rows = embed.tokenizer(texts, max_length=256, truncation=True)
    wide = {name: np.pad(array, ((0, 0), (0, 512 - array.shape[1]))) for name, array in rows.items()}
    wide["input_ids"][wide["attention_mask"] == 0] = embed.tokenizer.pad_id
    vectors = np.empty((len(texts), embed.model.config.sentence_embedding_size), np.float32)
    for numbers, _, output in embed._batches(wide, ("sentence_embedding",)):
        vectors[numbers] = output.sentence_embedding
    return vectors
