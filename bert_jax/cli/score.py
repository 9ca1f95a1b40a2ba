"""`bert-jax evaluate` and `bert-jax predict`: a fine-tuned model over the rows of a table."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from bert_jax.cli.verbs import add_verb
from bert_jax.errors import InputError

if TYPE_CHECKING:
    from bert_jax.data.examples import Columns


def add_verbs(verbs: Any) -> None:
    """Declares the verbs of this group."""
    evaluate = add_verb(
        verbs,
        "evaluate",
        run_evaluate,
        "score a fine-tuned model on labelled rows",
        "Prints accuracy, F1 and Matthews correlation, or Pearson and Spearman for a regression; for a tagger the F1, "
        "precision and recall of the entities.",
        """bert-jax evaluate --model runs/sst2/model --data dev.tsv
           bert-jax evaluate --model runs/conll2003/model --data test.txt""",
    )
    predict = add_verb(
        verbs,
        "predict",
        run_predict,
        "write a fine-tuned model's answer for every row",
        "Reads a file of any size in constant memory, and writes as many rows in the same order.",
        """bert-jax predict --model runs/sst2/model --data reviews.csv --text-column review --out answers.jsonl
           bert-jax predict --model runs/stsb/model --data pairs.tsv --text-column a --pair-column b --out out.tsv""",
    )
    for parser in (evaluate, predict):
        add = parser.add_argument
        add("--model", required=True, metavar="DIR", help="a model directory with the head of a task")
        add(
            "--data",
            required=True,
            metavar="FILE",
            help=".tsv, .csv or .jsonl (maybe compressed), CoNLL for a tagger, or tfds:NAME[:SPLIT]",
        )
        add("--text-column", default="", metavar="NAME", help="(default: sentence; for a tagger see docs/tasks.md)")
        add("--pair-column", default="", metavar="NAME", help="the second text, if there is one")
        add("--no-header", action="store_true", help="the first line is a row; columns are numbers from 0")
        add("--batch-size", type=int, default=32, metavar="N", help="(default: %(default)s)")
        add("--max-seq-length", type=int, default=0, metavar="N", help="cut longer texts (default: the model's limit)")
        add("--dtype", choices=("auto", "float32", "bfloat16"), default="auto",
            help="of matrix products (default: bfloat16 on accelerators)")  # fmt: skip
    evaluate.add_argument("--label-column", default="", metavar="NAME", help="(default: label; of a tagger, tags)")
    evaluate.add_argument(
        "--label-separator", default="", metavar="C", help="between a row's labels (default: a comma)"
    )
    evaluate.add_argument("--metrics", default="", metavar="NAME[,NAME]", help="which (default: all that fit)")
    evaluate.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    predict.add_argument("--submission", action="store_true", help="what GLUE takes: index and prediction, as .tsv")
    predict.add_argument(
        "--out", required=True, metavar="FILE", help="the file to write: .jsonl or .tsv; .conll of a tagger"
    )


def run_evaluate(args: argparse.Namespace) -> None:
    """Prints the metrics of a model on labelled rows."""
    from bert_jax import tasks

    options = _running(args)
    scores = tasks.of_model(args.model).evaluate(
        args.model,
        args.data,
        _columns(args, label=args.label_column, separator=args.label_separator),
        metric_names=tuple(args.metrics.split(",")) if args.metrics else (),
        **options,
    )
    if args.json:
        print(json.dumps(scores))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("metric", title=f"{args.model} on {args.data}", title_justify="left")
    table.add_column("value", justify="right")
    for name, value in scores.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}")
    Console(highlight=False, markup=False).print(table)


def run_predict(args: argparse.Namespace) -> None:
    """Writes a model's answers for every row."""
    from bert_jax import tasks

    options, module = _running(args), tasks.of_model(args.model)
    if args.submission:
        if module.__name__ != tasks.FINISHED["sequence_classification"]:
            raise InputError(f"--submission: expected a sequence classifier in {args.model}, found another model")
        options["submission"] = True
    count = module.predict(args.model, args.data, args.out, _columns(args), **options)
    print(f"{args.out}: {count:,} rows")


def _columns(args: argparse.Namespace, label: str = "", separator: str = "") -> "Columns":
    from bert_jax.data.examples import Columns

    return Columns(args.text_column, args.pair_column, label, not args.no_header, separator)


def _running(args: argparse.Namespace) -> dict[str, Any]:
    if args.batch_size < 1:
        raise InputError(f"--batch-size: expected a positive integer, found {args.batch_size}")
    return {"batch_size": args.batch_size, "max_seq_length": args.max_seq_length, "dtype": args.dtype}
