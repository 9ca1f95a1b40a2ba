"""The mesh and the table of shardings; shardings on several devices are in tests/training/test_parallel.py."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from bert_jax import parameter_sharding, sharding
from bert_jax.errors import InputError


def leaf(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_every_parameter_has_one_row_of_the_table_wherever_its_tree_hangs():
    params = {"encoder": {"layers": {"mlp": {"up": {"kernel": leaf(2, 8, 32), "bias": leaf(2, 32)}}}}}
    specs = parameter_sharding.param_specs({"opt_state": {"mu": params}, "step": leaf()})
    up = specs["opt_state"]["mu"]["encoder"]["layers"]["mlp"]["up"]
    assert up == {"kernel": P(None, "fsdp", "tensor"), "bias": P(None, "tensor")}
    assert specs["step"] == P()


def test_attention_output_and_its_bias():
    output = {"attention": {"output": {"kernel": leaf(2, 8, 8), "bias": leaf(2, 8)}}}
    assert parameter_sharding.param_specs(output)["attention"]["output"] == {
        "kernel": P(None, "tensor", "fsdp"),
        "bias": P(None, None),
    }


def test_unknown_parameter_is_refused():
    with pytest.raises(ValueError, match=r"no row.*mystery/kernel"):
        parameter_sharding.param_specs({"mystery": {"kernel": leaf(2, 2)}})


@pytest.mark.parametrize("sizes", [(3, 1, 1), (0, 1, 1), (-1, -1, 1), (-1, 2, 1)])
def test_mesh_that_does_not_fit_the_devices_is_an_input_error(sizes):
    with pytest.raises(InputError, match=r"^mesh: expected .* found data="):
        sharding.make_mesh(*sizes, devices=jax.devices()[:1])


def test_constrain_without_a_mesh_is_the_identity():
    x = jnp.ones((2, 3))
    assert sharding.constrain(x, "batch", "embed") is x
