"""The verbs `evaluate` and `predict`: run a fine-tuned model over the rows of a file."""

import argparse
from typing import TYPE_CHECKING, Any

from bert_jax.cli import shards
from bert_jax.cli.output import print_scores, say
from bert_jax.cli.signatures import Parameter, ParameterFlags, add_flag, flag_of, help_of, parameters
from bert_jax.cli.verbs import UnusedParser, Verbs, add_verb, check_counts
from bert_jax.errors import InputError
from bert_jax.tasks import TASKS
from bert_jax.tasks.entry import Reference, full_name

if TYPE_CHECKING:
    from bert_jax.data.finetuning.tables import Columns


_RUNNER = ParameterFlags("bert_jax.evaluation.model_runner.open_runner", "batch_size", "max_seq_length", "dtype")
_COMMON = ("batch_size", "max_seq_length", "dtype", "onnx")  # options that apply to models of all tasks


def add_verbs(verbs: Verbs) -> None:
    """Declare the verbs of this module."""
    evaluate = add_verb(
        verbs,
        "evaluate",
        run_evaluate,
        "evaluate a fine-tuned model on labelled data",
        "Prints the metrics of the model's task.",
        """bert-jax evaluate --model runs/sst2/model --data dev.tsv
           bert-jax evaluate --model runs/sst2/model --data dev.tsv --report sst2.html
           bert-jax evaluate --model runs/conll2003/model --data test.txt
           bert-jax evaluate --model runs/squad/model --data dev-v2.0.json""",
    )
    predict = add_verb(
        verbs,
        "predict",
        run_predict,
        "write a fine-tuned model's prediction for every row",
        "Reads a file of any size in constant memory, and writes one output row for each input row, in the same "
        "order. Column names "
        "default to those of training, which the model directory records.",
        """bert-jax predict --model runs/sst2/model --data reviews.csv --text-column review --out answers.jsonl
           bert-jax predict --model runs/stsb/model --data pairs.tsv --text-column a --pair-column b --out out.tsv
           bert-jax predict --model runs/squad/model --data dev-v2.0.json --out predictions.json""",
    )
    for parser in (evaluate, predict):
        _add_shared(parser, parser is evaluate)
    evaluate.add_argument(
        "--label-column",
        default="",
        metavar="NAME",
        help="column of the label (default: the column used in training or, if the model does not record it, that of "
        "its task, such as 'label')",
    )
    evaluate.add_argument(
        "--label-separator", default="", metavar="C", help="separator of several labels in a cell (default: a comma)"
    )
    evaluate.add_argument(
        "--metrics", default="", metavar="NAME[,NAME]", help="metrics to compute (default: all that apply)"
    )
    evaluate.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    evaluate.add_argument(
        "--report", metavar="FILE.html", help="also write a report: errors by class, calibration, the worst mistakes"
    )
    predict.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="file to write: .jsonl, .tsv, .csv or .parquet; .conll and .conllu for taggers; .json for question "
        "answering; with --shards: directory of such files; .csv and .tsv get an apostrophe before texts that a "
        "spreadsheet would run as formulas, .jsonl has the exact text",
    )
    predict.add_argument("--format", choices=("jsonl", "tsv", "csv", "parquet", "conll", "conllu", "json"),
        help="with --shards: format of the files (default: jsonl)")  # fmt: skip
    shards.add_shards(predict, "rows, as for --data")
    kept = predict.add_mutually_exclusive_group()
    kept.add_argument("--keep", default="", metavar="NAME[,NAME]",
        help="input columns to copy to the output (default: id, idx, index, guid, uid, uuid and *_id)")  # fmt: skip
    kept.add_argument("--keep-all", action="store_true", help="copy all input columns to the output")


def _add_shared(parser: argparse.ArgumentParser, needs_data: bool) -> None:
    """Declare the options that `evaluate` and `predict` share."""
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="directory of a fine-tuned model")
    add(
        "--data",
        required=needs_data,
        metavar="FILE",
        help="file of rows: .tsv, .csv, .jsonl, .parquet, CoNLL (taggers), SQuAD's .json (question answering) or JSON "
        "of TACRED or DocRED (relations); text formats may be compressed; or tfds:NAME[:SPLIT]; see docs/tasks.md",
    )
    add(
        "--text-column",
        default="",
        metavar="NAME",
        help="column of the text (default: the column used in training or, if the model does not record it, that of "
        "its task, such as 'sentence')",
    )
    add(
        "--pair-column",
        default="",
        metavar="NAME",
        help="column of the second text (default: the column used in training or, if the model does not record it, "
        "that of its task, if it has one)",
    )
    add("--choice-columns", default="", metavar="NAME[,NAME]",
        help="columns of the choices, or one column of lists (default: 'choices')")  # fmt: skip
    add(
        "--delimiter",
        default="",
        metavar="C",
        help="character between the columns of a CSV, or 'tab' (default: detected from the file)",
    )
    add("--encoding", default="", metavar="NAME",
        help="encoding of tables, such as cp1252 (default: UTF-8, or that of the byte order mark)")  # fmt: skip
    add("--no-header", action="store_true", help="the table has no header; columns are named by their number, from 0")
    _RUNNER.declare(parser)
    add("--onnx", metavar="FILE",
        help="ONNX file of the model, written by `bert-jax export`; onnxruntime runs it in place of JAX")  # fmt: skip
    rules = parser.add_mutually_exclusive_group()
    rules.add_argument("--strict", action="store_const", dest="invalid_rows", const="strict", default="strict",
        help="if there are invalid rows, exit with an error that names the first and counts all (default)")  # fmt: skip
    rules.add_argument("--skip", action="store_const", dest="invalid_rows", const="skip",
        help="skip invalid rows, but name and count them; `predict` writes empty predictions for them")  # fmt: skip
    if isinstance(parser, UnusedParser):
        return
    groups: dict[str, Any] = {}
    for name, parameters_of in _task_options().items():
        title = ", ".join(parameters_of).replace("_", " ")
        group = groups[title] = groups.get(title) or parser.add_argument_group(title)
        add_flag(group, name, _merged(parameters_of), unset=True)


def _task_options() -> dict[str, dict[str, Parameter]]:
    """Return the options that only some tasks have: name -> task -> parameter of its evaluator."""
    options: dict[str, dict[str, Parameter]] = {}
    for task, entry in TASKS.items():
        for reference in entry.evaluators.values():
            for name, parameter in _parameters(reference).items():
                if name not in _COMMON:
                    options.setdefault(name, {})[task] = parameter
    return options


def _parameters(evaluator: Reference) -> dict[str, Parameter]:
    """Return the parameters of an evaluator; none if it is defined in a script or notebook (no module name)."""
    name = full_name(evaluator)
    return {} if name.startswith("__main__.") else parameters(name)


def _merged(parameters_of: dict[str, Parameter]) -> Parameter:
    """Merge the parameters that several tasks have under one name; the help gives the meaning for each task."""
    first, *others = parameters_of.values()
    if all(other == first for other in others):
        return first
    meanings = (f"{task.replace('_', ' ')}: {help_of(each)}" for task, each in parameters_of.items())
    return first._replace(default=None, meaning="; ".join(meanings))


def run_evaluate(args: argparse.Namespace) -> None:
    """Print the metrics of a model on labelled data."""
    from bert_jax import evaluation

    scores = evaluation.evaluate(
        args.model,
        args.data,
        _columns(args, label=args.label_column, separator=args.label_separator),
        metric_names=tuple(args.metrics.split(",")) if args.metrics else (),
        report=args.report,
        **_evaluator_options(args),
    )
    print_scores(scores, f"{args.model} on {args.data}", args.json)
    if args.report and not args.json:
        say(f"{args.report}: report written")


def run_predict(args: argparse.Namespace) -> int:
    """Write a model's prediction for every row of a file, or of each file of --shards."""
    from bert_jax import evaluation

    if bool(args.data) == bool(args.shards):
        raise InputError(f"expected --data FILE or --shards FILES, found {'both' if args.data else 'none'}")
    if args.format and not args.shards:
        raise InputError("--format: expected --shards too, found none; without it, the suffix of --out is the format")
    if not shards.is_over_shards(args):
        count = evaluation.predict(args.model, args.data, args.out, _columns(args), **_evaluator_options(args))
        say(f"{args.out}: {count:,} rows")
        return 0
    suffix = f".{args.format or 'jsonl'}"
    predict = evaluation.open_predictor(args.model, f"answers{suffix}", _columns(args), **_evaluator_options(args))

    def answer(shard: shards.ShardFiles) -> int:
        shard.out.parent.mkdir(parents=True, exist_ok=True)
        return predict(str(shard.source), shard.out)

    args.skip = args.invalid_rows == "skip"
    return shards.over_shards(args, suffix, answer)


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


def _evaluator_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options for the model's evaluator. Raises InputError if an option is for models of another task."""
    from bert_jax import evaluation

    check_counts(args, "batch_size")
    options = _task_options()
    passed = {name: value for name in options if (value := getattr(args, name, None)) is not None}
    if passed:
        evaluator = evaluation.evaluator_class(args.model)
        for name in passed.keys() - _parameters(evaluator).keys():
            tasks = " or ".join(options[name]).replace("_", " ")
            raise InputError(f"{flag_of(name)}: expected a model for {tasks}, found one for {evaluator.head}")
    return passed | _RUNNER.values(args) | {"onnx": args.onnx, "invalid_rows": args.invalid_rows, "skipping": "--skip"}
