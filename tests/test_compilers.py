"""XLA knows the compiler options of training steps, and refuses others."""

import jax
import pytest

from bert_jax.compilers import XLA_OPTIONS


@pytest.mark.parametrize("platform", ["cpu", "gpu"])  # libtpu alone knows those of TPUs
def test_options_are_known_to_xla(platform):
    assert jax.jit(lambda x: x + 1, compiler_options=XLA_OPTIONS[platform])(1) == 2
    with pytest.raises(Exception, match="No such compile option"):
        jax.jit(lambda x: x + 2, compiler_options={name + "s": True for name in XLA_OPTIONS[platform]})(1)
