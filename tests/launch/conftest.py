"""The cloud in which launch/tpu.sh is tried."""

import contextlib
import os
import signal

import pytest
from cloud import Cloud


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    yield cloud
    for pid in tmp_path.glob("host*/bert_jax_run/pid"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(pid.read_text()), signal.SIGKILL)


@pytest.fixture
def slice_of_two(cloud):
    """The cloud with a slice of two hosts, set up."""
    cloud.rent()
    return cloud
