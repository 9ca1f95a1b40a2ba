"""Two small tables of texts, and recipes that train on both."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import recipes

WORDS = ("cat", "dog", "bird", "fish", "house", "tree", "river", "stone", "red", "green", "blue", "old")


def write_tables(folder: Path) -> None:
    """Write pairs with negatives (nli, 60 rows), labelled pairs (sts, 20 rows), and 12 rows of each to evaluate."""
    random = np.random.default_rng(0)

    def text() -> str:
        return " ".join(random.choice(WORDS, random.integers(2, 7)))

    for name, rows in (("nli", 60), ("sts", 20), ("nli_dev", 12), ("sts_dev", 12)):
        lines = [{"a": text(), "b": text(), "c": text(), "score": i % 6} for i in range(rows)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def sets(folder: Path | str) -> dict[str, dict[str, Any]]:
    """Return `data.sets` of both tables."""
    files = {name: {"train": f"{folder}/{name}.jsonl", "dev": f"{folder}/{name}_dev.jsonl"} for name in ("nli", "sts")}
    return {
        "nli": files["nli"] | {"negative_column": "c"},
        "sts": files["sts"] | {"loss": "cosine", "label_column": "score", "label_scale": 5, "loss_weight": 0.5},
    }


def recipe(folder: Path | str, **changes: Any) -> Any:
    """Return a recipe of both sets; its model directory is `folder/encoder`."""
    c = recipes.sentence_embedding()
    c.update_from_flattened_dict({
        "init_from": f"{folder}/encoder", "data.sets": sets(folder), "data.text_column": "a", "data.pair_column": "b",
        "data.max_seq_length": 16, "data.length_buckets": (16,), "global_batch_size": 8, "num_epochs": 1.0,
        "log_every": 3, "checkpoint_every": 4, "eval_every": 5, "best_metric": "sts/spearman",
        "optimizer.schedule": "constant", "optimizer.warmup_ratio": 0.0,
    })  # fmt: skip
    c.update_from_flattened_dict(changes)
    return c
