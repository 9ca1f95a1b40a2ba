"""The verbs `pretrain`, `finetune` and `distill`: train a model by a recipe in a work directory."""

import argparse
import math
import os
import shlex
from collections.abc import Callable
from typing import Any

from bert_jax.cli.hosts import join_hosts
from bert_jax.cli.output import complain, console, say
from bert_jax.cli.verbs import Verbs, add_verb
from bert_jax.errors import InputError
from bert_jax.training import stopping

# Flags of `finetune` that change the recipe: flag -> the key, and the help.
_TABLE = {
    "--table": ("data.train", "table to train on; as the first argument it needs no flag"),
    "--text": ("data.text_column", "column of the texts"),
    "--pair": ("data.pair_column", "column of the second texts of pairs"),
    "--label": ("data.label_column", "column of the labels"),
    "--model": ("init_from", "model directory to start from"),
    "--dev": ("data.dev", "table to evaluate on (default: a tenth of the rows)"),
}


def add_verbs(verbs: Verbs) -> None:
    """Declare the verbs of this module."""
    pretrain = add_verb(
        verbs,
        "pretrain",
        run_pretrain,
        "pretrain a model by a recipe",
        "Run `bert-jax prepare` on the corpus first. Writes the resolved configuration, checkpoints, metrics, training "
        "curves and finally model/ in the Hugging Face layout to the work directory. The same command line with the "
        "same work directory resumes a killed run exactly.",
        """bert-jax pretrain --config bert_base --workdir runs/base --config.data.prepared=prepared/
           bert-jax pretrain --config bert_base --workdir gs://bucket/base --distributed""",
    )
    finetune = add_verb(
        verbs,
        "finetune",
        run_finetune,
        "fine-tune a model by a recipe",
        "Starts from a model directory: --model, or the recipe key init_from. With a table as the first argument and "
        "no recipe, trains a classifier of its texts, and holds out a tenth of the rows. Writes the same files to the "
        "work directory as `bert-jax pretrain`, and resumes a killed run in the same way.",
        """bert-jax finetune reviews.csv --text review --label stars --model bert-base/ --out runs/reviews
           bert-jax finetune --config classification --workdir runs/sst2 --config.init_from=bert-base/ \\
               --config.data.train=train.tsv --config.data.dev=dev.tsv
           bert-jax finetune --config classification:cola,CoLA --workdir runs/cola --config.init_from=bert-base/ \\
               --sweep seed=0,1,2 --sweep optimizer.learning_rate=2e-5,5e-5""",
    )
    distill = add_verb(
        verbs,
        "distill",
        run_distill,
        "train a smaller model that learns from a teacher",
        "Runs a recipe of any task whose key distillation.teacher names a model. Writes the same files as `bert-jax "
        "pretrain` to the work directory, for the student alone, and resumes a killed run in the same way.",
        """bert-jax distill --config distil_sst2:path/to/SST-2 --workdir runs/small \\
               --config.distillation.teacher=runs/sst2/model
           bert-jax distill --config distil_text:texts.tsv,text --workdir runs/embed \\
               --config.distillation.teacher=path/to/all-MiniLM-L6-v2""",
    )
    finetune.set_defaults(first_word="--table")
    for flag, (key, text) in _TABLE.items():
        finetune.add_argument(flag, metavar="NAME" if key.endswith("column") else "PATH", help=text)
    for parser in (finetune, distill):
        parser.add_argument(
            "--sweep",
            action="append",
            default=[],
            metavar="KEY=V,V",
            help="train once for each value of a key; with several --sweep, once for each combination; scores are "
            "averaged over the values of the key seed",
        )
    for parser in (pretrain, finetune, distill):
        parser.add_argument(
            "--config",
            required=parser is not finetune,
            metavar="RECIPE[:ARG]",
            help="name of a recipe (`bert-jax config` lists them) or a recipe file; ARG is the "
            "argument of its get_config, for many recipes a data set and its directory: classification:sst2,DIR",
        )
        parser.add_argument(
            "--workdir", "--out", required=True, metavar="DIR", help="work directory of the run; local or gs://"
        )
        parser.add_argument("--quiet", action="store_true", help="show no progress bar")
        # Declared only so that --help shows it: the actual flags are named by recipe keys and are left unparsed.
        parser.add_argument(
            "--config.KEY",
            dest="_",
            metavar="VALUE",
            help="change a value of the recipe: --config.seed=1; `bert-jax config RECIPE` prints all keys",
        )
        parser.set_defaults(overrides=[])
        hosts = parser.add_argument_group("several hosts (the same command on each)")
        hosts.add_argument(
            "--distributed", action="store_true", help="detect the other hosts (Cloud TPU, Slurm, Open MPI)"
        )
        hosts.add_argument("--coordinator", metavar="HOST:PORT", help="without --distributed: address of process 0")
        hosts.add_argument("--num-processes", type=int, metavar="N", help="with --coordinator: number of processes")
        hosts.add_argument(
            "--process-id", type=int, metavar="I", help="with --coordinator: number of this process, from 0"
        )


def run_pretrain(args: argparse.Namespace) -> int:
    """Pretrain a model by a recipe on prepared corpora, and return the exit status."""
    return stoppable(args, lambda: _train(args, "pretrain"))


def run_finetune(args: argparse.Namespace) -> int:
    """Fine-tune a model by a recipe, or run a sweep over values of its keys, and return the exit status."""
    return stoppable(args, lambda: _sweep(args, "finetune") if args.sweep else _train(args, "finetune"))


def run_distill(args: argparse.Namespace) -> int:
    """Train the student of a distillation recipe, or run a sweep over its keys, and return the exit status."""
    return stoppable(args, lambda: _sweep(args, "distill") if args.sweep else _train(args, "distill"))


def stoppable(args: argparse.Namespace, run: Callable[[], None]) -> int:
    """Call `run` and return the exit status; Ctrl-C and SIGTERM print what is saved and how to resume."""
    with stopping.listening(shlex.join(["bert-jax", *args.command_line])) as stop:
        try:
            run()
            return 0
        except (KeyboardInterrupt, stopping.Preempted) as stopped:
            complain(f"bert-jax: {stop.result()}")
            code = stopping.EXIT_INTERRUPTED if isinstance(stopped, KeyboardInterrupt) else stopping.EXIT_TERMINATED
            if stop.abrupt and (args.distributed or args.coordinator):
                os._exit(code)  # a normal exit makes JAX wait for the other hosts, which may wait for this one
            return code


def _train(args: argparse.Namespace, verb: str) -> None:
    recipe = _recipe(args, verb)
    _join_hosts(args)

    import jax

    from bert_jax.training.loop import train

    leads = jax.process_index() == 0
    results = train(recipe, args.workdir, progress=leads and not args.quiet)
    if leads:
        scores = {name: value for name, value in results.items() if name.startswith("eval/")} or {
            "train/loss": results.get("train/loss", math.nan)
        }
        say(f"{args.workdir}: " + ", ".join(f"{name} {value:.5g}" for name, value in sorted(scores.items())))


def _sweep(args: argparse.Namespace, verb: str) -> None:
    from bert_jax.training.sweep import RESULTS, parse_grid, sweep

    if args.distributed or args.coordinator:
        raise InputError("--sweep: expected one host, found several; run a command for each value instead")
    _recipe(args, verb)
    grid = parse_grid(args.sweep)
    rows = sweep(args.config, _changes(args), grid, args.workdir, progress=not args.quiet)
    from rich.table import Table

    keys, metrics = list(rows[0].values), list(rows[0].mean)
    table = Table(*keys, "seeds", *metrics, title=f"{args.workdir}/{RESULTS}", title_justify="left")
    for row in rows:
        cells = [f"{row.mean[name]:.4f}" + (f" ± {row.spread[name]:.4f}" if row.seeds > 1 else "") for name in metrics]
        table.add_row(*row.values.values(), str(row.seeds), *cells)
    console().print(table)


def _recipe(args: argparse.Namespace, verb: str) -> Any:
    """Load the recipe of a command line, and check that it belongs to the verb: `distill` needs a teacher."""
    from bert_jax.recipes import is_pretraining, load_recipe

    changes = _changes(args)
    recipe = load_recipe(args.config, changes)
    if verb == "distill":
        if not recipe.distillation.teacher:
            raise InputError("config.distillation.teacher: expected the model directory of a teacher, found none")
        return recipe
    needed = "pretrain" if is_pretraining(recipe) else "finetune"
    if needed != verb:
        raise InputError(f"{args.config}: the task of this recipe is {recipe.task!r}; run it with `bert-jax {needed}`")
    return recipe


def _changes(args: argparse.Namespace) -> list[str]:
    """Return the recipe overrides of a command line; set `args.config` if only a table is given."""
    flag_values = {key: getattr(args, flag.removeprefix("--"), None) for flag, (key, _) in _TABLE.items()}
    changes = {key: value for key, value in flag_values.items() if value is not None}
    if args.config is None and "data.train" not in changes:
        raise InputError("finetune: expected a table, or --config RECIPE, found neither")
    if args.config is None:
        args.config = "classification"
        if "data.dev" not in changes:
            changes["data.validation_split"] = "0.1"
    return [f"--config.{key}={value}" for key, value in changes.items()] + overrides_of(args.overrides)


def overrides_of(words: list[str]) -> list[str]:
    """Return unparsed words in the form `--config.a.b=value`; a value that is a separate word is joined to its key."""
    joined: list[str] = []
    for word in words:
        if word.startswith("--config."):
            joined.append(word)
        elif joined and "=" not in joined[-1] and not word.startswith("--"):
            joined[-1] += f"={word}"
        else:
            raise InputError(
                f"{word!r} was not expected; change a value of the recipe with --config.KEY=VALUE{_meant_key(word)}"
            )
    return joined


def _meant_key(word: str) -> str:
    """Return a hint for a flag such as `--lr=1e-4`: the recipe key that is probably meant, or ""."""
    from bert_jax.recipes.keys import KEYS, synonyms
    from bert_jax.synonyms import names_here

    if not word.startswith("--"):
        return ""
    name, equals, value = word.removeprefix("--").partition("=")
    full = {key: key.rpartition(".")[2] for keys in KEYS.values() for key in keys}
    meant = names_here(name, list(full.values()), synonyms())
    keys = [key for key, leaf in full.items() if leaf in meant]
    return ", here " + " or ".join(f"--config.{key}={value if equals else 'VALUE'}" for key in keys) if keys else ""


def _join_hosts(args: argparse.Namespace) -> None:
    """Connect this process to the other hosts of the run; must come before JAX touches a device."""
    by_hand = (args.coordinator, args.num_processes, args.process_id)
    if any(value is not None for value in by_hand):
        if any(value is None for value in by_hand):
            raise InputError("--coordinator, --num-processes and --process-id are needed together")
        if not 0 <= args.process_id < args.num_processes:
            raise InputError(f"--process-id must be in [0, {args.num_processes}), found {args.process_id}")
    elif not args.distributed:
        return
    join_hosts(*by_hand)
