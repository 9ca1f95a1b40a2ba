"""The verb `demo`: pretrain, fine-tune and run a small BERT on the documentation that comes with Python."""

import argparse

from bert_jax.cli.verbs import Verbs, add_verb
from bert_jax.errors import InputError
from bert_jax.extras import how_to_install


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb `demo`."""
    parser = add_verb(
        verbs,
        "demo",
        run_demo,
        "pretrain, fine-tune and run a small BERT on this machine",
        "Trains a vocabulary on the documentation inside this Python installation, pretrains a small BERT on it, "
        "fine-tunes the model, and predicts masked words. Takes minutes on a laptop and downloads nothing.",
        "bert-jax demo --workdir demo_workdir",
    )
    parser.add_argument(
        "--workdir", default="demo_workdir", metavar="DIR", help="work directory (default: %(default)s)"
    )


def run_demo(args: argparse.Namespace) -> None:
    """Run the demo in the work directory."""
    import importlib.util

    if importlib.util.find_spec("sklearn") is None:
        raise InputError(f"the demo needs scikit-learn for its baseline: {how_to_install('demo')}")
    from bert_jax import demo

    demo.main(args.workdir)
