"""One batch, one mesh or another: the same losses and gradients, and arrays and traffic where the table puts them."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic import pretraining_task, random_batch

from bert_jax import parameter_sharding
from bert_jax.config import BertConfig
from bert_jax.families import FAMILIES
from bert_jax.modeling import Bert
from bert_jax.training import step as steps
from bert_jax.training.optimizers import OPTIMIZERS, make_optimizer
from bert_jax.training.state import _fresh


@pytest.fixture(scope="module")
def printed(on_eight_devices):
    """What meshes.py saw in one of its parts."""
    return functools.cache(functools.partial(on_eight_devices, pathlib.Path(__file__).with_name("meshes.py")))


@pytest.fixture(scope="module")
def seen(printed):
    """The runs by mesh."""
    return printed("runs")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mesh", ["data", "fsdp", "data_fsdp_tensor"])
def test_the_loss_curve_is_that_of_one_device(seen, mesh):
    np.testing.assert_allclose(seen[mesh]["losses"], seen["one"]["losses"], rtol=1e-5)
    np.testing.assert_allclose(seen[mesh]["grad_norms"], seen["one"]["grad_norms"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lamb", "adafactor", "muon"])
def test_every_optimizer_moves_the_same_way_on_a_mesh(printed, seen, optimizer):
    found = printed("optimizers")[optimizer]
    assert found["deviation"] < 1e-5 and found["least"] > 0
    assert found["apart"] > 0.01  # from AdamW
    assert found["query"] == seen["data_fsdp_tensor"]["query"]


def test_micro_batches_on_a_mesh_only_change_the_dropout_masks(seen):
    np.testing.assert_allclose(seen["accumulated"]["losses"], seen["one"]["losses"], rtol=0.01)


def test_parameters_and_moments_lie_where_the_table_says_and_stay_there(seen):
    shards = {mesh: (tuple(s["query"]), tuple(s["down"]), tuple(s["words"])) for mesh, s in seen.items()}
    assert shards["one"] == shards["data"] == ((2, 32, 32), (2, 64, 32), (64, 32))
    assert shards["fsdp"] == ((2, 4, 32), (2, 64, 4), (64, 4))
    assert shards["data_fsdp_tensor"] == ((2, 16, 16), (2, 32, 16), (32, 16))
    assert all(s["all_kept"] for s in seen.values())


def test_what_is_donated_is_not_copied(seen):
    assert seen["one"]["copied"] == 0  # XLA for CPUs copies 32 or more of the 93 arrays unless it is told otherwise


def test_which_collectives_each_mesh_causes(seen):
    kinds = {mesh: set(s["collectives"]) for mesh, s in seen.items()}
    assert kinds["one"] == set()
    assert kinds["data"] == {"all-reduce"}  # gradients and metrics; no parameter ever travels
    assert "all-gather" in kinds["fsdp"]  # parameters, where they are used
    assert {"all-gather", "all-reduce"} <= kinds["data_fsdp_tensor"]


@pytest.mark.slow
def test_between_the_layers_each_device_holds_a_part_of_the_tokens(printed):
    assert printed("between_layers") == [[8, 4, 32]] * 3


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("family", "head"), [(f, head) for f in FAMILIES for head in FAMILIES[f].names.architectures])
def test_every_parameter_of_every_head_is_in_the_table(family, head):
    config = BertConfig.named("base", family, tie_word_embeddings=False)
    if "embedding_size" in config.settings():
        config = config.replace(embedding_size=128)
    parameter_sharding.param_specs(Bert(config, head).abstract_params())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_every_optimizer_is_in_the_table(name):
    init = make_optimizer(lambda step: 0.1, name=name, average_decay=0.9).init
    state = jax.eval_shape(init, Bert(BertConfig.named("mini"), "pretraining").abstract_params())  # 256 wide: factored
    leaves = jax.tree.leaves(state)
    for leaf, spec in zip(leaves, jax.tree.leaves(parameter_sharding.param_specs(state)), strict=True):
        assert len(spec) == leaf.ndim
    assert name != "adafactor" or sum(leaf.size for leaf in leaves) < 12e6  # the average is 11.2M of it


@pytest.mark.parametrize(
    ("devices", "parts"),
    [(8, 4), *(pytest.param(*split, marks=pytest.mark.slow) for split in ((1, 4), (2, 1), (2, 4), (8, 1)))],
)
def test_gradients_are_those_of_the_whole_batch_however_it_is_split(printed, devices, parts):
    masked = random_batch(rows=32)["masked_weights"].sum(-1)
    assert masked.min() == 0 and masked.max() == 6  # a mean of means would be far off
    assert printed("deviations", str(devices), str(parts)) < 2e-5


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["data", "fsdp", "data_fsdp_tensor"])
def test_gradients_summed_in_bfloat16_are_close_to_those_summed_in_float32(printed, mesh):
    found = printed("reduced")[mesh]
    assert found["dtypes"] == ["float32"] and 1e-5 < found["apart"] < 0.01
    fewer, gathers = found["gathers"]
    # Kernels are gathered once, although the backward pass recomputes what is cheap.
    assert fewer < gathers if "fsdp" in mesh else fewer == gathers


def test_dropout_differs_from_step_to_step_and_not_from_run_to_run():
    task = pretraining_task()
    step = jax.jit(steps.make_train_step(task, make_optimizer(lambda step: 0.0)))
    init = jax.jit(lambda: _fresh(task.model.init, make_optimizer(lambda step: 0.0), 0))
    state, batch = init(), random_batch()
    losses = []
    for _ in range(3):
        state, metrics = step(state, batch, 0)
        losses.append(float(metrics["loss"][0]))
    assert len(set(losses)) == 3
    assert float(step(init(), batch, 0)[1]["loss"][0]) == losses[0]
    assert jnp.array_equal(state.step, 3)
