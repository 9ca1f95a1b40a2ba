"""The verb `prune`: remove attention heads, feed-forward columns, layers or unused vocabulary from a model."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from bert_jax.cli.output import print_table, say
from bert_jax.cli.train import overrides_of, stoppable
from bert_jax.cli.verbs import Verbs, add_verb
from bert_jax.errors import InputError

if TYPE_CHECKING:
    from bert_jax.compression.figures import Figures
    from bert_jax.compression.pruning import Pruning


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    parser = add_verb(
        verbs,
        "prune",
        run_prune,
        "remove attention heads, feed-forward columns, layers or unused vocabulary from a model",
        "Writes a smaller and faster model directory. --heads, --columns and --num-layers remove what is least "
        "important; importance is computed from gradients of the model's own loss on --data. With --config, it is "
        "computed on the training data of the recipe, which then trains the pruned model (recovery training). With "
        "--rounds N, the sizes are reached in N rounds of pruning and training. The same command line resumes a killed "
        "run exactly.",
        """bert-jax prune runs/sst2/model --out small/ --heads 0.25 --columns 0.25 --data SST-2/train.tsv
           bert-jax prune runs/sst2/model --out small/ --layers 0,2,4
           bert-jax prune runs/base/model --out english/ --vocabulary corpus/
           bert-jax prune runs/sst2/model --out small/ --heads 0.25 --columns 0.5 --rounds 2 \\
               --config classification:sst2,path/to/SST-2 --workdir runs/pruning""",
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="a model directory")
    add("--out", required=True, metavar="DIR", help="a new directory for the pruned model")
    add("--heads", type=float, default=0.0, metavar="SHARE", help="share of each layer's attention heads to remove")
    add(
        "--columns",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of each layer's feed-forward columns to remove",
    )
    add("--layers", default="", metavar="I,I,...", help="layers to keep, counted from 0: 0,2,4")
    add("--num-layers", type=int, default=0, metavar="N", help="number of most important layers to keep")
    add("--vocabulary", nargs="+", default=[], metavar="CORPUS",
        help="keep the pieces that these corpora use, and drop the others; corpora as for `prepare`")  # fmt: skip
    add("--data", default="", metavar="FILE",
        help="data from which importance is computed: labelled data of the model's task, with the same columns as its "
        "training data, or a corpus for a masked-LM model")  # fmt: skip
    add("--examples", type=int, default=256, metavar="N", help="examples used for importance (default: 256)")
    add("--json", action="store_true", help="print one JSON object instead of a table")
    recovery = parser.add_argument_group("recovery training")
    recovery.add_argument("--config", default="", metavar="RECIPE[:ARG]",
        help="train the pruned model by this recipe, which names the training data")  # fmt: skip
    recovery.add_argument("--workdir", default="", metavar="DIR", help="work directory of the rounds; local or gs://")
    recovery.add_argument("--rounds", type=int, default=1, metavar="N",
        help="number of rounds of pruning and training (default: 1)")  # fmt: skip
    # Declared only so that --help shows it, as in `finetune`.
    recovery.add_argument("--config.KEY", dest="_", metavar="VALUE", help="change a value of the recipe")
    recovery.add_argument("--quiet", action="store_true", help="show no progress bar")
    parser.set_defaults(overrides=[], distributed=False, coordinator=None)


def run_prune(args: argparse.Namespace) -> int:
    """Prune a model and return the exit status."""
    pruning = _pruning(args)
    if args.config:
        return stoppable(args, lambda: _with_recovery(args, pruning))
    if args.overrides or args.workdir or args.rounds != 1:
        option = (args.overrides or ["--workdir" if args.workdir else "--rounds"])[0]
        raise InputError(f"{option}: expected --config, the recipe of recovery training, found none")
    from bert_jax.compression.pruning import prune

    _report(args, prune(args.model, args.out, pruning, data=args.data, examples=args.examples), {})
    return 0


def _pruning(args: argparse.Namespace) -> "Pruning":
    from bert_jax.compression.pruning import Pruning

    words = args.layers.split(",") if args.layers else []
    if not all(word.strip().isascii() and word.strip().isdigit() and len(word) < 9 for word in words):
        raise InputError(f"--layers: expected numbers separated by commas, found {args.layers!r}")
    layers = tuple(int(word) for word in words)
    return Pruning(args.heads, args.columns, layers, args.num_layers, tuple(args.vocabulary))


def _with_recovery(args: argparse.Namespace, pruning: "Pruning") -> None:
    from bert_jax.compression.recovery import prune_and_recover
    from bert_jax.recipes import load_recipe

    if not args.workdir:
        raise InputError("--workdir: expected a directory for recovery training, found none")
    if args.data:
        raise InputError("--data: expected none with --config, whose training data is used, found one")
    recipe = load_recipe(args.config, overrides_of(args.overrides))
    model, results = prune_and_recover(
        args.model, args.out, pruning, recipe, args.workdir,
        rounds=args.rounds, examples=args.examples, progress=not args.quiet,
    )  # fmt: skip
    _report(args, model, {name: value for name, value in results.items() if name.startswith("eval/")})


def _report(args: argparse.Namespace, model: Any, scores: dict[str, float]) -> None:
    """Print size and speed of the model before and after pruning, and whether transformers can open the new one."""
    from bert_jax.compression.figures import figures_of
    from bert_jax.compression.pruning import NOT_IN_TRANSFORMERS, open_for_pruning

    before, after = figures_of([open_for_pruning(args.model)[0], model])
    if args.json:
        content = {"before": before._asdict(), "after": after._asdict(), "in_transformers": model.is_in_transformers}
        print(json.dumps(content | scores))
        return
    print_table(f"{args.model} -> {args.out}", ("", "before", "after", "ratio"), _rows(before, after))
    if scores:
        say(f"{args.out}: " + ", ".join(f"{name} {value:.5g}" for name, value in sorted(scores.items())))
    if not model.is_in_transformers:
        say(f"{args.out}: {NOT_IN_TRANSFORMERS}")


def _rows(before: "Figures", after: "Figures") -> list[tuple[str, ...]]:
    """Return the rows of the table: name, before, after, and after / before."""
    shown = {
        "layers": "{:,}", "heads": "{:,}", "columns": "{:,}", "pieces": "{:,}", "parameters": "{:,}",
        "megabytes": "{:,.1f}", "flops_per_token": "{:,.0f}", "seconds": "{:.4f}",
    }  # fmt: skip
    names = {
        "heads": "heads of a layer", "columns": "feed-forward columns", "pieces": "vocabulary",
        "megabytes": "MB in float32", "flops_per_token": "FLOPs a token", "seconds": "seconds for 8 x 128 tokens",
    }  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for name, form in shown.items():
        old, new = getattr(before, name), getattr(after, name)
        rows.append((names.get(name, name), form.format(old), form.format(new), f"{new / old:.2f}"))
    return rows
