"""What on_a_mesh.py saw, once for all tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def on_a_mesh():
    """Differences by name; from a process of its own, as the number of devices is fixed when JAX starts."""
    script = Path(__file__).with_name("on_a_mesh.py")
    flags = {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, script], env=os.environ | flags, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
