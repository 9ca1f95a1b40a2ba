"""launch/tpu.sh watch: a run goes on through preemptions until it has finished, and nothing is rented unasked."""

import os
import signal
import subprocess

import pytest
from cloud import LAUNCH, ROOT, eventually

RUN = ("run", "my-slice", "pretrain", "--config", "a b.py", "--workdir", "gs://it's mine/$HOME")
WORDS = [*RUN[2:], "--distributed"]


@pytest.fixture
def begun(cloud):
    """A spot slice that was rented, set up and begun from here."""

    def begin(*runs, host=None):
        cloud.runs_do(*runs, host=host)
        for words in (("create", "my-slice", "--type=v5litepod-16", "--spot", "--yes"), ("setup", "my-slice"), RUN):
            result = cloud.launch(*words)
            assert result.returncode == 0, result.stderr
        return cloud

    return begin


def watched(cloud, *flags, **environment):
    return cloud.launch("watch", "my-slice", "--yes", *flags, **environment)


def end_runs(cloud, number=signal.SIGTERM, statuses=()):
    """SIGTERM is what a host does before it goes down, SIGKILL what is left of a run on a host that is down already."""
    for host in range(2):
        run = cloud.home(host) / "bert_jax_run"
        os.killpg(int((run / "pid").read_text()), number)
        if statuses:
            (run / "status").write_text(f"{statuses[host]}\n")


@pytest.mark.slow
def test_a_run_that_was_told_to_stop_goes_on_with_the_same_words(begun):
    cloud = begun("stay", 0)
    end_runs(cloud)
    result = watched(cloud)
    assert result.returncode == 0, result.stderr
    assert "exited:143 exited:143" in result.stdout
    assert "the run has finished" in result.stdout
    assert "still rented" in result.stdout
    for host in range(2):
        assert [run["arguments"] for run in cloud.runs(host)] == [WORDS, WORDS]
    assert len(cloud.calls("create")) == 1


@pytest.mark.slow
def test_a_preempted_slice_is_rented_again_as_it_was_and_the_run_resumed(begun):
    cloud = begun("stay", 0)
    end_runs(cloud)
    with cloud.google() as google:
        google.update(states=["SUSPENDING", "SUSPENDED"], next_states=[["WAITING_FOR_RESOURCES", "ACTIVE"]])
    result = watched(cloud)
    assert result.returncode == 0, result.stderr
    first, second = cloud.calls("create")
    assert first == second
    assert len(cloud.calls("delete")) == 1
    order = ["SUSPENDING", "SUSPENDED", "WAITING_FOR_RESOURCES", "ACTIVE", "finished"]
    assert [word for line in result.stdout.splitlines() for word in order if line.split()[-1] == word] == order
    for host in range(2):
        assert [run["arguments"] for run in cloud.runs(host)] == [WORDS], "on the new hosts"


@pytest.mark.slow
def test_a_watch_that_sees_a_preemption_happen(begun):
    cloud = begun("stay", 0)
    watch = cloud.begin("watch", "my-slice", "--yes")
    eventually(lambda: "my-slice: ACTIVE" in cloud.said())
    end_runs(cloud)
    with cloud.google() as google:
        google["states"] = ["SUSPENDED"]
    assert watch.wait(timeout=60) == 0, cloud.said()
    assert len(cloud.calls("create")) == 2


@pytest.mark.slow
def test_while_all_is_well_one_host_is_asked(begun):
    cloud = begun("stay")
    (cloud.root / "calls.jsonl").unlink()
    watch = cloud.begin("watch", "my-slice", "--yes")
    eventually(lambda: len(cloud.calls("ssh")) >= 3)
    os.killpg(watch.pid, signal.SIGKILL)
    watch.wait()
    assert not cloud.calls("--worker=1")


@pytest.mark.slow
@pytest.mark.parametrize("during", ["setup", "create", "run"])
def test_a_preemption_while_it_is_being_resumed_is_one_more(begun, during):
    cloud = begun("stay", 0)
    with cloud.google() as google:
        google["states"] = ["SUSPENDED"]
        google["next_states"] = [["PROVISIONING", "FAILED"] if during == "create" else ["ACTIVE"], ["ACTIVE"]]
    if during == "setup":
        cloud.fault("scp", "--worker=1", status=0, states=["SUSPENDED"])
    if during == "run":
        cloud.fault("scp", "--worker=1", status=0)  # the package; then the secrets:
        cloud.fault("scp", "--worker=1", status=0, states=["SUSPENDED"])
    result = watched(cloud, WANDB_API_KEY="hush")
    assert result.returncode == 0, result.stderr
    assert len(cloud.calls("create")) == 3
    assert "the run has finished" in result.stdout
    assert "hush" not in str(cloud.calls()) + result.stdout + result.stderr
    assert cloud.runs(1)[-1]["secrets"] == {"WANDB_API_KEY": "hush"}


@pytest.mark.slow
def test_the_slice_is_given_back_when_the_run_has_finished_if_so_asked(begun):
    cloud = begun(0)
    result = watched(cloud, "--delete-when-finished")
    assert result.returncode == 0, result.stderr
    assert cloud.state() == "ABSENT"


@pytest.mark.slow
def test_what_may_be_rented_again_is_agreed_to_first(begun):
    cloud = begun("stay")
    result = cloud.launch("watch", "my-slice")
    assert result.returncode == 2
    assert "9.60 USD an hour" in result.stdout
    assert "--yes" in result.stderr


@pytest.mark.slow
def test_a_run_that_fails_by_itself_is_left_alone(begun):
    cloud = begun("stay")
    end_runs(cloud, signal.SIGKILL, statuses=(134, 1))
    result = watched(cloud)
    assert result.returncode == 1
    assert "the run failed (exited:134 exited:1, by worker)" in result.stderr
    assert "worker 0: started pretrain" in result.stderr, "the end of its log"
    assert len(cloud.runs(0)) == 1
    assert cloud.state() == "ACTIVE"


@pytest.mark.slow
def test_a_run_that_fails_because_its_slice_is_going_away_is_resumed(begun):
    cloud = begun("stay", 0)
    end_runs(cloud, signal.SIGKILL, statuses=(134, 134))
    with cloud.google() as google:
        google["states"] = ["ACTIVE"] * 3 + ["SUSPENDED"]
    result = watched(cloud)
    assert result.returncode == 0, result.stderr
    assert "the run has finished" in result.stdout


@pytest.mark.slow
def test_a_host_that_went_down_and_came_back_is_taken_up(begun):
    cloud = begun("stay", 0)
    end_runs(cloud, signal.SIGKILL)
    result = watched(cloud)
    assert result.returncode == 0, result.stderr
    assert "lost" in result.stdout
    assert [len(cloud.runs(host)) for host in range(2)] == [2, 2]


@pytest.mark.slow
def test_a_run_that_was_stopped_by_hand_is_not_taken_up_again(begun):
    cloud = begun("stay", 0)
    watch = cloud.begin("watch", "my-slice", "--yes")
    eventually(lambda: "my-slice: ACTIVE" in cloud.said())
    assert cloud.launch("stop", "my-slice").returncode == 0
    assert watch.wait(timeout=60) == 0
    assert "stopped" in cloud.said()
    assert len(cloud.runs(0)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("from_here", [True, False])
def test_a_slice_that_was_deleted_is_not_rented_again(begun, from_here):
    cloud = begun("stay", 0)
    watch = cloud.begin("watch", "my-slice", "--yes")
    eventually(lambda: "my-slice: ACTIVE" in cloud.said())
    if from_here:
        assert cloud.launch("delete", "my-slice").returncode == 0
    else:
        with cloud.google() as google:
            google["type"] = None
    assert watch.wait(timeout=60) == (0 if from_here else 1), cloud.said()
    assert ("stopped" if from_here else "not rented again") in cloud.said()
    assert len(cloud.calls("create")) == 1


@pytest.mark.slow
def test_a_slice_that_is_deleted_while_it_is_looked_at_is_not_rented_again(begun):
    cloud = begun("stay", 0)
    gcloud = cloud.root / "bin" / "gcloud"
    gcloud.rename(cloud.root / "next")
    deletion = f'mv {cloud.root}/next "$0"; {LAUNCH}/tpu.sh delete my-slice >&2; exec "$0" "$@"'
    cloud.program("bin/gcloud", f"#!/bin/bash\n{deletion}\n")
    result = watched(cloud)
    assert result.returncode == 0, result.stderr
    assert "the run was stopped" in result.stdout
    assert len(cloud.calls("create")) == len(cloud.calls("delete")) == 1


@pytest.mark.slow
def test_the_new_slice_gets_the_commit_of_the_first(begun):
    cloud = begun("stay", 0)
    [sent] = {call[4] for call in cloud.calls("scp")}
    with cloud.google() as google:
        google["states"] = ["SUSPENDED"]
    assert watched(cloud).returncode == 0
    assert {call[4] for call in cloud.calls("scp")} == {sent}
    committed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    kept = subprocess.run(["gunzip", "--stdout", sent], capture_output=True, check=True).stdout
    assert kept == committed


@pytest.mark.slow
def test_an_outage_of_google_does_not_end_the_watch(begun):
    cloud = begun(0)
    cloud.fault("queued-resources", "describe", message="UNAVAILABLE", times=7)
    result = watched(cloud)
    assert result.returncode == 0, result.stderr
    assert "unknown" in result.stdout


@pytest.mark.slow
def test_trouble_without_end_is_given_up_at_ever_longer_distances(begun):
    cloud = begun("stay")
    with cloud.google() as google:
        google["states"] = ["SUSPENDED"]
    cloud.fault("delete", message="PERMISSION_DENIED", times=99)
    before = len(cloud.sleeps())
    result = watched(cloud)
    assert result.returncode == 1
    assert "gave up after ten failures in a row" in result.stderr
    assert cloud.sleeps()[before:] == ["2", "4", "8", "16", "32", "64", "64", "64", "64"]


@pytest.mark.slow
def test_delete_on_failure_is_for_the_end_not_for_a_try(begun):
    cloud = begun("stay", 0)
    end_runs(cloud)
    cloud.fault("scp", "--worker=1", message="PERMISSION_DENIED")
    result = watched(cloud, "--delete-on-failure")
    assert result.returncode == 0, result.stderr
    assert not cloud.calls("delete")


def test_only_what_was_begun_from_here_is_watched(slice_of_two):
    result = slice_of_two.launch("watch", "my-slice", "--yes")
    assert result.returncode == 2
    assert "no `run` of my-slice is remembered" in result.stderr


@pytest.mark.slow
def test_a_shared_work_directory_needs_to_be_agreed_to_once(cloud):
    """Neither the check of `create --workdir` nor its words are repeated when the slice is rented again."""
    shared = ("--workdir", "/mnt/shared/base")
    cloud.runs_do("stay", 0)
    for words in (("create", "my-slice", "--type=v5litepod-16", *shared, "--yes"), (*RUN[:5], *shared)):
        if words[0] == "run":
            assert cloud.launch("setup", "my-slice").returncode == 0
        result = cloud.launch(*words, SHARED_WORKDIR="1")
        assert result.returncode == 0, result.stderr
    end_runs(cloud)
    with cloud.google() as google:
        google.update(states=["SUSPENDED"], next_states=[["ACTIVE"]])
    result = watched(cloud)
    assert result.returncode == 0, result.stderr
    assert len(cloud.calls("create")) == 2
