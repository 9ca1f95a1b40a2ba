"""The verbs `pretrain` and `finetune`: run a recipe in a work directory."""

import argparse
import math
import os
import shlex
from collections.abc import Callable
from typing import Any

from bert_jax.cli.output import complain, console, say
from bert_jax.cli.verbs import add_verb
from bert_jax.errors import InputError
from bert_jax.training import stopping
from bert_jax.training.stopping import Stop


def add_verbs(verbs: Any) -> None:
    """Declares the verbs of this group."""
    pretrain = add_verb(
        verbs,
        "pretrain",
        run_pretrain,
        "pretrain a model as a recipe says",
        "The corpus is prepared first, by `bert-jax prepare`. The working directory receives the resolved "
        "configuration, checkpoints, metrics, curves and, at the end, model/ in the Hugging Face layout. The same "
        "command line on the same directory resumes a killed run exactly.",
        """bert-jax pretrain --config bert_base --workdir runs/base --config.data.prepared=prepared/
           bert-jax pretrain --config bert_base --workdir gs://bucket/base --distributed""",
    )
    finetune = add_verb(
        verbs,
        "finetune",
        run_finetune,
        "fine-tune a model as a recipe says",
        "Starts from the model that the recipe's init_from names. The working directory is as for `bert-jax pretrain`.",
        """bert-jax finetune --config classification --workdir runs/sst2 --config.init_from=bert-base/ \\
               --config.data.train=train.tsv --config.data.dev=dev.tsv
           bert-jax finetune --config classification:cola,CoLA --workdir runs/cola --config.init_from=bert-base/ \\
               --sweep seed=0,1,2 --sweep optimizer.learning_rate=2e-5,5e-5""",
    )
    finetune.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="KEY=V,V",
        help="a run for each value, seeds averaged; repeatable",
    )
    for parser in (pretrain, finetune):
        parser.add_argument(
            "--config",
            required=True,
            metavar="RECIPE[:ARG]",
            help="the name of a recipe (`bert-jax config` lists them) or a file of your own, and what it takes",
        )
        parser.add_argument("--workdir", required=True, metavar="DIR", help="where the run lives; local or gs://")
        parser.add_argument("--quiet", action="store_true", help="no progress bar")
        # Declared for the help alone; the parser leaves these over, since their names are the recipe's.
        parser.add_argument(
            "--config.KEY",
            dest="_",
            metavar="VALUE",
            help="change a value of the recipe: --config.seed=1; `bert-jax config RECIPE` prints all keys",
        )
        parser.set_defaults(overrides=[])
        hosts = parser.add_argument_group("several hosts (the same command on each)")
        hosts.add_argument("--distributed", action="store_true", help="find the others (Cloud TPU, Slurm, Open MPI)")
        hosts.add_argument("--coordinator", metavar="HOST:PORT", help="elsewhere: where process 0 listens")
        hosts.add_argument("--num-processes", type=int, metavar="N", help="... how many processes there are")
        hosts.add_argument("--process-id", type=int, metavar="I", help="... which of them this is, from 0")


def run_pretrain(args: argparse.Namespace) -> int:
    """Trains the recipe, which must be one of pretraining (`recipes.PRETRAINING`)."""
    return _stoppable(args, lambda stop: _train(args, stop, pretraining=True))


def run_finetune(args: argparse.Namespace) -> int:
    """Trains the recipe, which must be of another task than pretraining, maybe with several values of some keys."""
    return _stoppable(args, lambda stop: _sweep(args) if args.sweep else _train(args, stop, pretraining=False))


def _stoppable(args: argparse.Namespace, run: Callable[[Stop], None]) -> int:
    """Runs what Ctrl-C and SIGTERM stop with a line that says what is saved and how to resume; returns the status."""
    with stopping.listening(shlex.join(["bert-jax", *args.command_line])) as stop:
        try:
            run(stop)
            return 0
        except (KeyboardInterrupt, stopping.Preempted) as stopped:
            complain(f"bert-jax: {stop.result()}")
            code = stopping.EXIT_INTERRUPTED if isinstance(stopped, KeyboardInterrupt) else stopping.EXIT_TERMINATED
            if stop.abrupt and (args.distributed or args.coordinator):
                os._exit(code)  # at its end, JAX would wait for the other hosts, and these may wait for this one
            return code


def _train(args: argparse.Namespace, stop: Stop, pretraining: bool) -> None:
    recipe = _recipe(args, pretraining)
    with stop.paused():
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


def _sweep(args: argparse.Namespace) -> None:
    from bert_jax.training.sweep import RESULTS, parse_grid, sweep

    if args.distributed or args.coordinator:
        raise InputError("--sweep: expected one host, found several; run each value by itself there")
    _recipe(args, pretraining=False)
    grid = parse_grid(args.sweep)
    rows = sweep(args.config, overrides_of(args.overrides), grid, args.workdir, progress=not args.quiet)
    from rich.table import Table

    keys, metrics = list(rows[0].values), list(rows[0].mean)
    table = Table(*keys, "seeds", *metrics, title=f"{args.workdir}/{RESULTS}", title_justify="left")
    for row in rows:
        cells = [f"{row.mean[name]:.4f}" + (f" ± {row.spread[name]:.4f}" if row.seeds > 1 else "") for name in metrics]
        table.add_row(*row.values.values(), str(row.seeds), *cells)
    console().print(table)


def _recipe(args: argparse.Namespace, pretraining: bool) -> Any:
    """The recipe of a command line, whose task is one of the verb's."""
    from bert_jax.recipes import PRETRAINING, load_recipe
    from bert_jax.training.host_memory import keep_freed_memory

    keep_freed_memory()  # here, as what follows starts the JAX backend
    recipe = load_recipe(args.config, overrides_of(args.overrides))
    if (recipe.task in PRETRAINING) != pretraining:
        verb = "finetune" if pretraining else "pretrain"
        raise InputError(f"{args.config}: its task is {recipe.task!r}, which is run by `bert-jax {verb}`")
    return recipe


def overrides_of(words: list[str]) -> list[str]:
    """What the parser left over, as one `--config.a.b=value` each; the value may have stood apart."""
    joined: list[str] = []
    for word in words:
        if word.startswith("--config."):
            joined.append(word)
        elif joined and "=" not in joined[-1] and not word.startswith("--"):
            joined[-1] += f"={word}"
        else:
            raise InputError(
                f"{word!r} was not expected; a value of the recipe is changed by --config.KEY=VALUE{_meant_key(word)}"
            )
    return joined


def _meant_key(word: str) -> str:
    """The key of a recipe that a flag such as `--lr=1e-4` probably means, as the end of a message."""
    from bert_jax.recipes.definitions import KEYS
    from bert_jax.synonyms import names_here

    if not word.startswith("--"):
        return ""
    name, equals, value = word.removeprefix("--").partition("=")
    full = {key: key.rpartition(".")[2] for keys in KEYS.values() for key in keys}
    meant = names_here(name, list(full.values()))
    keys = [key for key, leaf in full.items() if leaf in meant]
    return ", here " + " or ".join(f"--config.{key}={value if equals else 'VALUE'}" for key in keys) if keys else ""


def _join_hosts(args: argparse.Namespace) -> None:
    """Connects this process with the others of a run over several hosts; must come before jax touches a device."""
    by_hand = (args.coordinator, args.num_processes, args.process_id)
    if any(value is not None for value in by_hand):
        if any(value is None for value in by_hand):
            raise InputError("--coordinator, --num-processes and --process-id are needed together")
        if not 0 <= args.process_id < args.num_processes:
            raise InputError(f"--process-id must be in [0, {args.num_processes}), found {args.process_id}")
    elif not args.distributed:
        return

    import jax

    try:
        jax.distributed.initialize(*by_hand)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"could not join the other hosts: {str(error).splitlines()[0]}") from error
