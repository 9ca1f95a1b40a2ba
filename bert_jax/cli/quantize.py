"""The verb `quantize`: write a quantized copy of a model directory."""

import argparse
from collections.abc import Iterator, Sequence

from bert_jax.cli.output import complain, print_table, say
from bert_jax.cli.verbs import Verbs, add_verb
from bert_jax.config.quantization import GROUP_SIZE, KEEP, MODES, Quantization
from bert_jax.errors import InputError, did_you_mean


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb `quantize`."""
    quantize = add_verb(
        verbs,
        "quantize",
        run_quantize,
        "quantize a model to int8, int4 or float8",
        "Quantizes the kernels of the encoder and the word embedding of a fine-tuned or pretrained model. Every verb, "
        "`pipeline` and `from_pretrained` take the result as it is. Hugging Face transformers cannot open it; "
        "`bert-jax convert` writes it back as float32. Modes: "
        + "; ".join(f"{name} ({mode.says})" for name, mode in MODES.items())
        + ".",
        """bert-jax quantize runs/sst2/model --out runs/sst2-int8 --mode int8
           bert-jax quantize all-MiniLM-L6-v2/ --out minilm-int4 --mode int4 --keep 'encoder/layers/mlp/down/*'
           bert-jax quantize runs/sst2/model --out runs/sst2-static --mode int8_static \\
             --calibration SST-2/train.tsv --text-column sentence""",
    )
    add = quantize.add_argument
    add("model", metavar="MODEL", help="a model directory")
    add("--out", required=True, metavar="DIR", help="a new directory")
    add("--mode", required=True, metavar="MODE", help=f"one of {', '.join(MODES)}")
    add("--keep", nargs="+", default=[], metavar="PATTERN",
        help="paths of parameters to keep in float32, as patterns with * and ?, in addition to the default patterns: "
        + " ".join(KEEP))  # fmt: skip
    add("--no-default-keep", action="store_true",
        help="keep only LayerNorms, biases and the patterns of --keep in float32")  # fmt: skip
    add("--group-size", type=int, default=GROUP_SIZE, metavar="N",
        help="for mode int4: number of inputs of a dense layer that share a scale (default: %(default)s)")  # fmt: skip
    add_calibration(quantize, "mode")


def add_calibration(parser: argparse.ArgumentParser, option: str) -> None:
    """Declare the calibration flags, for int8_static; `option` is the verb's flag for it, `mode` or `dtype`."""
    add = parser.add_argument
    add("--calibration", metavar="FILE",
        help=f"for {option} int8_static: file of texts like those to predict, one per line, or a table; may be "
        "compressed")  # fmt: skip
    add("--text-column", default="", metavar="NAME",
        help="column of the texts; required if FILE is a table: .tsv, .csv, .jsonl or tfds:NAME")  # fmt: skip
    add("--pair-column", default="", metavar="NAME", help="column of the second text of a pair")
    add("--calibration-rows", type=int, default=512, metavar="N", help="rows of FILE to use (default: %(default)s)")


def check_calibration(args: argparse.Namespace, option: str, chosen: Sequence[str]) -> None:
    """Raise InputError when `--calibration` is missing or not needed, or the number of its rows is invalid."""
    static = any(MODES[name].inputs == "static" for name in chosen if name in MODES)
    if static and args.calibration is None:
        raise InputError(f"--calibration: expected a file of texts, as {option} int8_static needs, found none")
    if not static and args.calibration is not None:
        raise InputError(f"--calibration: expected only with {option} int8_static, found "
                         f"{', '.join(chosen)}")  # fmt: skip
    if args.calibration_rows < 1:
        raise InputError(f"--calibration-rows: expected at least 1, found {args.calibration_rows}")


def run_quantize(args: argparse.Namespace) -> None:
    """Quantize a model directory, and print its size before and after."""
    if args.mode not in MODES:
        raise InputError(f"--mode {args.mode!r} is not known{did_you_mean(args.mode, MODES)}")
    check_calibration(args, "mode", [args.mode])
    from bert_jax.compression.quantization import quantize

    keep = (*(() if args.no_default_keep else KEEP), *args.keep)
    done = quantize(
        args.model,
        args.out,
        Quantization(args.mode, keep, args.group_size),
        calibration_texts(args),
        args.calibration_rows,
    )
    before, after = done.bytes_before / 1e6, done.bytes_after / 1e6
    rows = [
        ("parameters", f"{done.parameters:,}"),
        ("quantized", f"{done.quantized:,} ({done.quantized / done.parameters:.1%})"),
        ("MB in float32", f"{before:,.1f}"),
        ("MB now", f"{after:,.1f} ({before / after:.2f} times smaller)"),
    ]
    if done.calibrated:
        rows.append(("calibration texts", f"{done.calibrated:,}"))
    print_table(f"{args.out}: {args.mode}", ("", ""), rows)
    complain("transformers cannot open this directory; `bert-jax convert` writes it back as float32")
    say(f"{args.out}: {MODES[args.mode].says}")


def calibration_texts(args: argparse.Namespace) -> Iterator[str | tuple[str, str]]:
    """Yield the texts or pairs of `--calibration`; none without it."""
    if args.calibration is None:
        return
    from bert_jax.data.finetuning.tables import Columns, read_examples
    from bert_jax.data.lines import read_lines

    if not args.text_column:
        if args.pair_column:
            raise InputError("--pair-column: expected --text-column with it, found none")
        yield from (line for line in read_lines(args.calibration) if line.strip())
        return
    for row in read_examples(args.calibration, Columns(args.text_column, args.pair_column)):
        yield (row.text, row.pair) if row.pair is not None else row.text
