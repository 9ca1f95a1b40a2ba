"""MiniLM trained on several data sets at once and on each alone, by bert_jax and by sentence-transformers.

    python -m benchmarks.embedding_data --data data --out embedding_data
    python -m benchmarks.embedding_mixture --data embedding_data --model all-MiniLM-L6-v2 --workdir runs

Each run is a process of its own. All runs take the same number of steps of the same batch size, with the losses, scale,
optimizer and schedule of sentence-transformers' defaults, in float32. Seconds are those of the training alone, memory
is the peak of the process. All finished models are scored by `bert_jax evaluate-search` and by their similarity on
STS-B, in the dtype that is quicker here. Runs of one data set have one seed, those of the mixture have several.
Recorded runs are not repeated. Compiled programs are kept between runs, so the first run of bert_jax with a shape
compiles it. sentence-transformers needs `pip install sentence-transformers datasets accelerate`.
"""

import argparse
import csv
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tasks import dtype_of

PAIRS = ("squad", "books", "documentation")  # data sets of queries and documents; each other row is a negative
RUNS = {"mixture": (*PAIRS, "sts")} | {name: (name,) for name in (*PAIRS, "sts")}
BATCH, LENGTH, RATE, SCALE = 32, 128, 2e-5, 20.0


def train_ours(data: Path, model: Path, sets: Sequence[str], steps: int, seed: int, out: Path) -> dict[str, float]:
    """Train with bert_jax, and return the seconds of the steps and of compilation."""
    from bert_jax import recipes
    from bert_jax.training import train
    from bert_jax.training.metrics import read_metrics

    recipe = recipes.load_recipe("sentence_embedding")
    recipe.update_from_flattened_dict({
        "init_from": str(model), "num_steps": steps, "num_epochs": 0.0, "seed": seed, "global_batch_size": BATCH,
        "optimizer.learning_rate": RATE, "optimizer.warmup_ratio": 0.1, "optimizer.bias_correction": True,
        "optimizer.weight_decay": 0.0, "data.max_seq_length": LENGTH, "data.scale": SCALE, "eval_every": 0,
    })  # fmt: skip
    of_sets = {name: _our_set(data, name) for name in sets}
    if len(sets) == 1:
        recipe.data.update(of_sets[sets[0]])
    else:
        recipe.data.sets, recipe.data.sampling = of_sets, "proportional"
    start = time.perf_counter()
    train(recipe, out, progress=False)
    seconds = time.perf_counter() - start
    lines = read_metrics(out / "metrics.jsonl")
    return {"seconds": seconds, "compiling": sum(line.get("train/compile_seconds", 0.0) for line in lines)}


def _our_set(data: Path, name: str) -> dict[str, Any]:
    if name == "sts":
        return {"train": str(data / "sts" / "train.tsv"), "loss": "cosent", "text_column": "sentence1",
                "pair_column": "sentence2", "label_column": "score"}  # fmt: skip
    return {"train": str(data / f"{name}.jsonl"), "loss": "in_batch_negatives", "text_column": "query",
            "pair_column": "document"}  # fmt: skip


def train_theirs(data: Path, model: Path, sets: Sequence[str], steps: int, seed: int, out: Path) -> dict[str, float]:
    """Train with sentence-transformers, and return the seconds of the steps."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.base.sampler import MultiDatasetBatchSamplers
    from sentence_transformers.sentence_transformer.losses import CoSENTLoss, MultipleNegativesRankingLoss

    encoder = SentenceTransformer(str(model), device="cpu")
    encoder.max_seq_length = LENGTH
    rows, losses = {}, {}
    for name in sets:
        if name == "sts":
            columns = zip(*sts_rows(data / "sts" / "train.tsv"), strict=True)
            rows[name] = Dataset.from_dict(dict(zip(("sentence1", "sentence2", "score"), columns, strict=True)))
            losses[name] = CoSENTLoss(encoder, scale=SCALE)
        else:
            lines = (data / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
            rows[name] = Dataset.from_list([json.loads(line) for line in lines])
            losses[name] = MultipleNegativesRankingLoss(encoder, scale=SCALE)
    arguments = SentenceTransformerTrainingArguments(
        str(out / "trainer"), max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=RATE, warmup_steps=0.1,
        seed=seed, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
        multi_dataset_batch_sampler=MultiDatasetBatchSamplers.PROPORTIONAL,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(encoder, arguments, rows, loss=losses)
    start = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - start
    encoder.save_pretrained(str(out / "model"))
    return {"seconds": seconds}


def sts_rows(file: Path) -> list[tuple[str, str, float]]:
    """Return the sentences of STS-B and their similarity from 0 to 1."""
    with file.open(encoding="utf-8") as lines:
        table = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["sentence1"], row["sentence2"], float(row["score"]) / 5) for row in table if row["score"]]


def scores_of(model: Path, data: Path, workdir: Path) -> dict[str, float]:
    """Return nDCG@10 of the retrieval sets, and Spearman's correlation on STS-B."""
    from bert_jax.data.finetuning.columns import Columns
    from bert_jax.evaluation import evaluate
    from bert_jax.tasks.embedding.search.evaluation import evaluate_search

    dtype = dtype_of(workdir)
    scores = {
        name: evaluate_search(model, data / name, top_k=100, metric_names=("ndcg@10",), dtype=dtype)["ndcg@10"]
        for name in ("squad", "books")
    }
    columns = Columns("sentence1", "sentence2", "score")
    return scores | {"spearman": evaluate(model, str(data / "sts" / "dev.tsv"), columns)["spearman"]}


TRAINERS = {"bert_jax": train_ours, "sentence-transformers": train_theirs}


def main(data: Path, model: Path, workdir: Path, record: Path, steps: int, seeds: int) -> None:
    """Train what is not recorded, in alternation, then score what has no scores, and print the table.

    Args:
        data: what `benchmarks.embedding_data` wrote.
        model: all-MiniLM-L6-v2.
        workdir: the directory of all runs.
        record: JSON lines file of the results.
        steps: number of steps of each run.
        seeds: number of runs of each kind.
    """
    lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    for seed in range(seeds):
        for run in RUNS if seed == 0 else ("mixture",):
            for trainer in TRAINERS if run == "mixture" else ("bert_jax",):
                key = {"run": run, "trainer": trainer, "seed": seed}
                if any(line.items() >= key.items() for line in lines):
                    continue
                words = ["--one", trainer, run, seed, "--data", data, "--model", model]
                words += ["--workdir", _place(workdir, key), "--steps", steps]
                command = [sys.executable, "-m", "benchmarks.embedding_mixture", *map(str, words)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                lines.append(key | json.loads(done.stdout.splitlines()[-1]))
                _write(record, lines)
    if not any(line["run"] == "untrained" for line in lines):
        lines.append({"run": "untrained", "trainer": "", "seed": 0})
    for line in lines:
        if "spearman" not in line:
            finished = model if line["run"] == "untrained" else _place(workdir, line) / "model"
            line |= scores_of(finished, data, workdir)
            _write(record, lines)
    _print_table(lines)


def _place(workdir: Path, line: dict[str, Any]) -> Path:
    """Return the directory of a run."""
    return workdir / f"{line['run']}-{line['trainer']}-{line['seed']}"


def _print_table(lines: list[dict[str, Any]]) -> None:
    names = ("squad", "books", "spearman", "seconds", "compiling", "gigabytes")
    print(
        "| trained on | by | nDCG@10 squad | nDCG@10 books | Spearman STS-B | seconds | of these compiling | peak GB |"
        "\n|---|---|" + "---|" * 6
    )
    for run, trainer in dict.fromkeys((line["run"], line["trainer"]) for line in lines):
        of_run = [line for line in lines if (line["run"], line["trainer"]) == (run, trainer)]
        cells = []
        for name in names:
            values = [line[name] for line in of_run if name in line]
            digits = 1 if name in ("seconds", "compiling", "gigabytes") else 4
            spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.{digits}f}{spread}" if values else "")
        print(f"| {run} | {trainer} | {' | '.join(cells)} |")


def _write(record: Path, lines: list[dict[str, Any]]) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--data", "--model", "--workdir"):
        parser.add_argument(flag, type=Path, required=True, metavar="DIR")
    parser.add_argument("--record", type=Path, default=Path("mixture.jsonl"), metavar="FILE")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("TRAINER", "RUN", "SEED"), help="one run, which prints its figures")
    given = parser.parse_args()
    if given.one:
        trainer, run, seed = given.one
        figures = TRAINERS[trainer](given.data, given.model, RUNS[run], given.steps, int(seed), given.workdir)
        figures["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps(figures))
    else:
        main(given.data, given.model, given.workdir, given.record, given.steps, given.seeds)
