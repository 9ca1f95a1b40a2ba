"""The verb `export`: write a model directory as StableHLO, ONNX or a SavedModel."""

import argparse

from bert_jax.cli.output import print_table, say
from bert_jax.cli.quantize import add_calibration, calibration_texts, check_calibration
from bert_jax.cli.verbs import Verbs, add_verb

_FORMATS = ("stablehlo", "onnx", "savedmodel")  # the formats of `bert_jax.export`, which is slow to import


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb `export`."""
    export = add_verb(
        verbs,
        "export",
        run_export,
        "export a model to StableHLO, ONNX or SavedModel",
        "Writes a program for any batch size and length, with the tokenizer, the config and a README.md that shows "
        "how to run it. Each file is then run in its own runtime, and its outputs are compared with those of "
        "bert_jax. Formats and their dtypes: stablehlo, for jax.export (float32, bfloat16; `pip install "
        "'bert-jax[stablehlo]'`); onnx, for onnxruntime and transformers.js (float32, float16, int8_dynamic, "
        "int8_static; `pip install 'bert-jax[onnx]'`); savedmodel, for TensorFlow (float32; `pip install "
        "'bert-jax[savedmodel]'`).",
        """bert-jax export runs/sst2/model --out exported/ --format onnx
           bert-jax export all-MiniLM-L6-v2/ --out minilm-onnx --format onnx --dtype float32 float16 int8_dynamic
           bert-jax export runs/sst2/model --out sst2-onnx --format onnx --dtype int8_static \\
             --calibration SST-2/train.tsv --text-column sentence
           bert-jax export runs/sst2/model --out sst2-stablehlo --format stablehlo""",
    )
    add = export.add_argument
    add("model", metavar="MODEL", help="a model directory")
    add("--out", required=True, metavar="DIR", help="a new directory")
    add("--format", required=True, metavar="FORMAT", help=f"one of {', '.join(_FORMATS)}")
    add("--dtype", nargs="+", default=["float32"], metavar="DTYPE",
        help="dtypes of the format; each is written to its own file (default: float32)")  # fmt: skip
    add("--head", metavar="HEAD", help="the head to export (default: the saved one)")
    add("--no-check", action="store_true", help="do not run the written files and compare their outputs")
    add_calibration(export, "dtype")


def run_export(args: argparse.Namespace) -> None:
    """Export a model directory, and print its files with their sizes and differences from bert_jax in float32."""
    check_calibration(args, "dtype", args.dtype)
    from bert_jax.export.exporting import export_model

    files = export_model(
        args.model,
        args.out,
        args.format,
        args.dtype,
        head=args.head,
        calibration=calibration_texts(args),
        rows=args.calibration_rows,
        check=not args.no_check,
    )
    rows = []
    for file in files:
        differences = ("", "") if file.difference is None else tuple(f"{value:.1e}" for value in file.difference)
        rows.append((file.path, file.dtype, f"{file.bytes / 1e6:,.1f}", *differences))
    print_table(f"{args.out}: {args.format}", ("file", "dtype", "MB", "difference", "RMS"), rows)
    say(f"{args.out}/README.md shows how to run it")
