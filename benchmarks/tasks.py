"""Fine-tuning on standard tasks, compared with a loop of transformers with the same hyper-parameters."""

import dataclasses
import json
import math
import statistics
import sys
import tempfile
import timeit
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.limits import limits, peak_of
from benchmarks.turns import alternate, append


@dataclasses.dataclass(frozen=True)
class Contest:
    """A task with the data and hyper-parameters of both sides.

    Attributes:
        kind: a class of `benchmarks.tasks_pytorch`.
        recipe: a recipe of `configs/`.
        files: training and evaluation files in the data directory.
        metric: the metric, as in `bert-jax evaluate`.
        epochs, batch_size, learning_rate, length: hyper-parameters of both sides.
        columns: columns of the texts and the label, by name or number.
        rows: (number, tokens) of packed rows per step, which hold `batch_size` examples on average; () = not packed.
        keys: further recipe keys of bert_jax.
        start: TensorFlow 1 checkpoint in the data directory from which both sides start, instead of the English model.
    """

    kind: str
    recipe: str
    files: tuple[str, str]
    metric: str
    epochs: float
    batch_size: int
    learning_rate: float
    length: int = 128
    columns: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    start: str = ""


PRODUCT = (1024, 384, 1536)  # of the limit: a feed-forward product of all-MiniLM-L6-v2
CONTESTS = {
    "sst2": Contest("classification", "classification.py:sst2,.", ("glue/SST-2/train.tsv", "glue/SST-2/dev.tsv"),
                    "accuracy", 1, 32, 1e-4, columns=("sentence", "label"), rows=(6, 72)),
    "cola": Contest("classification", "classification.py:cola,.", ("glue/CoLA/train.tsv", "glue/CoLA/dev.tsv"),
                    "matthews", 3, 32, 1e-4, columns=("3", "1"), rows=(8, 48)),
    "stsb": Contest("regression", "classification.py:stsb,.", ("glue/STS-B/train.tsv", "glue/STS-B/dev.tsv"),
                    "spearman", 3, 32, 1e-4, columns=("sentence1", "sentence2", "score"), rows=(7, 128)),
    "conll2003": Contest("tokens", "conll2003.py", ("conll2003/train.txt", "conll2003/valid.txt"),
                         "f1", 1, 32, 2e-4, rows=(5, 128)),
    "squad": Contest("questions", "squad.py:v2", ("squad2_articles/train.json", "squad2_articles/dev.json"),
                     "best_f1", 3, 8, 1.5e-4, 256),
    "hellaswag": Contest("choices", "hellaswag.py", ("hellaswag/train.jsonl", "hellaswag/val.jsonl"),
                         "accuracy", 1, 16, 5e-5, keys=("eval_every=0", "best_metric=")),
    "chnsenticorp": Contest("classification", "classification.py",
                            ("zh_chnsenticorp/train.tsv", "zh_chnsenticorp/dev.tsv"), "accuracy", 2, 32, 1e-4, 256,
                            ("text_a", "label"), (), ("data.text_column=text_a", "data.metrics=('accuracy',)"),
                            "tf1_simbert_tiny"),
}  # fmt: skip


class Run(NamedTuple):
    """The result of a run of both sides in alternation.

    Attributes:
        key: the contest as it was run, seed and dtypes.
        scores, rates: scores and examples/s of bert_jax and of transformers.
        examples: number of training examples.
        share: of the seconds of bert_jax's whole process, what the products of its training steps take at the rate of
            the fastest product in the same run; None where rows are not packed, whose lengths vary.
    """

    key: dict[str, Any]
    scores: list[float]
    rates: list[float]
    examples: int
    share: float | None = None


def main(
    data: Path,
    model: Path,
    names: Sequence[str],
    seeds: int,
    share: float,
    dtypes: Sequence[str],
    record: Path | None = None,
) -> None:
    """Print scores (mean and standard deviation over seeds) and median examples/s of both sides.

    Args:
        data: the data directory.
        model: the initial model of English tasks.
        names: names of `CONTESTS`.
        seeds: number of runs of each.
        share: fraction of the epochs of each.
        dtypes: dtypes of bert_jax and of transformers.
        record: JSON lines file to which each run is appended; recorded runs are skipped.
    """
    lines = record.read_text(encoding="utf-8").splitlines() if record and record.exists() else []
    recorded = [json.loads(line) for line in lines]
    known = [Run(**{name: row[name] for name in Run._fields if name in row}) for row in recorded]
    print(f"bert_jax in {dtypes[0]}, transformers in {dtypes[1]}; whole processes in turns", flush=True)
    print(f"{'':12} examples   score: bert_jax, transformers        examples/s         ratio  products", flush=True)
    for name in names:
        contest = dataclasses.replace(CONTESTS[name], epochs=CONTESTS[name].epochs * share)
        runs = []
        for seed in range(seeds):
            key = json.loads(json.dumps({"contest": dataclasses.asdict(contest), "seed": seed, "dtypes": dtypes}))
            run = next((run for run in known if run.key == key), None)
            if run is None:
                run = Run(key, *_run(contest, data, model, seed, dtypes))
                append(record, run._asdict())
            runs.append(run)
        both = "  ".join(
            f"{statistics.mean(s):.4f} ± {statistics.pstdev(s):.4f}"
            for s in zip(*(r.scores for r in runs), strict=True)
        )
        rate = "  ".join(f"{statistics.median(r):6.1f}" for r in zip(*(r.rates for r in runs), strict=True))
        ratio = statistics.median(run.rates[0] / run.rates[1] for run in runs)
        shares = [run.share for run in runs if run.share]
        products = f"{statistics.median(shares):.0%}" if shares else ""
        print(f"{name:12} {runs[0].examples:>8}   {both}   {rate}   {ratio:.2f}   {products}", flush=True)


def dtype_of(workdir: Path) -> str:
    """Return the quicker dtype when the runs of a working directory began, so that interrupted runs resume in it."""
    file = workdir / "dtype"
    if not file.exists():
        workdir.mkdir(parents=True, exist_ok=True)
        file.write_text(quicker_dtype())
    return file.read_text()


def quicker_dtype() -> str:
    """Return the dtype in which matrix products are faster on this processor."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def multiply(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jnp.dot(x, kernel, preferred_element_type=jnp.float32)

    def seconds(dtype: str) -> float:
        x, kernel = jnp.ones((1024, 384), dtype), jnp.ones((384, 1536), dtype)
        multiply(x, kernel).block_until_ready()  # compiled before it is timed
        return min(timeit.repeat(lambda: multiply(x, kernel).block_until_ready(), repeat=5, number=20))

    return min(("float32", "bfloat16"), key=seconds)


def _run(
    contest: Contest, data: Path, model: Path, seed: int, dtypes: Sequence[str]
) -> tuple[list[float], list[float], int, float | None]:
    """Run both sides; return their scores, their rates, the number of training examples, and the share of products."""
    with tempfile.TemporaryDirectory() as directory:
        start = _converted(data / contest.start, directory) if contest.start else model
        workdir = Path(directory, "run")
        commands = {
            "ours": _ours(contest, data, start, seed, dtypes[0], workdir),
            "theirs": _theirs(contest, data, start, seed, dtypes[1]),
        }
        results = alternate(commands)
        score, examples = results["theirs"][1].split()[-2:]
        seconds = results["ours"][0], results["theirs"][0]
        count = int(examples) * contest.epochs
        share = _flops(contest, workdir) / seconds[0] / _fastest_product(dtypes[0]) if contest.rows else None
        return [_score(workdir, contest.metric), float(score)], [count / each for each in seconds], int(examples), share


def _flops(contest: Contest, workdir: Path) -> float:
    """Return the model FLOPs of the training steps of a run on packed rows."""
    from bert_jax import from_pretrained
    from bert_jax.training.flops import train_flops

    model, lines = from_pretrained(workdir / "model"), (workdir / "metrics.jsonl").read_text().splitlines()
    tokens = [line["train/tokens_seen"] for line in map(json.loads, lines) if "train/tokens_seen" in line][-1]
    rows, length = contest.rows
    # The last layer computes the first token of each example alone, unless every token has a label.
    last = None if contest.kind == "tokens" else math.ceil(contest.batch_size / rows)
    return tokens * train_flops(model.config, model.head, 1, length, last=last) / length


def _fastest_product(dtype: str) -> float:
    """Return the FLOP/s of a product of the feed-forward network of the model, by JAX or PyTorch."""
    products = limits(dtype, PRODUCT)
    for _ in range(5):
        for product in products:
            product.turn(100)
    for product in products:
        product.end()
    return peak_of(products)


def _ours(contest: Contest, data: Path, start: Path, seed: int, dtype: str, workdir: Path) -> list[str]:
    keys = {
        "init_from": start,
        "dtype": dtype,
        "seed": seed,
        "num_epochs": contest.epochs,
        "global_batch_size": contest.rows[0] if contest.rows else contest.batch_size,
        "eval_batch_size": contest.batch_size,
        "optimizer.learning_rate": contest.learning_rate,
        "optimizer.schedule": "linear",
        "optimizer.warmup_ratio": 0.1,
        "optimizer.bias_correction": True,
        "data.train": data / contest.files[0],
        "data.dev": data / contest.files[1],
        "data.max_seq_length": contest.length,
    }
    if contest.rows:
        keys["data.packing"] = contest.rows[1]
    overrides = [*(f"{name}={value}" for name, value in keys.items()), *contest.keys]
    return [
        *(sys.executable, "-m", "bert_jax", "finetune", "--workdir", str(workdir)),
        *("--config", f"configs/{contest.recipe}"),
        *(f"--config.{override}" for override in overrides),
    ]


def _theirs(contest: Contest, data: Path, start: Path, seed: int, dtype: str) -> list[str]:
    files = [str(data / file) for file in contest.files]
    given = dataclasses.asdict(contest) | {"files": files, "model": str(start), "seed": seed, "dtype": dtype}
    return [sys.executable, "-m", "benchmarks.tasks_pytorch", json.dumps(given)]


def _score(workdir: Path, metric: str) -> float:
    """Return the score of the last evaluation of a run."""
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line[f"eval/{metric}"] for line in lines if f"eval/{metric}" in line][-1]


def _converted(checkpoint: Path, directory: str) -> Path:
    """Convert a TensorFlow checkpoint to the Hugging Face layout."""
    from bert_jax.conversion.huggingface import convert
    from bert_jax.tokenization import load_tokenizer

    convert(checkpoint, f"{directory}/{checkpoint.name}", load_tokenizer)
    return Path(directory, checkpoint.name)
