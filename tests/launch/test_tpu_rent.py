"""launch/tpu.sh create and delete: what Google is asked, what it costs, and what happens when Google says no."""

import os
import pty
import subprocess

import pytest
from cloud import LAUNCH, ROOT

from bert_jax.errors import InputError
from bert_jax.planning.accelerators import topology_of

pytestmark = pytest.mark.sampled(2)

CREATE = ("create", "my-slice", "--type", "v5litepod-16")
DESCRIBE = "--format=value(state.state,tpu.nodeSpec[0].node.acceleratorType)"
WHERE = ["--zone=us-west4-a", "--quiet"]


def queue(*words, where=WHERE):
    verb, *flags = words
    return ["compute", "tpus", "queued-resources", verb, "my-slice", *flags, *where]


def test_create_asks_for_the_slice_and_waits_until_it_is_there(cloud):
    with cloud.google() as google:
        google["next_states"] = [["WAITING_FOR_RESOURCES", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]]
    result = cloud.launch(*CREATE, "--spot", "--labels=a=b c", "--yes")
    assert result.returncode == 0, result.stderr
    asked = queue(
        "create", "--node-id=my-slice", "--accelerator-type=v5litepod-16", "--runtime-version=v2-alpha-tpuv5-lite",
        "--spot", "--labels=a=b c",
    )  # fmt: skip
    assert cloud.calls() == [queue("describe", DESCRIBE), asked, *[queue("describe", DESCRIBE)] * 4]
    assert cloud.sleeps() == ["1"] * 3
    states = [line for line in result.stdout.splitlines() if line.isupper() or line.split()[-1].isupper()]
    assert [line.split()[-1] for line in states] == ["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]


@pytest.mark.parametrize(
    ("accelerator", "flags", "chips", "price", "runtime"),
    [
        ("v4-32", [], 16, "3.22", "tpu-ubuntu2204-base"),
        ("v4-32", ["--spot"], 16, "0.93", "tpu-ubuntu2204-base"),
        ("v5p-32", [], 16, "4.20", "v2-alpha-tpuv5"),
        ("v5litepod-8", [], 8, "1.20", "v2-alpha-tpuv5-lite"),
        ("v5litepod-8", ["--spot"], 8, "0.60", "v2-alpha-tpuv5-lite"),
        ("v6e-256", ["--network=--spot"], 256, "2.70", "v2-alpha-tpuv6e"),
    ],
)
def test_what_it_costs_is_said_before_it_is_asked_for(cloud, accelerator, flags, chips, price, runtime):
    result = cloud.launch("create", "my-slice", f"--type={accelerator}", *flags, "--yes")
    assert result.returncode == 0, result.stderr
    hour = chips * float(price)
    line, *_ = result.stdout.splitlines()
    assert f"{chips} chips at {price} USD an hour = {hour:.2f} USD an hour, {24 * hour:.2f} USD a day" in line
    [call] = cloud.calls("create")
    assert f"--runtime-version={runtime}" in call


# Google's lists of accelerator types: https://cloud.google.com/tpu/docs/v4, .../v5e, .../v5p and .../v6e.
RENTED = {
    "v5litepod": "1 4 8 16 32 64 128 256", "v6e": "1 4 8 16 32 64 128 256",
    "v4": "8 16 32 64 128 256 384 512 640 1024 1536 2048 4096 8192",
    "v5p": "8 16 32 64 128 256 384 512 640 768 896 1024 3456 6144 12288",
}  # fmt: skip
NOT_RENTED = {
    "v5litepod": "0 2 3 6 12 24 48 512 1024", "v6e": "0 2 12 96 257 512",
    "v4": "0 1 2 4 12 24 48 96 192 100 8320", "v5p": "0 4 10 24 40 65 192 12416",
}  # fmt: skip


@pytest.mark.parametrize("generation", RENTED)
def test_the_sizes_of_google_have_a_price_and_others_have_none(cloud, generation):
    script = f'source {LAUNCH}/cloud/sizes.sh; for n in "$@"; do measure {generation}-$n && echo $n $chips $hosts; done'

    def measured(numbers):
        run = subprocess.run(["bash", "-c", script, "-", *numbers.split()], capture_output=True, text=True)
        return [tuple(map(int, line.split())) for line in run.stdout.splitlines()]

    assert measured(NOT_RENTED[generation]) == []
    rows = measured(RENTED[generation])
    assert " ".join(str(number) for number, _, _ in rows) == RENTED[generation]
    for number, chips, hosts in rows:
        assert chips == (number if generation in ("v5litepod", "v6e") else number / 2)
        assert hosts == (1 if chips <= 8 and chips != number / 2 else chips // 4)
    refused = cloud.launch("create", "my-slice", f"--type={generation}-{NOT_RENTED[generation].split()[-1]}", "--yes")
    assert refused.returncode == 2 and "USD" not in refused.stdout and not cloud.calls()


@pytest.mark.parametrize("generation", RENTED)
def test_sizes_are_those_of_the_planner(generation):
    for number in map(int, RENTED[generation].split()):
        topology_of(f"{generation}-{number}")
    for number in map(int, NOT_RENTED[generation].split()):
        if (generation, number) != (
            "v5p",
            12416,
        ):  # planned for a whole pod, of which Google rents two thirds to one job
            with pytest.raises(InputError):
                topology_of(f"{generation}-{number}")


def test_the_work_directory_is_checked_before_anything_is_rented_and_is_not_for_gcloud(cloud):
    for words in (["--workdir", "gs://my-bucket/base"], ["--workdir=gs://my-bucket/base"]):
        assert cloud.launch(*CREATE, *words, "--yes").returncode == 0
    assert not [word for call in cloud.calls() for word in call if "workdir" in word]


@pytest.mark.parametrize("accelerator", ["v5litepod-1", "v5litepod-8", "v6e-8", "v4-8", "v5p-8"])
def test_one_host_may_keep_its_work_directory(cloud, accelerator):
    result = cloud.launch("create", "my-slice", "--type", accelerator, "--workdir", "runs/a", "--yes")
    assert result.returncode == 0, result.stderr


def test_hosts_that_mount_the_work_directory_may_share_it(cloud):
    assert cloud.launch(*CREATE, "--workdir", "/mnt/shared", "--yes", SHARED_WORKDIR="1").returncode == 0


@pytest.mark.parametrize(
    ("flags", "whose"),
    [
        (["--provisioning-model=flex-start"], "flex-start"),
        (["--provisioning-model", "FLEX_START"], "flex-start"),
        (["--reserved"], "reserved"),
        (["--reservation=mine"], "reserved"),
    ],
)
def test_prices_that_are_not_on_the_list_are_said_to_be_others(cloud, flags, whose):
    result = cloud.launch(*CREATE, *flags, "--yes")
    assert "19.20 USD an hour" in result.stdout
    assert f"(list price on demand; {whose} has another, which PRICE=... sets)" in result.stdout
    [call] = cloud.calls("create")
    # Google's page of flex-start: its flags are those of the alpha command.
    assert call[: 4 if whose == "flex-start" else 3] == [
        *["alpha"] * (whose == "flex-start"), "compute", "tpus", "queued-resources",
    ]  # fmt: skip
    assert "alpha" not in cloud.calls("describe")[-1]


def test_price_runtime_and_project_come_from_the_environment(cloud):
    result = cloud.launch(*CREATE, "--yes", PRICE="0.5", RUNTIME="mine", PROJECT="my-project")
    assert "16 chips at 0.5 USD an hour = 8.00 USD an hour" in result.stdout
    [call] = cloud.calls("create")
    assert "--runtime-version=mine" in call
    assert call[-1] == "--project=my-project"


def test_nobody_at_the_terminal_and_no_yes_means_no(cloud):
    result = cloud.launch(*CREATE)
    assert result.returncode == 2
    assert "19.20 USD an hour" in result.stdout
    assert "--yes" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not cloud.calls("create")


@pytest.mark.parametrize(("answer", "rented"), [("yes", True), ("y", False), ("", False)])
def test_at_a_terminal_yes_is_typed_in_full(cloud, answer, rented):
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    result = cloud.launch(*CREATE, stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert (result.returncode == 0) == rented
    assert bool(cloud.calls("create")) == rented


@pytest.mark.parametrize("state", ["ACTIVE", "PROVISIONING"])
def test_create_of_a_slice_that_exists_goes_on_with_it(cloud, state):
    cloud.rent()
    with cloud.google() as google:
        google["states"] = [state, "ACTIVE"]
    result = cloud.launch(*CREATE)  # it costs already: nothing to agree to
    assert result.returncode == 0, result.stderr
    assert "exists already" in result.stdout
    assert not cloud.calls("create")


def test_create_of_a_slice_that_exists_as_another_type_is_refused(cloud):
    cloud.rent()
    result = cloud.launch("create", "my-slice", "--type", "v5litepod-64", "--yes")
    assert result.returncode == 2
    assert "exists as a v5litepod-16" in result.stderr


@pytest.mark.parametrize("state", ["FAILED", "SUSPENDED"])
def test_a_request_that_comes_to_nothing_says_what_to_do_and_leaves_the_slice(cloud, state):
    with cloud.google() as google:
        google["next_states"] = [["PROVISIONING", state]]
    result = cloud.launch(*CREATE, "--yes")
    assert result.returncode == 1
    assert state in result.stdout
    assert "delete it" in result.stderr
    assert not cloud.calls("delete")


def test_waiting_is_bounded(cloud):
    with cloud.google() as google:
        google["next_states"] = [["WAITING_FOR_RESOURCES"]]
    result = cloud.launch(*CREATE, "--yes", WAIT_SECONDS="0")
    assert result.returncode == 1
    assert "still WAITING_FOR_RESOURCES after 0 s" in result.stderr


def test_delete_on_failure_gives_back_what_did_not_come_up(cloud):
    with cloud.google() as google:
        google["next_states"] = [["PROVISIONING", "FAILED"]]
    result = cloud.launch(*CREATE, "--yes", "--delete-on-failure")
    assert result.returncode == 1
    assert cloud.calls("delete") == [queue("delete", "--force")]
    assert cloud.state() == "ABSENT"


BUSY = [
    "HTTPError 503: backend",
    "HTTPError 429: slow down",
    "UNAVAILABLE: The service is currently unavailable.",
    "RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute'",
]


@pytest.mark.parametrize("message", BUSY)
def test_a_busy_google_is_asked_again_after_twice_the_delay_each_time(cloud, message):
    cloud.fault("create", message=message, times=3)
    result = cloud.launch(*CREATE, "--yes", RETRY_SECONDS="7")
    assert result.returncode == 0, result.stderr
    assert len(cloud.calls("create")) == 4
    assert cloud.sleeps() == ["7", "14", "28"]


def test_asking_again_is_bounded(cloud):
    cloud.fault("create", message=BUSY[0], times=99)
    result = cloud.launch(*CREATE, "--yes")
    assert result.returncode == 1
    assert len(cloud.calls("create")) == 5
    assert "HTTPError 503" in result.stderr


@pytest.mark.parametrize(
    "message", ["PERMISSION_DENIED: no", "RESOURCE_EXHAUSTED: Quota limit 'TPUs' has been exceeded"]
)
def test_a_final_refusal_is_not_asked_again(cloud, message):
    cloud.fault("create", message=message, times=99)
    result = cloud.launch(*CREATE, "--yes")
    assert result.returncode == 1
    assert len(cloud.calls("create")) == 1
    assert message in result.stderr


def test_a_request_that_came_through_although_its_answer_was_lost_is_ours(cloud):
    cloud.fault("create", message=BUSY[0], carried_out=True)
    result = cloud.launch(*CREATE, "--yes")
    assert result.returncode == 0, result.stderr
    assert len(cloud.calls("create")) == 2


def test_delete_gives_the_nodes_back_too(slice_of_two):
    result = slice_of_two.launch("delete", "my-slice")
    assert result.returncode == 0, result.stderr
    assert slice_of_two.calls("delete") == [queue("delete", "--force")]


def test_a_deletion_that_came_through_although_its_answer_was_lost_is_one(slice_of_two):
    slice_of_two.fault("delete", message=BUSY[0], carried_out=True)
    result = slice_of_two.launch("delete", "my-slice")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "my-slice: deleted\n"


def test_delete_of_what_is_not_there_says_so(cloud):
    result = cloud.launch("delete", "my-slice")
    assert result.returncode == 0
    assert "no such slice" in result.stdout
    assert not cloud.calls("delete")


def test_a_deletion_that_fails_says_that_it_costs(slice_of_two):
    slice_of_two.fault("delete", message="PERMISSION_DENIED")
    result = slice_of_two.launch("delete", "my-slice")
    assert result.returncode == 1
    assert "NOT deleted" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["destroy", "my-slice"], {}, "no command 'destroy'"),
        (["run"], {}, "needs the NAME"),
        (["delete", "--all"], {}, "needs the NAME"),
        (["delete", "a b; rm -rf $HOME"], {}, "needs the NAME"),
        (["run", "my-slice", "evaluate"], {}, "pretrain or finetune"),
        (["create", "my-slice"], {}, "--type"),
        (["create", "my-slice", "--type"], {}, "--type"),
        (["create", "my-slice", "--type", "h100-8"], {}, "found 'h100-8'"),
        (["create", "my-slice", "--type", "v4-1"], {}, "TensorCores"),
        (["create", "my-slice", "--type", "v5p-12"], {}, "8, 16, 32, 64 and the multiples of 128 up to 12288"),
        (["create", "my-slice", "--type", "v5litepod-12"], {}, "slices of 1, 4, 8, 16, 32, 64, 128 and 256 chips"),
        (["create", "my-slice", "--type", "v6e-512"], {}, "slices of 1, 4, 8, 16, 32, 64, 128 and 256 chips"),
        (["create", "my-slice", "--type", "v5e-16"], {}, "Google's name of this slice is v5litepod-16"),
        (["create", "my-slice", "--type", "v5e-12"], {}, "slices of 1, 4, 8, 16, 32, 64, 128 and 256 chips"),
        (["create", "my-slice", "--type", "v4-24"], {}, "8, 16, 32, 64 and the multiples of 128 up to 8192"),
        (["create", "my-slice", "--type", "tpu7x-8"], {}, "launch/gke.sh create NAME --topology tpu7x:2x2x1"),
        (["create", "my-slice", "--type", "v5litepod-16", "--workdir", "runs/a"], {}, "since 4 hosts write to it"),
        (["create", "my-slice", "--type=v4-16", "--workdir=~/a"], {}, "since 2 hosts write to it"),
        (["create", "my-slice", "--type", "v4-8"], {"PRICE": "cheap"}, "found 'cheap'"),
        (["logs", "my-slice"], {"ZONE": ""}, "set ZONE"),
        (["logs", "my-slice", "--all"], {}, "number of a worker"),
        (["setup", "my-slice", "now"], {}, "did not expect 'now'"),
        (["watch", "my-slice", "--yes"], {}, "no `run` of my-slice is remembered"),
        (["run", "my-slice", "pretrain"], {"SECRETS": "KEY=hush"}, "names of variables"),
    ],
)
def test_what_does_not_fit_is_one_line_and_asks_nothing_of_google(cloud, arguments, environment, message):
    result = cloud.launch(*arguments, **environment)
    assert result.returncode == 2
    assert message in result.stderr
    assert "hush" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert not cloud.calls()


def test_help_names_every_command(cloud):
    result = cloud.launch("--help")
    assert result.returncode == 0
    for verb in ("create", "setup", "run", "logs", "watch", "stop", "delete", "list"):
        assert f"launch/tpu.sh {verb} " in result.stdout


def test_shellcheck_has_no_complaint():
    scripts = [LAUNCH / "tpu.sh", LAUNCH / "tpu" / "host.sh", LAUNCH / "slurm.sh", ROOT / ".ci" / "run"]
    shellcheck = os.path.join(os.path.dirname(os.sys.executable), "shellcheck")
    # --check-sourced: the parts of tpu.sh, as parts of it.
    subprocess.run([shellcheck, "--external-sources", "--check-sourced", "-P", "SCRIPTDIR", *scripts], check=True)
