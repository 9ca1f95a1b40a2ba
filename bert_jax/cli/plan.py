"""The verb `plan`: predict memory, time and collectives of a recipe on a TPU slice, without access to one."""

import argparse
import collections
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from bert_jax.cli.output import complain, console, say
from bert_jax.cli.train import overrides_of
from bert_jax.cli.verbs import Verbs, add_verb
from bert_jax.errors import InputError

if TYPE_CHECKING:
    from bert_jax.planning.plan import Plan, StagePlan
    from bert_jax.planning.search import FoundPlan, Trial
    from bert_jax.planning.slices import Slice

EXIT_DOES_NOT_FIT = 1


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb `plan`."""
    plan = add_verb(
        verbs,
        "plan",
        run_plan,
        "compile a recipe for a TPU slice that this machine does not have",
        "Compiles the training step of each stage with the TPU compiler (`pip install 'bert-jax[tpu]'`). Prints the "
        "memory, the collectives, a lower bound of the step time, and an upper bound of the MFU. Exits with status 1 "
        "when the step does not fit in memory.",
        """bert-jax plan --config bert_base --topology v5e:4x4
           bert-jax plan --config bert_large --topology v5p:4x4x4 --json
           bert-jax plan --config bert_large --topology v5litepod-4 --search
           bert-jax plan --forward base --topology v6e:1x1 --batch-size 256 --length 128""",
    )
    what = plan.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", metavar="RECIPE[:ARG]", help="name or file of a recipe of any task")
    what.add_argument(
        "--forward",
        metavar="MODEL",
        help="plan forward passes of a model directory or a named size instead, in bfloat16 and quantized",
    )
    plan.add_argument(
        "--topology",
        required=True,
        metavar="SLICE",
        help="TPU slice, such as v5e:4x4 or v5litepod-16, of any generation from v2 to tpu7x",
    )
    plan.add_argument("--slices", type=int, default=1, metavar="N", help="number of slices (default: 1)")
    plan.add_argument(
        "--search",
        action="store_true",
        help="find the largest batch that fits, for each mesh and each setting of remat (rematerialisation)",
    )
    plan.add_argument("--batch-size", type=int, metavar="N",
        help="for --forward: texts per batch, over all devices (default: 256)")  # fmt: skip
    plan.add_argument("--length", type=int, metavar="N", help="for --forward: tokens per text (default: 128)")
    plan.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    plan.add_argument("--config.KEY", dest="_", metavar="VALUE", help="change a value of the recipe: --config.seed=1")
    plan.set_defaults(overrides=[])


def run_plan(args: argparse.Namespace) -> int:
    """Print the plan; return 1 when it does not fit."""
    import jax

    before = jax.config.values["jax_platforms"]
    jax.config.update("jax_platforms", "cpu")  # compiling needs no device, and a training run may hold them all
    try:
        return _plan(args)
    finally:
        jax.config.update("jax_platforms", before)


def _plan(args: argparse.Namespace) -> int:
    from bert_jax.planning.plan import plan
    from bert_jax.planning.search import search
    from bert_jax.planning.slices import find_slice
    from bert_jax.recipes import load_recipe

    def say(text: str) -> None:
        complain(f"{text} ...")

    if args.forward:
        from bert_jax.cli.plan_forward import show_forward

        return show_forward(args, say)
    for flag, value in (("--batch-size", args.batch_size), ("--length", args.length)):
        if value is not None:
            raise InputError(f"{flag}: expected only with --forward, as a recipe has its own, found {value}")
    recipe = load_recipe(args.config, overrides_of(args.overrides))
    topology = find_slice(args.topology, args.slices)
    if args.search:
        return _show_found(list(search(recipe, topology, say)), topology, args.json)
    result = plan(recipe, topology, say)
    if args.json:
        print(json.dumps(plan_as_json(result), indent=2))
    else:
        _print_tables(args.config, result)
    return 0 if result.fits else EXIT_DOES_NOT_FIT


def plan_as_json(plan: "Plan") -> dict[str, Any]:
    """Return the plan as values for JSON; bytes are per device, FLOPs are over all devices."""
    from bert_jax.planning.advice import advise

    return {
        "topology": plan.topology.name,
        "slices": plan.topology.num_slices,
        "chips": plan.topology.chips,
        "mesh": plan.mesh,
        "parameters": plan.parameters,
        "fits": plan.fits,
        "advice": advise(plan),
        "hours": plan.hours,
        "chip_hours": plan.chip_hours,
        "shardings": plan.shardings,
        "stages": [_stage_json(stage) for stage in plan.stages],
    }


def _stage_json(stage: "StagePlan") -> dict[str, Any]:
    content = dataclasses.asdict(stage)
    content["collectives"] = [
        {"kind": kind, "axes": list(axes), "hidden": hidden, "between_slices": network, **numbers}
        for (kind, axes, hidden, network), numbers in _by_kind(stage).items()
    ]
    if stage.seconds:
        content["seconds"] |= {"step": stage.seconds.step, "bound_by": stage.seconds.bound_by}
    return content


def _by_kind(stage: "StagePlan") -> dict[tuple[str, tuple[str, ...], bool, bool], dict[str, float]]:
    """Sum the collectives of a stage by (kind, axes, hidden, between slices), sorted by bytes, the largest first.

    Returns:
        For each key `count` (collectives in the program), `runs` (in a step) and `wire_bytes` (sent by a device).
    """
    totals: dict[Any, collections.Counter] = collections.defaultdict(collections.Counter)
    for collective in stage.collectives:
        if collective.devices > 1:
            totals[collective.kind, collective.axes, collective.hidden, collective.network].update(
                count=1, runs=collective.times, wire_bytes=round(collective.wire_bytes)
            )
    most_first = sorted(totals.items(), key=lambda item: -item[1]["wire_bytes"])
    return {key: dict(numbers) for key, numbers in most_first}


def _print_tables(config: str, plan: "Plan") -> None:
    from rich.table import Table

    from bert_jax.planning.advice import advise

    screen = console()
    topology, gib = plan.topology, 2**30
    slices = f"{topology.num_slices} x {topology.name}" if topology.num_slices > 1 else topology.name
    mesh = " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items())
    say(f"{config} on {slices}: {topology.chips} chips, mesh {mesh}, {plan.parameters:,} parameters")
    say("")

    table = Table("", *(f"{stage.batch_size:,} x {stage.length}" for stage in plan.stages))
    for column in table.columns[1:]:
        column.justify = "right"
    per_device = plan.mesh["data"] * plan.mesh["fsdp"]
    rows: dict[str, Any] = {
        "sequences per device": lambda s: f"{s.batch_size / per_device:,.5g}",
        "parameters and optimizer": lambda s: f"{s.state_bytes / gib:.2f} GiB",
        f"peak memory, of {topology.chip.hbm_gib:g} GiB": lambda s: (
            f"{s.peak_bytes / gib:.2f} GiB" + ("" if s.fits else " DOES NOT FIT")
        ),
        "model FLOPs per step": lambda s: f"{s.model_flops:.3g}",
        "at least: compute": lambda s: _ms(s.seconds and s.seconds.compute),
        "at least: memory": lambda s: _ms(s.seconds and s.seconds.memory),
        "interconnect, hidden": lambda s: _ms(s.seconds and s.seconds.hidden),
        "interconnect, exposed": lambda s: _ms(s.seconds and s.seconds.exposed),
        "step at the roofline": lambda s: _ms(s.seconds and s.seconds.step),
        "bound by": lambda s: s.seconds.bound_by if s.seconds else "-",
        "MFU at the roofline": lambda s: f"{s.mfu:.0%}" if s.seconds else "-",
        "steps": lambda s: f"{s.num_steps:,}",
        "hours": lambda s: f"{s.num_steps * s.seconds.step / 3600:,.1f}" if s.seconds else "-",
        "compiled in": lambda s: f"{s.compile_seconds:.0f} s",
    }
    for name, show in rows.items():
        table.add_row(name, *(show(stage) for stage in plan.stages))
    screen.print(table)

    for stage in plan.stages:
        if by_kind := _by_kind(stage):
            collectives = Table("collective", "over", "", "in the program", "runs per step", "MB per device",
                                title=f"{stage.batch_size:,} x {stage.length}", title_justify="left")  # fmt: skip
            for (kind, axes, hidden, network), numbers in by_kind.items():
                collectives.add_row(
                    kind,
                    " x ".join(axes) + ", between slices" * network,
                    "hidden" if hidden else "exposed",
                    str(numbers["count"]),
                    f"{numbers['runs']:,}",
                    f"{numbers['wire_bytes'] / 1e6:,.1f}",
                )
            screen.print(collectives)
    splits = Table("parameter", "shape and split", title="shardings", title_justify="left")
    for name, split in plan.shardings.items():
        splits.add_row(name, split)
    screen.print(splits)
    for sentence in advise(plan):
        say(sentence)
    if plan.fits and plan.hours:
        say(f"{plan.hours:,.1f} hours, {plan.chip_hours:,.0f} chip-hours at the roofline; real steps are slower.")


def _show_found(plans: "list[FoundPlan]", topology: "Slice", as_one_object: bool) -> int:
    """Print the largest batch that fits for each mesh and remat setting, the fastest first; return 1 for none."""
    fitting = sorted((f for f in plans if f.fits), key=lambda f: -f.fits.tokens_per_second if f.fits else 0)
    if as_one_object:
        trials = [
            {"fits": f.fits and _trial_json(f.fits), "beyond": f.beyond and _trial_json(f.beyond)}
            for f in [*fitting, *(f for f in plans if not f.fits)]
        ]
        print(json.dumps({"topology": topology.name, "slices": topology.num_slices, "found": trials}, indent=2))
        return 0 if fitting else EXIT_DOES_NOT_FIT
    from rich.table import Table

    screen = console()
    title = f"the largest batches on {topology.num_slices} x {topology.name}, by tokens per second at the roofline"
    table = Table("mesh", "remat", title=title, title_justify="left")
    for column in ("sequences per device", "per step", "peak GiB", "ms", "MFU", "tokens/s", "twice as many need"):
        table.add_column(column, justify="right")
    for f in fitting:
        trial = f.fits
        assert trial is not None and trial.stage.seconds is not None
        stage = trial.stage
        table.add_row(
            " x ".join(f"{axis} {size}" for axis, size in trial.mesh.items() if size > 1) or "one device",
            trial.remat,
            f"{trial.sequences:,} x {stage.length}",
            f"{stage.batch_size:,}",
            f"{stage.peak_bytes / 2**30:.2f}",
            f"{trial.stage.seconds.step * 1000:,.1f}",
            f"{stage.mfu:.0%}",
            f"{trial.tokens_per_second:,.0f}",
            f"{f.beyond.stage.peak_bytes / 2**30:.1f} GiB" if f.beyond else "-",
        )
    screen.print(table)
    for f in plans:
        if not f.fits and f.beyond:
            mesh = " x ".join(f"{axis} {size}" for axis, size in f.beyond.mesh.items())
            say(f"mesh {mesh}, remat {f.beyond.remat}: not even one sequence per device fits")
    if not fitting:
        return EXIT_DOES_NOT_FIT
    best = fitting[0].fits
    assert best is not None
    say("the fastest: " + " ".join(f"--config.{key}={value}" for key, value in _settings(best).items()))
    return 0


def _settings(trial: "Trial") -> dict[str, Any]:
    """Return the recipe keys that select the mesh and rematerialisation of a trial."""
    return {**{f"mesh.{axis}": size for axis, size in trial.mesh.items()}, "remat": trial.remat}


def _trial_json(trial: "Trial") -> dict[str, Any]:
    return {
        "mesh": trial.mesh,
        "remat": trial.remat,
        "sequences": trial.sequences,
        "tokens_per_second": trial.tokens_per_second if trial.stage.seconds else None,
        "stage": _stage_json(trial.stage),
    }


def _ms(seconds: float | None) -> str:
    return f"{seconds * 1000:,.2f} ms" if seconds is not None else "-"
