"""Runs of several hosts: killed at any moment, with other numbers of devices, with clocks apart."""

import numpy as np
import pytest
from kill_moments import kill_moments
from small import assert_alike, metrics_of, recipe, train_in_processes

HOSTS = {"processes": 2, "devices": 4}
SPREAD = 0.3  # seconds in which a kill may come: some ten steps with their saves and evaluations


@pytest.mark.slow  # test_two_hosts.py and test_launched_training.py stop and resume two hosts
@pytest.mark.parametrize(("kills", "devices"), [(2, 2), (100, 4)])
def test_two_hosts_killed_at_any_moment_end_as_if_they_never_were(tmp_path, data, kills, devices):
    hosts = HOSTS | {"devices": devices}
    pretraining = recipe(data, "pretraining", **{"mesh.data": 1, "mesh.fsdp": 2 * devices})
    steps = 2 * kills + 24
    pretraining.num_steps = steps
    pretraining.stages = ((steps // 2, 24, 16), (steps - steps // 2, 32, 8))
    moments = [*sorted(kill_moments(f"{kills} hosts").sample(range(1, steps - 18), kills - 1)), steps - 18]
    train_in_processes(pretraining, tmp_path / "whole", [hosts])
    killed = [hosts | {"kill_at": step, "within": SPREAD} for step in moments]
    # One that is told to stop leaves two checkpoints at least; the newest then loses what the second host alone reads.
    damaged = [hosts | {"stop_at": steps - 12}, hosts | {"damage": "ocdbt.process_1"}]
    train_in_processes(pretraining, tmp_path / "killed", killed + damaged)
    assert_alike(tmp_path / "whole", tmp_path / "killed")
    assert list((tmp_path / "killed" / "checkpoints").glob("unreadable-*"))


@pytest.mark.slow  # five meshes; test_two_hosts.py changes the number of hosts once
def test_the_number_of_devices_and_hosts_may_change_from_run_to_run(tmp_path, data):
    pretraining = recipe(data, "pretraining", log_every=1)
    eight = {"devices": 8, "mesh": {"fsdp": 8, "data": 1}}
    train_in_processes(pretraining, tmp_path / "whole", [{"devices": 1}])
    runs = [
        eight | {"kill_at": 6},
        {"devices": 4, "kill_at": 11, "mesh": {"data": 2, "tensor": 2}},
        HOSTS | {"stop_at": 13, "mesh": {"data": 2, "fsdp": 2, "tensor": 2}, "skew": -86_400},
        {"devices": 1},
    ]
    said = train_in_processes(pretraining, tmp_path / "changing", runs)
    assert "stopped by a signal: saved step" in said
    whole, changing = metrics_of(tmp_path / "whole"), metrics_of(tmp_path / "changing")
    assert [line["step"] for line in whole] == [line["step"] for line in changing]
    for one, other in zip(whole, changing, strict=True):
        assert one.keys() == other.keys()
        np.testing.assert_allclose(list(other.values()), list(one.values()), rtol=2e-4, err_msg=str(one["step"]))
