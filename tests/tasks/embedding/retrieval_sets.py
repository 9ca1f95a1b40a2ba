"""Small retrieval sets and training pairs for tests, and a script that trains on them with several devices."""

import json
import sys
from pathlib import Path

import numpy as np

WORDS = ["cat", "dog", "tree", "house", "bird", "red", "big", "young", "the", "a"]


def words(rng, least, most):
    return " ".join(rng.choice(WORDS, rng.integers(least, most)))


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_set(folder, documents, seed, queries=9):
    """Write a set whose first query has the id of a document."""
    rng = np.random.default_rng(seed)
    (folder / "qrels").mkdir(parents=True)
    names = ["d7", *(f"q{i}" for i in range(1, queries))]
    write_lines(folder / "corpus.jsonl", [{"_id": f"d{i}", "text": words(rng, 2, 30)} for i in range(documents)])
    write_lines(folder / "queries.jsonl", [{"_id": name, "text": words(rng, 2, 5)} for name in names])
    rows = [(name, f"d{i}", rng.integers(0, 3)) for name in names for i in rng.permutation(documents)[:8] if i != 7]
    (folder / "qrels/test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"{query}\t{document}\t{score}\n" for query, document, score in rows)
    )
    return folder


def write_pairs(path):
    rng = np.random.default_rng(5)
    write_lines(path, [{"a": words(rng, 2, 5), "b": words(rng, 2, 9), "score": i % 2} for i in range(32)])
    return path


def small_recipe(task, root, **changes):
    """Return a recipe that starts from the model in `root/encoder` and is evaluated on `root/one` and `root/two`."""
    from bert_jax import recipes

    c = recipes.RECIPES[task]()
    c.update_from_flattened_dict({
        "init_from": str(root / "encoder"), "data.train": str(root / "pairs.jsonl"), "data.text_column": "a",
        "data.pair_column": "b", "data.dev": f"{root / 'one'},{root / 'two'}", "data.max_seq_length": 16,
        "global_batch_size": 8, "num_epochs": 0.0, "num_steps": 4,
    })  # fmt: skip
    c.update_from_flattened_dict(changes)
    return c


if __name__ == "__main__":
    from bert_jax.training import train

    task, root, workdir = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    results = train(small_recipe(task, root), workdir, progress=False)
    print(json.dumps({name: value for name, value in results.items() if name.startswith("eval/")}))
