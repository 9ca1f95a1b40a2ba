"""A compiled training step does no more than it should: bounds of what the compiler makes of it."""

import collections
import os
import re

import jax
import pytest
import synthetic

from bert_jax import parameter_sharding, sharding
from bert_jax.modeling import Bert, Compute
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.training.flops import step_flops
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.state import abstract_state
from bert_jax.training.step import jit_train_step, make_train_step

CONFIG = synthetic.CONFIG.replace(vocab_size=1000, hidden_size=128, intermediate_size=512, max_position_embeddings=64)
# A layer has 8 products, and twice as many in the backward pass; the head and the embeddings have 14.
PRODUCTS = 2 * 3 * 8 + 14
SCATTERS = 5 if "FAST_COMPILE" in os.environ["XLA_FLAGS"] else 4  # the tests' preset of newer JAX writes one twice


def lowered(config, dtype):
    """A step of a small BERT on a CPU, lowered; and its model FLOPs."""
    task = PretrainingTask(Bert(config, "pretraining", Compute(dtype, "unroll")), majority_id=5)
    optimizer, mesh = make_optimizer(lambda step: 1e-3), sharding.make_mesh(devices=jax.devices()[:1])
    state = abstract_state(task.model.init, optimizer)
    batch = synthetic.random_batch(rows=16, length=64, predictions=10)
    run = jit_train_step(make_train_step(task, optimizer), mesh, parameter_sharding.param_shardings(mesh, state))
    return run.lower(state, batch, 0), step_flops(task.model, batch)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def step(request):
    """A step of a small BERT on a CPU, compiled; and its model FLOPs."""
    step, model_flops = lowered(CONFIG, request.param)
    return step.compile(), model_flops


def test_it_traces_unrolled_layers_once():
    few, many = (lowered(CONFIG.replace(num_hidden_layers=count), "float32")[0].as_text() for count in (3, 6))
    assert few.count("stablehlo.dot_general") == many.count("stablehlo.dot_general") > 0


@pytest.mark.sampled(2)
def test_its_instructions(step):
    counts = collections.Counter(re.findall(r" = \S+ ([a-z-]+)\(", step[0].as_text()))
    assert counts["dot"] == PRODUCTS
    assert counts["while"] == counts["sort"] == counts["custom-call"] == 0
    assert counts["fusion"] <= 860 and counts["copy"] <= 220 and counts["scatter"] <= SCATTERS


def test_its_arithmetic_and_its_traffic(step):
    compiled, model_flops = step
    cost = compiled.cost_analysis()
    assert 1.0 <= cost["flops"] / model_flops <= 1.06
    assert cost["bytes accessed"] <= 285e6


def test_its_memory(step):
    memory = step[0].memory_analysis()
    assert memory.temp_size_in_bytes <= 30e6
    assert memory.argument_size_in_bytes - memory.alias_size_in_bytes < 50e3  # all but the batch is donated
