"""The verb `demo`: pretraining, fine-tuning and inference on a laptop, from the documentation inside Python."""

import argparse
from typing import Any

from bert_jax.cli.verbs import add_verb
from bert_jax.errors import InputError


def add_verbs(verbs: Any) -> None:
    """Declares the verb of this group."""
    parser = add_verb(
        verbs,
        "demo",
        run_demo,
        "pretrain, fine-tune and ask a small BERT, here and now",
        "Trains a vocabulary on the documentation inside this Python, pretrains a small BERT on it, fine-tunes it, and "
        "lets it fill in blanks. Takes minutes on a laptop and downloads nothing.",
        "bert-jax demo --workdir demo_workdir",
    )
    parser.add_argument("--workdir", default="demo_workdir", metavar="DIR", help="(default: %(default)s)")


def run_demo(args: argparse.Namespace) -> None:
    """Runs the demo in a working directory."""
    import importlib.util

    if importlib.util.find_spec("sklearn") is None:
        raise InputError("the demo measures itself with scikit-learn: pip install 'bert-jax[demo]'")
    from bert_jax import demo

    demo.main(args.workdir)
