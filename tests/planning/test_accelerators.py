"""Google's accelerator types: which slice each is. Expected shapes are from Google's pages of v2 to tpu7x."""

import re

import pytest

from bert_jax.errors import InputError
from bert_jax.planning.accelerators import topology_of


@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("v2-8", "v2:2x2"),
        ("v3-32", "v3:4x4"),
        ("v3-2048", "v3:32x32"),
        ("v4-8", "v4:2x2x1"),
        ("v4-16", "v4:2x2x2"),
        ("v4-32", "v4:2x2x4"),
        ("v4-64", "v4:2x4x4"),
        ("v4-512", "v4:4x8x8"),
        ("v4-1536", "v4:8x8x12"),
        ("v5litepod-1", "v5e:1x1"),
        ("v5litepod-8", "v5e:2x4"),
        ("v5litepod-16", "v5e:4x4"),
        ("v5litepod-256", "v5e:16x16"),
        ("v5p-8", "v5p:2x2x1"),
        ("v5p-128", "v5p:4x4x4"),
        ("v5p-3456", "v5p:12x12x12"),
        ("v5p-12288", "v5p:16x16x24"),
        ("v5p-17920", "v5p:16x20x28"),
        ("v6e-8", "v6e:2x4"),
        ("V6E-128", "v6e:8x16"),
        ("tpu7x-8", "tpu7x:2x2x1"),
        ("tpu7x-128", "tpu7x:4x4x4"),
        ("tpu-v5-lite-podslice:2x4", "v5e:2x4"),
        ("v5p:4x4x8", "v5p:4x4x8"),
    ],
)
def test_an_accelerator_type_is_a_topology(name, topology):
    assert topology_of(name) == topology


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "v5litepod-2",
            "no slice of this size; the number counts chips; the nearest sizes: v5litepod-1 or v5litepod-4",
        ),
        ("v5litepod-512", "the nearest sizes: v5litepod-128 or v5litepod-256"),
        ("v4-2", "the number counts TensorCores, two per chip; the nearest sizes: v4-8 or v4-16"),
        ("v5p-9", "the nearest sizes: v5p-8 or v5p-16"),
        ("v5p-0", "the nearest sizes: v5p-8 or v5p-16"),
        ("v5lite-16", "no accelerator type 'v5lite'; did you mean 'v5e'?"),
        ("v7-8", "no accelerator type 'v7'; did you mean 'tpu7x'?"),
    ],
)
def test_what_google_does_not_rent(name, message):
    with pytest.raises(InputError, match=re.escape(message)):
        topology_of(name)
