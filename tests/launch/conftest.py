"""The cloud in which launch/tpu.sh is tried, and the cluster for launch/gke.sh."""

import fcntl
import os
import signal

import pytest
from cloud import Cloud, Cluster


@pytest.fixture
def cloud(tmp_path):
    yield Cloud(tmp_path)
    for run in tmp_path.glob("host*/bert_jax_run"):
        with open(run / "lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # going, so that its process id is its own
                os.killpg(int((run / "pid").read_text()), signal.SIGKILL)


@pytest.fixture
def slice_of_two(cloud):
    """The cloud with a slice of two hosts, set up."""
    cloud.rent()
    return cloud


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


@pytest.fixture
def rented(cluster):
    """The cluster with a slice of four hosts."""
    cluster.rent()
    return cluster
