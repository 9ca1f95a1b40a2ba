"""Search of SQuAD's paragraphs: BM25, dense, sparse and multi-vector models, all of them fused, and rerankers on top.

    python -m benchmarks retrieval --data data --workdir runs/retrieval --record retrieval.jsonl

The corpus are all paragraphs of squad2_articles. The queries are the answerable questions of its dev file, whose
articles no model was trained on. Models start from all-MiniLM-L6-v2 and train on the answerable questions of its train
file, with negatives that all-MiniLM-L6-v2 mined. A sparse model needs a head of masked LM: it starts from further
pretraining of all-MiniLM-L6-v2 on the paragraphs and on `--corpus`, with the bias lowered as in docs/retrieval.md.
The small reranker has every third layer of the reranker, which is its teacher (configs/distil_reranker.py); both score
the same pairs in turns.
Finished runs are not repeated, recorded results are not measured again. Needs `pip install '.[retrieval]'`.
"""

import functools
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.distillation import run_verb
from benchmarks.tasks import dtype_of
from benchmarks.turns import append
from bert_jax.tasks.embedding.search.fusion import Fusion

_METRICS = ("ndcg@10", "mrr@10", "recall@100")
_NEGATIVES = 2
_LISTED = 7  # mined negatives of each list that the small reranker reads
_TOP = 100  # documents of a query that are ranked
_RERANKED = 20  # the first of them, which a reranker reads
_PRETRAINING_STEPS = 400
_TURNS = 5  # of the speed of both rerankers
_FUSED = ("bm25", "dense", "sparse", "late interaction")
_FUSIONS = {"fused by ranks": Fusion("rrf"), "fused by scores": Fusion("weighted", normalization="z-score")}
_ACTIVE = 300  # tokens of the vocabulary that the sparse vector of a paragraph has before training
# Kind of model -> its recipe, the number of mined negatives that it reads, and keys of its run.
MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "dense": ("retrieval", 1, {"global_batch_size": 64, "num_epochs": 2.0, "accumulation_steps": 8}),
    "sparse": ("splade", 1, {"global_batch_size": 16, "accumulation_steps": 2, "num_epochs": 2.0,
                             "optimizer.learning_rate": 1e-4, "optimizer.warmup_ratio": 0.1,
                             "data.query_flops": 1e-3, "data.document_flops": 1e-3, "data.flops_warmup": 0.3}),
    "late interaction": ("colbert", 1, {"accumulation_steps": 2, "num_epochs": 2.0, "optimizer.learning_rate": 5e-5,
                                        "optimizer.warmup_ratio": 0.1}),
    "reranker": ("reranker", 2, {"num_epochs": 3.0, "optimizer.learning_rate": 2e-4, "optimizer.warmup_ratio": 0.1,
                                 "accumulation_steps": 4}),
}  # fmt: skip
_SHARED = {"data.max_seq_length": 192, "data.validation_split": 0.0, "eval_every": 0, "best_metric": "",
           "data.text_column": "query", "data.pair_column": "positive"}  # fmt: skip


def main(data: Path, model: Path, corpus: Sequence[str], workdir: Path, record: Path) -> None:
    """Train what is not trained, measure what is not recorded, and print the tables.

    Args:
        data: data directory with squad2_articles.
        model: all-MiniLM-L6-v2.
        corpus: corpora of the further pretraining.
        workdir: the directory of all runs.
        record: JSON lines file of the results.
    """
    squad = data / "squad2_articles"
    beir = write_retrieval_set(squad / "train.json", squad / "dev.json", workdir / "beir")
    pairs = _write_pairs(squad / "train.json", workdir)
    tuples = _mine(model, pairs, beir / "corpus.jsonl", workdir / "tuples.jsonl", "n-tuple", _NEGATIVES)

    @functools.cache
    def trained(name: str) -> Path:
        return model if name.startswith("all-MiniLM") else _train(name, model, corpus, tuples, workdir)

    @functools.cache
    def small_reranker() -> Path:
        lists = _mine(model, pairs, beir / "corpus.jsonl", workdir / "lists.jsonl", "labeled-list", _LISTED)
        keys = {"dtype": dtype_of(workdir), "distillation.teacher": trained("reranker"), "eval_every": 0,
                "data.max_seq_length": _SHARED["data.max_seq_length"]}  # fmt: skip
        return run_verb("distill", f"distil_reranker:{lists},{layers_of(trained('reranker'))}", workdir / "small", keys)

    lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    evaluate = functools.partial(_evaluate, beir=beir, dtype=dtype_of(workdir), trained=trained)
    for name in ("bm25", "all-MiniLM-L6-v2", *_FUSED[1:], *_FUSIONS):
        for reranked in (False, True):
            key = {"search": name, "reranked": reranked}
            if not any(line.items() >= key.items() for line in lines):
                scores = evaluate(name, reranker=trained("reranker") if reranked else None)
                lines.append(key | {metric: round(scores[metric], 4) for metric in _METRICS})
                append(record, lines[-1])
    columns = [*_METRICS, *(f"reranked: {metric}" for metric in _METRICS[:-1])]
    print(f"| search | {' | '.join(columns)} |\n|---|" + "---|" * len(columns))
    for line in lines:
        if line.get("reranked") is False:
            again = next(each for each in lines if each.get("search") == line["search"] and each["reranked"])
            shown = [f"{line[metric]:.4f}" for metric in _METRICS] + [
                f"{again[metric]:.4f}" for metric in _METRICS[:-1]
            ]
            print(f"| {line['search']} | {' | '.join(shown)} |")
    if not any("reranker" in line for line in lines):
        rerankers = {"reranker": trained("reranker"), "small reranker": small_reranker()}
        rates = _pairs_per_second(rerankers, beir, dtype_of(workdir))
        for name, place in rerankers.items():
            scores = evaluate("dense", reranker=place)
            figures = {"ndcg@10": round(scores["ndcg@10"], 4), "pairs_per_second": rates[name]}
            lines.append({"reranker": name, "layers": layers_of(place)} | figures)
            append(record, lines[-1])
    print("\n| reranker of dense search | layers | nDCG@10 | pairs per second |\n|---|---|---|---|")
    for line in lines:
        if "reranker" in line:
            rate = line["pairs_per_second"]
            print(f"| {line['reranker']} | {line['layers']} | {line['ndcg@10']:.4f} | {rate:.0f} |")


def write_retrieval_set(train: Path, dev: Path, place: Path) -> Path:
    """Write paragraphs and the answerable questions of `dev` in the layout of BEIR, and return the directory."""
    (place / "qrels").mkdir(parents=True, exist_ok=True)
    corpus, queries, judgements = [], [], ["query-id\tcorpus-id\tscore"]
    for file in (train, dev):
        for title, number, paragraph in _paragraphs(file):
            name = f"{title}-{number}"
            corpus.append({"_id": name, "title": "", "text": paragraph["context"]})
            for question in paragraph["qas"] if file == dev else ():
                if not question.get("is_impossible"):
                    queries.append({"_id": question["id"], "text": question["question"]})
                    judgements.append(f"{question['id']}\t{name}\t1")
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (place / "qrels" / "test.tsv").write_text("\n".join(judgements) + "\n", encoding="utf-8")
    return place


def _paragraphs(file: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
        for number, paragraph in enumerate(article["paragraphs"]):
            yield article["title"], number, paragraph


def _write_pairs(train: Path, workdir: Path) -> Path:
    """Write a table of the answerable questions of the train file and their paragraphs, and return it."""
    rows = [{"query": question["question"], "positive": paragraph["context"]}
            for _, _, paragraph in _paragraphs(train)
            for question in paragraph["qas"] if not question.get("is_impossible")]  # fmt: skip
    pairs = workdir / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return pairs


def _mine(model: Path, pairs: Path, corpus: Path, out: Path, layout: str, negatives: int) -> Path:
    """Return a table of queries, their paragraphs, and mined negatives."""
    if not out.exists():
        given = {"data": pairs, "out": out, "corpus": corpus, "corpus-column": "text", "format": layout,
                 "num-negatives": negatives}  # fmt: skip
        options = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        subprocess.run([sys.executable, "-m", "bert_jax", "mine-negatives", str(model), *options], check=True)
    return out


def _train(name: str, model: Path, corpus: Sequence[str], tuples: Path, workdir: Path) -> Path:
    """Return the directory of a finished model of a kind of `MODELS`."""
    recipe, count, keys = MODELS[name]
    start = _pretrained(model, corpus, workdir) if name == "sparse" else model
    negatives = tuple(f"negative_{i + 1}" for i in range(count))
    keys = _SHARED | keys | {"init_from": start, "dtype": dtype_of(workdir), "data.negative_columns": negatives,
                             "optimizer.bias_correction": True}  # fmt: skip
    return run_verb("finetune", f"{recipe}:{tuples}", workdir / name.replace(" ", "_"), keys)


def _pretrained(model: Path, corpus: Sequence[str], workdir: Path) -> Path:
    """Return the directory of the model after further pretraining with masked LM."""
    prepared = workdir / "prepared"
    if not (prepared / "manifest.json").exists():
        words = [str(workdir / "beir" / "corpus.jsonl"), *corpus, "--tokenizer", str(model), "--out", str(prepared)]
        words += ["--objective", "mlm", "--max-seq-length", "128"]
        subprocess.run([sys.executable, "-m", "bert_jax", "prepare", *words], check=True)
    keys = {"data.prepared": prepared, "init_from": model, "dtype": dtype_of(workdir), "data.sequence_length": 128,
            "global_batch_size": 32, "num_steps": _PRETRAINING_STEPS, "stages": "()",
            "optimizer.learning_rate": 3e-4, "optimizer.warmup_steps": 100}  # fmt: skip
    return _lowered(run_verb("pretrain", "bert_base", workdir / "masked_lm", keys), workdir)


def _lowered(model: Path, workdir: Path) -> Path:
    """Return the directory of a masked LM whose bias is lowered until a paragraph has `_ACTIVE` positive tokens."""
    import numpy as np

    from bert_jax import from_pretrained

    lowered = workdir / "sparse_start"
    if not (lowered / "config.json").exists():
        loaded = from_pretrained(model)
        lines = (workdir / "beir" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:64]
        inputs = loaded.tokenizer(
            [json.loads(line)["text"] for line in lines], max_length=_SHARED["data.max_seq_length"]
        )
        mask = inputs["attention_mask"][..., None] > 0
        greatest = np.where(mask, loaded(**inputs).logits, -np.inf).max(axis=1)  # of each text and token [64, V]
        loaded.params["mlm"]["bias"] -= np.quantile(greatest, 1 - _ACTIVE / greatest.shape[1])
        loaded.save_pretrained(lowered)
    return lowered


def _evaluate(
    name: str, beir: Path, dtype: str, trained: Callable[[str], Path], reranker: Path | None
) -> dict[str, float]:
    """Return the metrics of a search, by the name of its row."""
    from bert_jax.tasks.embedding.search.evaluation import evaluate_search

    options: dict[str, Any] = {"reranker": reranker or "", "rerank_top_k": _RERANKED, "dtype": dtype}
    if name in _FUSIONS or name == "bm25":
        parts = _FUSED if name in _FUSIONS else ("bm25",)
        options["searchers"] = [part if part == "bm25" else str(trained(part)) for part in parts]
        options["fusion"] = _FUSIONS.get(name)
    model = None if "searchers" in options else trained(name)
    return evaluate_search(model, beir, top_k=_TOP, metric_names=_METRICS, **options)


def _pairs_per_second(rerankers: dict[str, Path], beir: Path, dtype: str) -> dict[str, float]:
    """Return the median speed of each reranker on every question with two paragraphs, in turns."""
    from bert_jax.data.retrieval_sets import read_retrieval_set
    from bert_jax.inference import pipeline

    given = read_retrieval_set(beir, "test")
    texts = itertools.cycle(text for _, text in given.documents())
    queries = [query for query in given.queries.values() for _ in range(2)]
    documents = list(itertools.islice(texts, len(queries)))
    opened = {name: pipeline("rerank", str(place), dtype=dtype) for name, place in rerankers.items()}
    rates: dict[str, list[float]] = {name: [] for name in opened}
    for turn in range(_TURNS + 1):
        for name, reranker in opened.items():
            start = time.perf_counter()
            reranker.logits(queries, documents)
            if turn:  # the first compiles
                rates[name].append(len(queries) / (time.perf_counter() - start))
    return {name: round(statistics.median(values), 1) for name, values in rates.items()}


def layers_of(model: Path) -> int:
    """Return the number of layers in the config of a model directory."""
    layers: int = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    return layers
