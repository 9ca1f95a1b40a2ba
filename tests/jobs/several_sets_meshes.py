"""Run by test_several_sets.py in a process with 8 devices: losses of runs on 1 and on 8 devices, with several sets."""

import functools
import json
import pathlib
import sys
import tempfile
from unittest import mock

import jax

from bert_jax import sharding
from bert_jax.training import steps

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from set_tables import recipe, sets

MAKE_MESH = sharding.make_mesh


def losses(folder, devices, **changes):
    """The loss of each step."""
    # On one device too, each set has the rows that 8 devices need.
    of_sets = {name: {**keys, "weight": 1.0} for name, keys in sets(folder).items()}
    sizes = {"global_batch_size": 32, "eval_batch_size": 8, "num_epochs": 0.0, "num_steps": 6, "best_metric": ""}
    c = recipe(folder, **sizes, **{"data.sets": of_sets, "data.sampling": "weights"}, **changes)
    make_mesh = functools.partial(MAKE_MESH, devices=jax.devices()[:devices])
    with tempfile.TemporaryDirectory() as workdir, mock.patch.object(sharding, "make_mesh", make_mesh):
        return [float(metrics["loss"]) for _, metrics in steps(c, workdir, progress=False)]


if __name__ == "__main__":
    folder = sys.argv[1]
    runs = {"one_set": {}, "mixed": {"data.batches": "mixed"},
            "mixed in parts": {"data.batches": "mixed", "accumulation_steps": 2}}  # fmt: skip
    print(json.dumps({name: [losses(folder, n, **changes) for n in (1, 8)] for name, changes in runs.items()}))
