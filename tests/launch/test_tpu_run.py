"""launch/tpu.sh setup, run, logs and stop: what happens on the hosts, and when it fails on some of them."""

import json
import os
import signal
import stat
import subprocess

import pytest
from cloud import HOSTILE, LAUNCH, eventually

pytestmark = pytest.mark.sampled(3)

RUN = ("run", "my-slice", "pretrain", "--config", "configs/bert_base.py", "--workdir", "gs://my-bucket/base")
WORDS = list(RUN[2:])


def test_setup_sends_the_commit_and_installs_it_with_the_tpu_extra(cloud):
    cloud.rent(installed=False)
    result = cloud.launch("setup", "my-slice")
    assert result.returncode == 0, result.stderr
    for host in range(2):
        home = cloud.home(host)
        assert (home / "bert_jax" / "pyproject.toml").exists()
        assert f"bert-jax[tpu,wandb] @ file://{home}/bert_jax" in (home / "python3.log").read_text()
    first, *_ = cloud.calls("tpu-vm", "ssh")
    assert "--worker=0" in first, "the first connection makes the ssh key, alone"


@pytest.mark.slow
def test_setup_again_is_fine(slice_of_two):
    for _ in range(2):
        assert slice_of_two.launch("setup", "my-slice").returncode == 0
    assert slice_of_two.launch(*RUN).returncode == 0


@pytest.mark.slow
def test_setup_sets_aside_what_is_in_the_folder_of_earlier_runs(slice_of_two):
    for number in (1, 2):
        home = slice_of_two.home(0)
        (home / "bert_jax" / "results.csv").write_text(f"results {number}")
        assert slice_of_two.launch("setup", "my-slice").returncode == 0
        assert (home / f"bert_jax.old-{number}" / "results.csv").read_text() == f"results {number}"
        assert (home / "bert_jax" / "pyproject.toml").exists() and not (home / "bert_jax" / "results.csv").exists()


def test_what_would_disturb_a_run_is_refused_and_deletes_nothing(slice_of_two):
    slice_of_two.launch(*RUN)
    for words in (("setup", "my-slice"), (*RUN[:2], "--delete-on-failure", *RUN[2:], "--config.seed=1")):
        result = slice_of_two.launch(*words, "--delete-on-failure")
        assert result.returncode == 1
        assert "run is going" in result.stderr
    assert slice_of_two.state() == "ACTIVE"
    assert not slice_of_two.calls("scp")


@pytest.mark.slow
def test_setup_that_fails_on_one_worker_names_it(cloud):
    cloud.rent(hosts=3, installed=False)
    cloud.fault("scp", "--worker=1", message="PERMISSION_DENIED")
    result = cloud.launch("setup", "my-slice")
    assert result.returncode == 1
    assert "setup failed on worker 1\n" in result.stderr
    assert not cloud.calls("delete")


def test_hosts_are_worked_on_so_many_at_once_and_all_of_them(cloud):
    cloud.rent(hosts=5)
    result = cloud.launch(*RUN, PARALLEL="2")
    assert result.returncode == 0, result.stderr
    assert [len(cloud.runs(host)) for host in range(5)] == [1] * 5


def test_run_starts_the_same_command_on_every_host(slice_of_two):
    result = slice_of_two.launch(*RUN)
    assert result.returncode == 0, result.stderr
    for host in range(2):
        [run] = slice_of_two.runs(host)
        assert run["arguments"] == [*WORDS, "--distributed"]
        assert run["folder"] == str(slice_of_two.home(host) / "bert_jax")
        assert "started" in (slice_of_two.home(host) / "bert_jax_run" / "log").read_text()


def test_every_argument_arrives_as_it_was_written(slice_of_two):
    arguments = ["finetune", "--config", *HOSTILE]
    result = slice_of_two.launch("run", "my-slice", *arguments)
    assert result.returncode == 0, result.stderr
    for host in range(2):
        assert slice_of_two.runs(host)[0]["arguments"] == [*arguments, "--distributed"]
        starts = [words for words in slice_of_two.asked_of_host(host) if words[0] == "start"]
        assert [words[2:] for words in starts] == [arguments]


def test_the_same_run_is_recognised_while_it_is_going(slice_of_two):
    assert slice_of_two.launch(*RUN).returncode == 0
    again = slice_of_two.launch(*RUN)
    assert again.returncode == 0
    assert "going already" in again.stdout
    assert len(slice_of_two.runs(0)) == 1


def test_another_run_is_refused_until_stop_ends_the_first(slice_of_two):
    assert slice_of_two.launch(*RUN).returncode == 0
    refused = slice_of_two.launch(*RUN, "--config.seed=1")
    assert refused.returncode == 1
    assert "another run is going" in refused.stderr
    assert slice_of_two.launch("stop", "my-slice").returncode == 0
    for host in range(2):
        assert (slice_of_two.home(host) / "bert_jax_run" / "status").read_text() == "143\n", "it was not let save"
    assert slice_of_two.launch(*RUN, "--config.seed=1").returncode == 0
    assert len(slice_of_two.runs(1)) == 2


def test_a_run_that_does_not_end_is_killed_and_that_is_said(slice_of_two):
    slice_of_two.runs_do("hang")
    slice_of_two.launch(*RUN)
    result = slice_of_two.launch("stop", "my-slice", STOP_SECONDS="1")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("was killed") == 2
    assert slice_of_two.launch(*RUN, "--config.seed=1").returncode == 0


def test_stop_where_nothing_is_going_is_fine(slice_of_two):
    assert slice_of_two.launch("stop", "my-slice").returncode == 0


def test_a_process_id_of_before_a_reboot_is_not_mistaken_for_a_run(slice_of_two):
    slice_of_two.launch(*RUN)
    slice_of_two.launch("stop", "my-slice")
    for host in range(2):
        (slice_of_two.home(host) / "bert_jax_run" / "pid").write_text(f"{os.getpid()}\n")
    assert slice_of_two.launch("stop", "my-slice").returncode == 0
    assert slice_of_two.launch(*RUN).returncode == 0


def test_a_run_that_dies_at_once_on_one_worker_is_stopped_on_the_others(slice_of_two):
    slice_of_two.runs_do(2, host=1)
    result = slice_of_two.launch(*RUN)
    assert result.returncode == 1
    assert "did not start (and was stopped on the others) on worker 1\n" in result.stderr
    assert "worker 1: started pretrain" in result.stderr, "the end of its log"
    assert (slice_of_two.home(0) / "bert_jax_run" / "status").read_text() == "143\n"
    assert not slice_of_two.calls("delete")


def test_a_worker_on_which_it_cannot_start_stops_the_others(slice_of_two):
    (slice_of_two.home(1) / "bert_jax_env" / "bin" / "bert-jax").unlink()
    result = slice_of_two.launch(*RUN)
    assert result.returncode == 1
    assert "on worker 1\n" in result.stderr
    assert "run setup" in result.stderr
    assert (slice_of_two.home(0) / "bert_jax_run" / "status").read_text() == "143\n"


def test_delete_on_failure_gives_the_slice_back_when_a_run_fails(slice_of_two):
    slice_of_two.runs_do(2, host=1)
    verb, name, *words = RUN
    result = slice_of_two.launch(verb, name, "--delete-on-failure", *words)
    assert result.returncode == 1
    assert slice_of_two.state() == "ABSENT"


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_lost_connection_is_tried_again_and_starts_one_run(slice_of_two, carried_out):
    # The second call by ssh on worker 1: the first asks what is going.
    slice_of_two.fault("ssh", "--worker=1", status=255, times=2, carried_out=carried_out)
    result = slice_of_two.launch(*RUN, RETRY_SECONDS="3")
    assert result.returncode == 0, result.stderr
    assert "3" in slice_of_two.sleeps()
    assert [len(slice_of_two.runs(host)) for host in range(2)] == [1, 1]


def test_a_start_whose_answer_was_lost_is_not_a_second_run(slice_of_two):
    slice_of_two.fault("ssh", "--worker=1", status=0)  # asking what is going
    slice_of_two.fault("ssh", "--worker=1", status=255, carried_out=True)
    result = slice_of_two.launch(*RUN)
    assert result.returncode == 0, result.stderr
    assert [words[0] for words in slice_of_two.asked_of_host(1)] == ["report", "start", "start", "report"]
    assert len(slice_of_two.runs(1)) == 1


def test_what_fails_on_a_host_is_not_tried_again(slice_of_two):
    (slice_of_two.home(1) / "bert_jax_env" / "bin" / "bert-jax").unlink()
    slice_of_two.launch(*RUN)
    assert [words[0] for words in slice_of_two.asked_of_host(1)].count("start") == 1


@pytest.mark.parametrize("verb", ["setup", "run"])
def test_a_slice_that_is_taken_back_meanwhile_is_the_news(slice_of_two, verb):
    slice_of_two.fault("scp" if verb == "setup" else "ssh", "--worker=1", status=0, states=["SUSPENDED"])
    result = slice_of_two.launch(*(RUN if verb == "run" else (verb, "my-slice")))
    assert result.returncode == 1
    assert "the slice is SUSPENDED" in result.stderr
    assert "`watch`" in result.stderr


def test_a_slice_that_is_not_there_is_told(cloud):
    for words in (RUN, ("setup", "my-slice"), ("stop", "my-slice")):
        result = cloud.launch(*words)
        assert result.returncode == 1
        assert "there is no slice my-slice in us-west4-a" in result.stderr


def test_logs_follow_the_host_that_is_asked_for(slice_of_two):
    slice_of_two.launch(*RUN)
    following = slice_of_two.begin("logs", "my-slice", "1")
    try:
        eventually(lambda: "started pretrain" in slice_of_two.said())
    finally:
        os.killpg(following.pid, signal.SIGKILL)
        following.wait()
    assert slice_of_two.asked_of_host(1)[-1] == ["logs", "100", "-F"]


SECRET = "hush $HOME 'quoted' \"twice\" \\"


def test_secrets_reach_the_run_and_no_command_line(slice_of_two):
    result = slice_of_two.launch(*RUN, WANDB_API_KEY=SECRET)
    assert result.returncode == 0, result.stderr
    for host in range(2):
        assert slice_of_two.runs(host)[0]["secrets"] == {"WANDB_API_KEY": SECRET}
        assert not (slice_of_two.home(host) / ".bert_jax_secrets").exists()
    everything = json.dumps(slice_of_two.calls()) + result.stdout + result.stderr
    assert "hush" not in everything
    record = slice_of_two.root / ".local" / "state"
    assert record.exists()
    assert not any(b"hush" in path.read_bytes() for path in record.rglob("*") if path.is_file())


def test_secrets_travel_in_a_file_for_nobody_else_and_leave_none_behind(slice_of_two):
    # Worker 1 gets the file, and then cannot be started on.
    slice_of_two.fault("ssh", "--worker=1", status=0)
    slice_of_two.fault("ssh", "--worker=1", message="PERMISSION_DENIED", times=3)  # nor its log read, nor it stopped
    result = slice_of_two.launch(*RUN, HF_TOKEN=SECRET)
    assert result.returncode == 1
    [sent] = {call[4] for call in slice_of_two.calls("scp")}
    assert not os.path.exists(sent)
    assert not (slice_of_two.home(0) / ".bert_jax_secrets").exists()
    left = slice_of_two.home(1) / ".bert_jax_secrets"
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    assert slice_of_two.launch("stop", "my-slice").returncode == 0
    assert not left.exists()


def test_which_variables_are_secrets_is_said_by_name(slice_of_two):
    result = slice_of_two.launch(*RUN, SECRETS="MINE HF_TOKEN", MINE="1", WANDB_API_KEY="2")
    assert result.returncode == 0, result.stderr
    assert slice_of_two.runs(0)[0]["secrets"] == {"MINE": "1"}


@pytest.mark.parametrize("words", [["--workdir", "runs/base"], ["--workdir=/home/me/base"], ["--out", "~/base"]])
def test_a_workdir_on_the_disk_of_each_host_is_refused(slice_of_two, words):
    command = (*RUN[:5], *words)
    result = slice_of_two.launch(*command)
    assert result.returncode == 2 and "2 hosts write to it" in result.stderr, result.stderr
    assert not any(slice_of_two.runs(host) for host in range(2))
    result = slice_of_two.launch(*command, SHARED_WORKDIR="1")
    assert result.returncode == 0, result.stderr


def test_one_host_may_write_to_its_disk(cloud):
    cloud.rent(hosts=1)
    result = cloud.launch(*RUN[:5], "--workdir", "runs/base")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("accelerator", "scheduling", "much"),
    [
        ("v5litepod-16", ["", "", ""], " 19.20 USD an hour (list price; PRICE=... changes it)"),
        ("v5litepod-16", ["True", "", ""], " 9.60 USD an hour (list price; PRICE=... changes it)"),
        ("v5litepod-16", ["", "True", ""], " 9.60 USD an hour (list price; PRICE=... changes it)"),
        (
            "v4-32",
            ["", "", "True"],
            " 51.52 USD an hour (list price on demand; reserved has another, which PRICE=... sets)",
        ),
        ("v2-8", ["", "", ""], ""),
    ],
)
def test_what_goes_on_costing_is_said_after_run_and_stop_with_the_command_that_ends_it(
    slice_of_two, accelerator, scheduling, much
):
    with slice_of_two.google() as google:
        google.update(type=accelerator, scheduling=scheduling)
    script = LAUNCH / "tpu.sh"
    ends = f"with or without a run on it, until you type: ZONE=us-west4-a {script} delete my-slice"
    for words in (RUN, RUN, ("stop", "my-slice")):
        result = slice_of_two.launch(*words)
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines()[-1] == f"my-slice: the slice costs{much}, {ends}"
    command = ends.partition("type: ")[2]
    environment = slice_of_two._command((), {})["env"]
    del environment["ZONE"]
    subprocess.run(["bash", "-c", command], env=environment, check=True)
    assert slice_of_two.state() == "ABSENT"


def test_the_reminder_has_the_price_and_the_project_that_were_given(slice_of_two):
    result = slice_of_two.launch(*RUN, PRICE="0.5", PROJECT="my-project")
    assert "costs 8.00 USD an hour (by PRICE)" in result.stdout
    assert "type: PROJECT=my-project ZONE=us-west4-a " in result.stdout


def test_a_run_without_a_slice_tells_what_its_work_directory_needs_before_one_is_rented(cloud):
    result = cloud.launch(*RUN[:5], "--workdir", "runs/base")
    assert result.returncode == 1
    assert "`create` rents it. Before you do: with --workdir runs/base" in result.stderr
    assert "it must be a slice of one host" in result.stderr
    assert "Before you do" not in cloud.launch(*RUN).stderr


def test_a_price_that_is_none_is_told_before_a_run_is_started(slice_of_two):
    result = slice_of_two.launch(*RUN, PRICE="cheap")
    assert result.returncode == 2 and not slice_of_two.calls()
