"""`bert-jax plan --forward`: plan forward passes instead of training."""

import argparse
import dataclasses
import json
from collections.abc import Callable

from bert_jax.cli.output import print_table
from bert_jax.config import BertConfig
from bert_jax.config.values import SIZES
from bert_jax.errors import InputError

EXIT_NONE_FITS = 1


def show_forward(args: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Print the roofline of a model's forward passes; return 1 when none fits in memory."""
    from bert_jax.planning.forward import plan_forward
    from bert_jax.planning.slices import find_slice

    if args.search or args.overrides:
        option = "--search" if args.search else args.overrides[0]
        raise InputError(f"--forward: expected no recipe options, found {option}")
    config, head = _model(args.forward)
    topology = find_slice(args.topology, args.slices)
    batch_size = 256 if args.batch_size is None else args.batch_size
    length = 128 if args.length is None else args.length
    plans = plan_forward(config, head, topology, batch_size, length, say=say)
    if args.json:
        rows = [dataclasses.asdict(plan) | {"seconds": plan.seconds, "bound_by": plan.bound_by,
                                            "texts_per_second": plan.texts_per_second} for plan in plans]  # fmt: skip
        print(json.dumps({"topology": topology.name, "slices": topology.num_slices, "plans": rows}, indent=2))
    else:
        columns = ("mode", "MB", "peak MB", "compute", "memory", "texts/s", "bound by", "speed")
        first = plans[0].texts_per_second
        print_table(
            f"{args.forward} on {topology.name}: {batch_size} texts of {length} tokens, at the roofline",
            columns,
            [
                (
                    plan.mode,
                    f"{plan.parameter_bytes / 1e6:,.1f}",
                    f"{plan.peak_bytes / 1e6:,.1f}" + ("" if plan.fits else " DOES NOT FIT"),
                    f"{plan.compute * 1000:,.2f} ms",
                    f"{plan.memory * 1000:,.2f} ms",
                    f"{plan.texts_per_second:,.0f}" if plan.fits else "-",
                    plan.bound_by,
                    f"{plan.texts_per_second / first:.2f}" if first else "-",
                )
                for plan in plans
            ],
        )
    return 0 if any(plan.fits for plan in plans) else EXIT_NONE_FITS


def _model(name: str) -> tuple[BertConfig, str]:
    """Return config and head of a model directory or of a named size."""
    from bert_jax import storage
    from bert_jax.conversion.open_checkpoint import open_model

    if name in SIZES and not storage.Path(name).is_dir():
        return BertConfig.named(name), "encoder"
    with open_model(name, None, "") as opened:
        return opened.model.config, opened.model.head
