"""What on_a_mesh.py saw, once for all tests."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def on_a_mesh(on_eight_devices):
    """Differences by name."""
    return on_eight_devices(Path(__file__).with_name("on_a_mesh.py"))
