"""The verbs `evaluate` and `predict`: run a fine-tuned model over the rows of a file."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from bert_jax.cli.output import console, say
from bert_jax.cli.verbs import add_dtype, add_prompts, add_truncate_dim, add_verb
from bert_jax.errors import InputError

if TYPE_CHECKING:
    from bert_jax.data.finetuning.tables import Columns


# Options of models that answer questions (the first also of classifiers by windows): type, value, and meaning.
QUESTION_FLAGS: dict[str, tuple[type, str, str]] = {
    "doc_stride": (
        int,
        "N",
        "tokens between the windows that a long context is read in (default: 128), or a long text "
        "with --long windows (default: half a row)",
    ),
    "max_answer_length": (int, "N", "tokens of the longest answer (default: 30)"),
    "null_threshold": (float, "X", "no answer where it scores so much above the best passage (default: 0)"),
}


def add_verbs(verbs: Any) -> None:
    """Declares the verbs of this group."""
    evaluate = add_verb(
        verbs,
        "evaluate",
        run_evaluate,
        "score a fine-tuned model on labelled rows",
        "Prints accuracy, F1 and Matthews correlation; Pearson and Spearman for a regression or for cosines of "
        "sentence embeddings; for a tagger the F1, precision and recall of the entities; for questions, SQuAD's exact "
        "match and F1.",
        """bert-jax evaluate --model runs/sst2/model --data dev.tsv
           bert-jax evaluate --model runs/sst2/model --data dev.tsv --report sst2.html
           bert-jax evaluate --model runs/conll2003/model --data test.txt
           bert-jax evaluate --model runs/squad/model --data dev-v2.0.json""",
    )
    predict = add_verb(
        verbs,
        "predict",
        run_predict,
        "write a fine-tuned model's answer for every row",
        "Reads a file of any size in constant memory, and writes as many rows in the same order. Columns that are not "
        "named are those of training, which the model remembers.",
        """bert-jax predict --model runs/sst2/model --data reviews.csv --text-column review --out answers.jsonl
           bert-jax predict --model runs/stsb/model --data pairs.tsv --text-column a --pair-column b --out out.tsv
           bert-jax predict --model runs/squad/model --data dev-v2.0.json --out predictions.json""",
    )
    for parser in (evaluate, predict):
        _add_shared(parser)
    evaluate.add_argument(
        "--label-column", default="", metavar="NAME", help="(default: as in training; else label, tags, score)"
    )
    evaluate.add_argument(
        "--label-separator", default="", metavar="C", help="between a row's labels (default: a comma)"
    )
    evaluate.add_argument(
        "--tag-names",
        metavar="NAME,NAME",
        type=lambda names: tuple(names.split(",")),
        help="of the classes that tags in the data are numbers of, in their order (default: the model's)",
    )
    evaluate.add_argument("--metrics", default="", metavar="NAME[,NAME]", help="which (default: all that fit)")
    evaluate.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    evaluate.add_argument("--report", metavar="FILE.html", help="write a page: what went wrong, and how, in pictures")
    predict.add_argument(
        "--submission", action="store_true", default=None, help="what GLUE takes: index and prediction, as .tsv"
    )
    predict.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="the file to write: .jsonl, .tsv, .csv or .parquet; .conll of a tagger; .json for questions",
    )
    kept = predict.add_mutually_exclusive_group()
    kept.add_argument("--keep", default="", metavar="NAME[,NAME]",
        help="columns to write beside the answers (default: id, idx, index, guid, uid and uuid)")  # fmt: skip
    kept.add_argument("--keep-all", action="store_true", help="write all columns of the data beside the answers")


def _add_shared(parser: argparse.ArgumentParser) -> None:
    """Declares the options of both verbs."""
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="a model directory with the head of a task")
    add(
        "--data",
        required=True,
        metavar="FILE",
        help="see docs/tasks.md: .tsv, .csv, .jsonl, .parquet, CoNLL for a tagger, SQuAD's .json for questions (texts "
        "maybe compressed), or tfds:NAME[:SPLIT]",
    )
    add(
        "--text-column",
        default="",
        metavar="NAME",
        help="(default: as in training; else sentence; sentence1 for embeddings, context for choices)",
    )
    add(
        "--pair-column",
        default="",
        metavar="NAME",
        help="the second text, or what stands before every choice (default: as in training; else none; sentence2 for "
        "embeddings)",
    )
    add("--choice-columns", default="", metavar="NAME[,NAME]",
        help="the choices, or one column with a list of them (default: choices)")  # fmt: skip
    add(
        "--delimiter", default="", metavar="C", help="between the columns of a CSV, or tab (default: found in the file)"
    )
    add("--encoding", default="", metavar="NAME",
        help="of tables, such as cp1252 (default: UTF-8, or what a byte order mark says)")  # fmt: skip
    add("--no-header", action="store_true", help="the first line is a row; columns are numbers from 0")
    add("--batch-size", type=int, default=32, metavar="N", help="(default: %(default)s)")
    add("--max-seq-length", type=int, default=0, metavar="N", help="cut longer texts (default: the model's limit)")
    add_dtype(parser)
    vectors = parser.add_argument_group("sentence embeddings and cross-encoders")
    add_prompts(vectors)
    add_truncate_dim(vectors)
    rules = parser.add_mutually_exclusive_group()
    rules.add_argument("--strict", action="store_const", dest="invalid_rows", const="strict", default="strict",
        help="rows that do not fit are an error, which names the first and counts all (the default)")  # fmt: skip
    rules.add_argument("--skip", action="store_const", dest="invalid_rows", const="skip",
        help="such rows are named, counted and skipped; of `predict`, their answers are empty")  # fmt: skip
    questions = parser.add_argument_group("questions")
    for name, (kind, metavar, what) in QUESTION_FLAGS.items():
        questions.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=what)
    parser.add_argument("--long", choices=("cut", "windows"), dest="long_texts",
        help="of a classifier: whether texts over --max-seq-length are cut (the default) or read in windows, whose "
        "answers are averaged")  # fmt: skip


def run_evaluate(args: argparse.Namespace) -> None:
    """Prints the metrics of a model on labelled rows."""
    from bert_jax import evaluation

    scores = evaluation.evaluate(
        args.model,
        args.data,
        _columns(args, label=args.label_column, separator=args.label_separator),
        metric_names=tuple(args.metrics.split(",")) if args.metrics else (),
        report=args.report,
        **_running(args),
    )
    if args.json:
        print(json.dumps(scores))
        return
    from rich.table import Table

    table = Table("metric", title=f"{args.model} on {args.data}", title_justify="left")
    table.add_column("value", justify="right")
    for name, value in scores.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}")
    console().print(table)
    if args.report:
        say(f"{args.report}: what went wrong, and how")


def run_predict(args: argparse.Namespace) -> None:
    """Writes a model's answers for every row."""
    from bert_jax import evaluation

    count = evaluation.predict(args.model, args.data, args.out, _columns(args), **_running(args))
    say(f"{args.out}: {count:,} rows")


def _columns(args: argparse.Namespace, label: str = "", separator: str = "") -> "Columns":
    from bert_jax.data.finetuning.tables import Columns

    names = tuple(args.choice_columns.split(",")) if args.choice_columns else ()
    texts, more = (names[0], ()) if len(names) == 1 else ("", names)
    keep = tuple(args.keep.split(",")) if getattr(args, "keep", "") else ()
    others = "all" if getattr(args, "keep_all", False) else "none" if keep or args.run is run_evaluate else "ids"
    return Columns(
        args.text_column, args.pair_column, label, not args.no_header, more, texts, separator, args.delimiter,
        args.encoding, keep=keep, keep_others=others,
    )  # fmt: skip


# Option of one task's models -> what such a model does.
_TASK_OPTIONS = {
    "submission": "classifies texts",
    "long_texts": "classifies texts",
    "tag_names": "tags words",
    "prompt": "embeds or classifies texts",
    "prompt_name": "embeds or classifies texts",
    "truncate_dim": "embeds texts",
} | dict.fromkeys(QUESTION_FLAGS, "answers questions")


def _running(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options for the model's evaluator. Raises InputError where one is for a model of another task."""
    from bert_jax import evaluation

    if args.batch_size < 1:
        raise InputError(f"--batch-size: expected a positive integer, found {args.batch_size}")
    given = {name: value for name in _TASK_OPTIONS if (value := getattr(args, name, None)) is not None}
    if given:
        for name in given.keys() - {*evaluation.evaluator_class(args.model).options}:
            raise InputError(f"--{name.replace('_', '-')}: expected a model that {_TASK_OPTIONS[name]}, found another")
    for name in ("batch_size", "max_seq_length", "dtype", "invalid_rows"):
        given[name] = getattr(args, name)
    return given
