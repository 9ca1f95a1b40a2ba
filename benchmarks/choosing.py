"""The checkpoint that nDCG@10 chooses, and the one that accuracy among pairs chooses, scored on other questions.

    python -m benchmarks.embedding_data --data data --out embedding_data
    python -m benchmarks.choosing --data embedding_data --model all-MiniLM-L6-v2 --workdir runs/choosing

Both runs take the same steps over the questions of squad.jsonl, and evaluate both metrics on the questions of split
`dev`: nDCG@10 among 1,000 paragraphs, and the share of questions that are closer to their own paragraph than to any
other of the split. The chosen checkpoints are scored on split `test`, among all 6,000 paragraphs.
"""

import argparse
import json
from pathlib import Path

from benchmarks.distillation import run_verb
from benchmarks.tasks import dtype_of

METRICS = {"nDCG@10": "ndcg@10", "accuracy among pairs": "retrieval_accuracy"}
_STEPS, _EVERY, _DOCUMENTS = 240, 20, 1_000


def main(data: Path, model: Path, workdir: Path) -> None:
    """Train twice, and print the tables of the evaluations and of the choices."""
    from bert_jax.tasks.embedding.search.evaluation import evaluate_search

    dtype = dtype_of(workdir)
    pairs = _write_dev_pairs(data / "squad", workdir / "dev.jsonl")
    keys = {
        "init_from": model, "dtype": dtype, "num_steps": _STEPS, "num_epochs": 0.0, "global_batch_size": 32,
        "optimizer.learning_rate": 2e-4, "optimizer.warmup_ratio": 0.1, "optimizer.bias_correction": True,
        "data.text_column": "query", "data.pair_column": "document", "data.negative_columns": "()",
        "data.max_seq_length": 128, "data.dev": f"{pairs},{data / 'squad'}", "data.dev_split": "dev",
        "data.dev_documents": _DOCUMENTS, "data.validation_split": 0.0, "eval_every": _EVERY,
    }  # fmt: skip
    chosen = {}
    for name, metric in METRICS.items():
        run = workdir / metric
        finished = run_verb(
            "finetune", f"sentence_embedding:{data / 'squad.jsonl'}", run, keys | {"best_metric": metric}
        )
        scores = evaluate_search(finished, data / "squad", top_k=100, metric_names=("ndcg@10",), dtype=dtype)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        evaluations = {line["step"]: line for line in lines if f"eval/{metric}" in line}
        step = max(evaluations, key=lambda step: evaluations[step][f"eval/{metric}"])
        chosen[name] = (step, evaluations[step], scores["ndcg@10"])
    print(f"| step | {' | '.join(METRICS)} |\n|---|" + "---|" * len(METRICS))
    for step, line in evaluations.items():
        print(f"| {step} | {' | '.join(format(line[f'eval/{metric}'], '.4f') for metric in METRICS.values())} |")
    print("\n| chosen by | step | nDCG@10 of split test |\n|---|---|---|")
    for name, (step, _, score) in chosen.items():
        print(f"| {name} | {step} | {score:.4f} |")


def _write_dev_pairs(beir: Path, out: Path) -> Path:
    """Write the questions of split `dev` and their paragraphs as a table, and return it."""
    from bert_jax.data.retrieval_sets import read_retrieval_set

    given = read_retrieval_set(beir, "dev")
    documents = dict(given.documents())
    rows = [
        {"query": given.queries[query], "document": documents[document]}
        for query, judged in given.judgements.items()
        for document in judged
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--data", "--model", "--workdir"):
        parser.add_argument(flag, type=Path, required=True, metavar="DIR")
    given = parser.parse_args()
    main(given.data, given.model, given.workdir)
