"""The verbs `evaluate` and `predict`: run a fine-tuned model over the rows of a file."""

import argparse
from typing import TYPE_CHECKING, Any

from bert_jax.cli import shards
from bert_jax.cli.output import print_scores, say
from bert_jax.cli.verbs import Verbs, add_dtype, add_prompts, add_truncate_dim, add_verb
from bert_jax.errors import InputError

if TYPE_CHECKING:
    from bert_jax.data.finetuning.tables import Columns


# Options of question answering (`doc_stride` also for classifiers with windows): type, metavar and help.
QUESTION_FLAGS: dict[str, tuple[type, str, str]] = {
    "doc_stride": (
        int,
        "N",
        "tokens from the start of one window to the start of the next (default: 128 for question answering, half "
        "a window for "
        "classifiers with --long windows)",
    ),
    "max_answer_length": (int, "N", "maximum number of tokens in an answer (default: 30)"),
    "null_threshold": (
        float,
        "X",
        "predict the empty answer if its score exceeds that of the best span by more than X (default: 0)",
    ),
}


def add_verbs(verbs: Verbs) -> None:
    """Declare the verbs of this module."""
    evaluate = add_verb(
        verbs,
        "evaluate",
        run_evaluate,
        "evaluate a fine-tuned model on labelled data",
        "Prints accuracy, F1 and Matthews correlation for classifiers; Pearson and Spearman correlation for "
        "regressions and sentence embeddings; F1, precision and recall of entities for taggers, and of relations; "
        "exact match and F1 of SQuAD for question answering.",
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
        help="column of the label (default: the column used in training; if the model does not record it: 'tags' for "
        "taggers, 'score' for embeddings, 'target' for encoder-decoders, otherwise 'label')",
    )
    evaluate.add_argument(
        "--label-separator", default="", metavar="C", help="separator of several labels in a cell (default: a comma)"
    )
    evaluate.add_argument(
        "--tag-names",
        metavar="NAME,NAME",
        type=lambda names: tuple(names.split(",")),
        help="names of the tags 0, 1, ... where the data has numbers for tags (default: the model's names)",
    )
    evaluate.add_argument(
        "--metrics", default="", metavar="NAME[,NAME]", help="metrics to compute (default: all that apply)"
    )
    evaluate.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    evaluate.add_argument(
        "--report", metavar="FILE.html", help="also write a report: errors by class, calibration, the worst mistakes"
    )
    predict.add_argument(
        "--submission", action="store_true", default=None, help="write a GLUE submission: index and prediction, as .tsv"
    )
    predict.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="file to write: .jsonl, .tsv, .csv or .parquet; .conll and .conllu for taggers; .json for question "
        "answering; with --shards the directory of such files; .csv and .tsv have an apostrophe before texts that a "
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
        help="column of the text (default: the column used in training; if the model does not record it: 'sentence1' "
        "for embeddings, 'context' for multiple choice, 'source' for encoder-decoders, otherwise 'sentence')",
    )
    add(
        "--pair-column",
        default="",
        metavar="NAME",
        help="column of the second text; for multiple choice, column of the question or of the unfinished sentence "
        "(default: the column used in training; if the model does not record it: 'sentence2' for embeddings, otherwise "
        "none)",
    )
    add("--entity-types", metavar="NAME,NAME", type=lambda names: tuple(names.split(",")),
        help="types that a GLiNER finds (default of evaluate: those of the data)")  # fmt: skip
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
    add("--batch-size", type=int, default=32, metavar="N", help="rows in a forward pass (default: %(default)s)")
    add("--max-seq-length", type=int, default=0, metavar="N",
        help="maximum number of tokens in a sequence; longer texts are cut or windowed (default: the model's "
             "limit)")  # fmt: skip
    add_dtype(parser)
    add("--onnx", metavar="FILE",
        help="ONNX file of the model by `bert-jax export`, to be run by onnxruntime in place of JAX")  # fmt: skip
    vectors = parser.add_argument_group("sentence embeddings and cross-encoders")
    add_prompts(vectors)
    add_truncate_dim(vectors)
    rules = parser.add_mutually_exclusive_group()
    rules.add_argument("--strict", action="store_const", dest="invalid_rows", const="strict", default="strict",
        help="if there are invalid rows, exit with an error that names the first and counts all (default)")  # fmt: skip
    rules.add_argument("--skip", action="store_const", dest="invalid_rows", const="skip",
        help="skip invalid rows: name and count them; `predict` writes empty predictions for them")  # fmt: skip
    questions = parser.add_argument_group("question answering")
    for name, (kind, metavar, what) in QUESTION_FLAGS.items():
        questions.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=what)
    parser.add_argument("--long", choices=("cut", "windows"), dest="long_texts",
        help="classifiers: cut texts over --max-seq-length (the default), or average the logits of overlapping "
        "windows")  # fmt: skip


def run_evaluate(args: argparse.Namespace) -> None:
    """Print the metrics of a model on labelled data."""
    from bert_jax import evaluation

    scores = evaluation.evaluate(
        args.model,
        args.data,
        _columns(args, label=args.label_column, separator=args.label_separator),
        metric_names=tuple(args.metrics.split(",")) if args.metrics else (),
        report=args.report,
        **_running(args),
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
        raise InputError("--format: expected --shards too, found none; without, the suffix of --out is the format")
    if not shards.is_over_shards(args):
        count = evaluation.predict(args.model, args.data, args.out, _columns(args), **_running(args))
        say(f"{args.out}: {count:,} rows")
        return 0
    suffix = f".{args.format or 'jsonl'}"
    predict = evaluation.open_predictor(args.model, f"answers{suffix}", _columns(args), **_running(args))

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


# Option of one task's models -> what such a model does.
_TASK_OPTIONS = {
    "submission": "classifies texts",
    "long_texts": "classifies texts",
    "tag_names": "tags words",
    "entity_types": "finds entities of named types",
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
            raise InputError(
                f"--{name.replace('_', '-')}: expected a model that {_TASK_OPTIONS[name]}, found a model that does not"
            )
    for name in ("batch_size", "max_seq_length", "dtype", "onnx", "invalid_rows"):
        given[name] = getattr(args, name)
    return given | {"skipping": "--skip"}
