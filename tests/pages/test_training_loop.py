"""docs/training_loop.md: its programs run over eight devices, the second without the loop of bert_jax."""

import json
import os
import subprocess
import sys

import jax
import pytest
import world
from blocks import blocks_of

import bert_jax

PAGE = "docs/training_loop.md"
STEPS, OWN = (block.text for block in blocks_of(PAGE))


@pytest.fixture
def folder(tmp_path, tiny_tokenizer):
    world.build(tmp_path, tiny_tokenizer)
    return tmp_path


def run(folder, program, more):
    """Runs a program of the page, and then `more`, in a process with eight devices; returns what it printed."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    words = [sys.executable, "-c", program + more]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_around_the_steps_of_a_recipe(folder):
    *lines, devices = run(folder, STEPS, "\nimport jax\nprint(jax.device_count())")
    assert [line.split()[0] for line in lines] == ["2", "4", "5", "6"] and devices == "8"
    assert bert_jax.from_pretrained(folder / "path/to/run/model").head == "sequence_classification"


def test_without_the_loop_of_bert_jax(folder):
    assert len(OWN.splitlines()) <= 40
    more = """
import json, sys
from jax.tree_util import tree_leaves
print(json.dumps({
    "loop": sorted(name for name in sys.modules if name in ("bert_jax.training.loop", "bert_jax.training.step")),
    "rows": [leaf.addressable_shards[0].data.shape[0] for leaf in batch.values()],
    "parts": sorted({len(leaf.sharding.device_set) for leaf in tree_leaves((params, batch))}),
    "step": int(opt_state[0].count),
}))
"""
    *lines, facts = run(folder, OWN, more)
    assert [line.split()[0] for line in lines] == [str(number) for number in range(6)]
    assert json.loads(facts) == {"loop": [], "rows": [2] * 5, "parts": [8], "step": 6}
    model = bert_jax.from_pretrained(folder / "path/to/model")
    assert (model.head, model.missing) == ("sequence_classification", ())
    before = bert_jax.from_pretrained(folder / "path/to/bert").params["encoder"]
    moved = jax.tree.map(lambda old, new: float(abs(old - new).max()), before, dict(model.params["encoder"]))
    assert 0 < max(jax.tree.leaves(moved)) < 0.1  # it started from these
