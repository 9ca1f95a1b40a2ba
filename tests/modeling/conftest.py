"""What on_a_mesh.py saw, once for all tests."""

from pathlib import Path

import pytest
from jax.experimental import pallas


@pytest.fixture(scope="session")
def on_a_mesh(on_eight_devices):
    """Differences by name."""
    return on_eight_devices(Path(__file__).with_name("on_a_mesh.py"))


@pytest.fixture
def interpreted(monkeypatch):
    """Pallas kernels run without a TPU."""
    compiled = pallas.pallas_call
    monkeypatch.setattr(pallas, "pallas_call", lambda *a, **k: compiled(*a, **k | {"interpret": True}))
