"""What tests of programs for TPUs share."""

import jax
import pytest


@pytest.fixture
def compiled_quickly():
    """What is asked of these programs does not hang on how well the compiler arranges them."""
    before = jax.config.jax_optimization_level
    jax.config.update("jax_optimization_level", "O0")
    yield
    jax.config.update("jax_optimization_level", before)
