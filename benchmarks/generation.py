"""Text written by masked diffusion, beside a plain masked LM with the same budget and a bigram model.

Both models have the same size, data, optimizer and number of steps. They write texts from mask tokens alone by the same
unmasking. The judge is a trigram model of the half of the held-out text that no model has seen.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.turns import append
from bert_jax import recipes
from bert_jax.data.corpora.sources import open_corpus
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.inference import pipeline
from bert_jax.metrics.generation import distinct_ngrams
from bert_jax.tokenization import Tokenizer, load_tokenizer
from bert_jax.tokenization.training import train_wordpiece
from bert_jax.training.loop import train

_LENGTH = 64  # tokens of a row
_WORDS = _LENGTH - 4  # tokens of a generated text
_TEXTS = 128
_VOCABULARY = 8000
_SAMPLERS: dict[str, dict[str, Any]] = {
    "random order": {"order": "random"},
    "random order, top-p 0.8": {"order": "random", "top_p": 0.8},
    "most confident first": {"order": "confidence"},
}


class Trigrams:
    """A trigram model of tokens, interpolated with bigrams and unigrams as Witten and Bell do (1991)."""

    def __init__(self, texts: Sequence[Sequence[int]], size: int):
        self._size = size
        self._counts: Counter[tuple[int, ...]] = Counter()  # of n-grams
        self._seen: Counter[tuple[int, ...]] = Counter()  # of contexts with a token behind them
        self._followers: Counter[tuple[int, ...]] = Counter()  # of different tokens behind a context
        for text in texts:
            self._counts.update(tuple(text[i : i + n]) for n in (1, 2, 3) for i in range(len(text) - n + 1))
        for gram, count in self._counts.items():
            self._seen[gram[:-1]] += count
            self._followers[gram[:-1]] += 1

    def _probability(self, gram: tuple[int, ...]) -> float:
        if not gram:
            return 1 / self._size
        shorter, kinds = self._probability(gram[1:]), self._followers[gram[:-1]]
        return (self._counts[gram] + kinds * shorter) / (self._seen[gram[:-1]] + kinds) if kinds else shorter

    def perplexity(self, texts: Sequence[Sequence[int]]) -> float:
        """Return the perplexity of texts."""
        logs = [
            math.log(self._probability(tuple(text[max(i - 2, 0) : i + 1]))) for text in texts for i in range(len(text))
        ]
        return math.exp(-np.mean(logs))


def main(corpus: Sequence[str], workdir: Path, steps: int, record: Path | None) -> None:
    """Train both models, let them write, and print a table.

    Args:
        corpus: corpora.
        workdir: directory of the data and the runs; interrupted runs resume.
        steps: training steps of each model.
        record: JSON lines file to which the rows are appended.
    """
    data = _prepared(corpus, workdir)
    tokenizer = load_tokenizer(data / "tokenizer")
    rows = _held_out(data, tokenizer)
    judge = Trigrams(rows[::2], tokenizer.vocab_size)
    samples = {"held-out text": rows[1::2][:_TEXTS], "bigrams": _bigrams(_held_out(data, tokenizer, "train"))}
    runs = {"masked diffusion": "diffusion_pretraining", "masked LM": "pretraining"}
    for name, task in runs.items():
        results = train(_recipe(task, data, steps), workdir / task, progress=False)
        print(name, {key: round(value, 4) for key, value in results.items() if key.startswith("eval/")}, flush=True)
        write = pipeline("text-generation", workdir / task / "model")
        for sampler, options in _SAMPLERS.items():
            found = write([""] * _TEXTS, length=_WORDS, steps=_WORDS // 2, temperature=1.0, **options)
            texts = [each[0]["generated_text"] for each in found]
            samples[f"{name}, {sampler}"] = tokenizer.encode_batch(texts)
            print("\n".join(texts[:3]), flush=True)
    print("| text | perplexity by trigrams | distinct 1 | distinct 2 |\n|---|---|---|---|")
    for name, texts in samples.items():
        row = {"text": name, "perplexity": judge.perplexity(texts), "distinct_1": distinct_ngrams(texts, 1),
               "distinct_2": distinct_ngrams(texts, 2), "steps": steps}  # fmt: skip
        append(record, row)
        print(f"| {name} | {row['perplexity']:.0f} | {row['distinct_1']:.3f} | {row['distinct_2']:.3f} |")


def _prepared(corpus: Sequence[str], workdir: Path) -> Path:
    """Return the directory of the prepared data."""
    data = workdir / "data"
    if not (data / "manifest.json").exists():
        workdir.mkdir(parents=True, exist_ok=True)
        texts = (text for spec in corpus for document in open_corpus(spec) for text in document.texts)
        tokenizer = train_wordpiece(texts, _VOCABULARY)
        prepare(
            corpus, tokenizer, data, objective="mlm", max_seq_length=_LENGTH, validation_fraction=0.02, dupe_factor=1
        )
    return data


def _recipe(task: str, data: Path, steps: int) -> Any:
    recipe = recipes.RECIPES[task]()
    size = {"model.size": "mini", "model.initializer_range": 0.06, "model.hidden_dropout_prob": 0.0,
            "model.attention_probs_dropout_prob": 0.0, "model.max_position_embeddings": _LENGTH}  # fmt: skip
    optimizer = {"optimizer.name": "muon", "optimizer.learning_rate": 3e-3, "optimizer.schedule": "linear",
                 "optimizer.warmup_steps": 0, "optimizer.warmup_ratio": 0.1, "optimizer.beta2": 0.98}  # fmt: skip
    run = {"data.prepared": str(data), "data.sequence_length": _LENGTH, "global_batch_size": 64, "num_steps": steps,
           "eval_every": max(steps // 8, 1), "data.eval_batches": 16, "eval_batch_size": 64}  # fmt: skip
    recipe.update_from_flattened_dict(size | optimizer | run)
    return recipes.resolve(recipe)


def _held_out(data: Path, tokenizer: Tokenizer, split: str = "validation") -> list[list[int]]:
    """Return the tokens of rows, as many of each as are generated."""
    from bert_jax.data.pretraining.prepared import PreparedInstances

    instances = PreparedInstances(data, split, _LENGTH, mask_prob=1e-9, mask_replace_prob=0.0, random_replace_prob=0.0)
    batch = instances.batch(np.arange(min(len(instances), 20_000)), np.zeros(min(len(instances), 20_000), int))
    special = np.isin(batch["input_ids"], tokenizer.special_ids)
    rows = [ids[~hidden].tolist() for ids, hidden in zip(batch["input_ids"], special, strict=True)]
    return [row[:_WORDS] for row in rows if len(row) >= _WORDS]


def _bigrams(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return texts drawn from the bigrams of rows."""
    followers: dict[int, list[int]] = {}
    for row in rows:
        for first, second in itertools.pairwise(row):
            followers.setdefault(first, []).append(second)
    rng, texts = np.random.default_rng(0), []
    starts = [row[0] for row in rows if row[0] in followers]
    for _ in range(_TEXTS):
        text = [int(rng.choice(starts))]
        while len(text) < _WORDS:
            text.append(int(rng.choice(followers.get(text[-1], starts))))
        texts.append(text)
    return texts
