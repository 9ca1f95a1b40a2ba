"""launch/gke.sh run, logs, watch and stop: what Kubernetes is given, and how it is told what became of it."""

import base64
import json
import re
import shutil

import pytest
import yaml
from cloud import HOSTILE, LAUNCH, eventually

pytestmark = pytest.mark.sampled(4)

RUN = ("run", "my-slice", "--", "pretrain", "--config", "configs/bert_base.py", "--workdir", "gs://my-bucket/base")
CREDENTIALS = ["gcloud", "container", "clusters", "get-credentials", "my-cluster", "--location=us-west4", "--quiet"]
HERE = "--namespace=default"
KUBECTL = shutil.which("kubectl")


def of_run(host=None):
    label = "--selector=jobset.sigs.k8s.io/jobset-name=my-slice"
    return label if host is None else f"{label},batch.kubernetes.io/job-completion-index={host}"


def given(cluster, kind):
    with cluster.google() as google:
        return google[kind]


def job(jobset):
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]


def container(jobset):
    return job(jobset)["template"]["spec"]["containers"][0]


def words_of(jobset):
    """The arguments as Kubernetes hands them on: $$ is a $, and $(NAME) the value of a variable."""
    values = {"$$": "$"}
    return [
        re.sub(r"\$\$|\$\(\w+\)", lambda m: values.get(m[0], "EXPANDED"), word) for word in container(jobset)["args"]
    ]


def test_run_gives_kubernetes_the_secrets_and_then_the_jobset(rented):
    result = rented.launch(*RUN)
    assert result.returncode == 0, result.stderr
    look, *calls = rented.calls()
    assert look[:4] == ["gcloud", "container", "node-pools", "list"]
    state = calls.pop(1)
    assert state[:5] == ["kubectl", "get", "jobset", "my-slice", "--ignore-not-found"]
    template = f"--filename={LAUNCH}/gke/jobset.yaml"
    assert calls == [
        CREDENTIALS,
        ["kubectl", "get", "serviceaccount", "bert-jax", "--output=name", HERE],
        ["kubectl", "patch", "--local", template, "--type=json", "--patch-file=SCRATCH/patch.json", "--output=json"],
        ["kubectl", "apply", "--server-side", "--filename=SCRATCH/secret.json", HERE],
        ["kubectl", "apply", "--server-side", "--filename=SCRATCH/jobset.json", HERE],
    ]
    assert words_of(given(rented, "jobset")) == [*RUN[3:], "--distributed"]
    assert "4 hosts" in result.stdout


def test_the_jobset_is_that_of_the_file_with_the_slice_and_the_run_filled_in(cluster):
    cluster.rent("v4-2x2x4")
    cluster.launch(*RUN, SERVICE_ACCOUNT="bert-jax")
    jobset, expected = given(cluster, "jobset"), yaml.safe_load((LAUNCH / "gke" / "jobset.yaml").read_text())
    expected["metadata"]["name"] = "my-slice"
    expected["metadata"]["annotations"]["bert-jax-run"] = jobset["metadata"]["annotations"]["bert-jax-run"]
    job(expected)["template"]["spec"]["nodeSelector"] = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
        "cloud.google.com/gke-tpu-topology": "2x2x4",
        "cloud.google.com/gke-nodepool": "my-slice",
    }
    container(expected).update(image="registry/bert-jax:1", args=[*RUN[3:], "--distributed"])
    container(expected)["envFrom"][0]["secretRef"]["name"] = "my-slice-secrets"
    assert jobset == expected


@pytest.mark.parametrize(
    ("topology", "hosts", "chips"),
    [
        ("v5e-2x4", 1, 8),
        ("v5e-16x16", 64, 4),
        ("v6e-1x1", 1, 1),
        ("v5p-2x2x1", 1, 4),
        ("tpu7x-2x2x1", 1, 4),
        ("tpu7x-2x2x2", 2, 4),
    ],
)
def test_the_jobset_has_a_pod_for_each_host_of_the_slice(cluster, topology, hosts, chips):
    cluster.rent(topology)
    assert cluster.launch(*RUN).returncode == 0
    jobset = given(cluster, "jobset")
    assert job(jobset)["parallelism"] == job(jobset)["completions"] == hosts
    assert container(jobset)["resources"] == {kind: {"google.com/tpu": chips} for kind in ("requests", "limits")}


def test_slices_of_the_readme_are_filled_in_as_it_says(cluster):
    text = (LAUNCH / "gke" / "README.md").read_text()
    rows = re.findall(r"^\| (\w+), \d+ chips \| `(\S+)` \| `(\S+)` \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert len(rows) == 8
    for generation, accelerator, topology, hosts, chips in rows:
        cluster.rent(f"{generation}-{topology}")
        with cluster.google() as google:
            google["jobset"] = None
        assert cluster.launch(*RUN).returncode == 0
        jobset = given(cluster, "jobset")
        assert job(jobset)["completions"] == int(hosts)
        assert container(jobset)["resources"]["limits"] == {"google.com/tpu": int(chips)}
        selector = job(jobset)["template"]["spec"]["nodeSelector"]
        assert selector["cloud.google.com/gke-tpu-accelerator"] == accelerator
        assert selector["cloud.google.com/gke-tpu-topology"] == topology


def test_every_argument_arrives_as_it_was_written(rented):
    words = [
        "finetune",
        *HOSTILE,
        "$(WANDB_API_KEY)",
        "$$(A)",
        "{a: b}",
        "- #x",
        "\t\x01\x1f\x7f",
        "&\\&",
        "no",
        "1e3",
        "--",
    ]
    result = rented.launch("run", "my-slice", *words, IMAGE='a"b\\')
    assert result.returncode == 0, result.stderr
    assert words_of(given(rented, "jobset")) == [*words, "--distributed"]
    assert container(given(rented, "jobset"))["image"] == 'a"b\\'


@pytest.mark.skipif(not KUBECTL, reason="kubectl is not installed")
def test_kubectl_itself_fills_the_jobset_in_as_its_stand_in_does(rented):
    jobsets = []
    for _ in range(2):
        result = rented.launch("run", "my-slice", "pretrain", *HOSTILE)
        assert result.returncode == 0, result.stderr
        with rented.google() as google:
            jobsets.append(google["jobset"])
            google["jobset"] = None
        (rented.root / "stand_in").mkdir(exist_ok=True)
        stand_in = (rented.root / "bin" / "kubectl").rename(rented.root / "stand_in" / "kubectl")
        rented.program("bin/kubectl", f'#!/bin/bash\n[[ $1 != patch ]] || exec {KUBECTL} "$@"\nexec {stand_in} "$@"\n')
    assert jobsets[0] == jobsets[1]


SECRET = "hush $HOME 'quoted' \"twice\" \\ " + "long" * 40 + "\nü"


def test_secrets_reach_the_run_and_no_command_line(rented):
    result = rented.launch(*RUN, WANDB_API_KEY=SECRET, SECRETS="WANDB_API_KEY MINE HF_TOKEN", MINE="1")
    assert result.returncode == 0, result.stderr
    secret = given(rented, "secret")
    assert secret["metadata"]["name"] == "my-slice-secrets"
    values = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert values == {"WANDB_API_KEY": SECRET, "MINE": "1"}
    assert given(rented, "mode") == 0o600
    everything = json.dumps(rented.calls()) + result.stdout + result.stderr
    assert "hush" not in everything
    assert base64.b64encode(b"hush").decode()[:5] not in everything


def test_nothing_is_left_behind_on_this_machine(rented):
    (rented.root / "tmp").mkdir()
    assert rented.launch(*RUN, HF_TOKEN=SECRET, TMPDIR=str(rented.root / "tmp")).returncode == 0
    assert not list((rented.root / "tmp").iterdir())
    assert not (rented.root / ".kube").exists(), "the user's kubectl keeps its context"


def test_a_context_of_ones_own_is_used_as_it_is(rented):
    result = rented.launch(*RUN, CONTEXT="mine", NAMESPACE="team", SERVICE_ACCOUNT="bert-jax")
    assert result.returncode == 0, result.stderr
    assert not rented.calls("get-credentials")
    assert all(call[-2:] == ["--namespace=team", "--context=mine"] for call in rented.calls("kubectl", "apply"))


def test_the_same_run_is_recognised_while_it_is_going(rented):
    assert rented.launch(*RUN).returncode == 0
    again = rented.launch(*RUN)
    assert again.returncode == 0, again.stderr
    assert "going already" in again.stdout
    assert len(rented.calls("apply")) == 2


@pytest.mark.parametrize("change", [{"words": ["--config.seed=1"]}, {"IMAGE": "registry/bert-jax:2"}])
def test_another_run_is_refused_until_stop_ends_the_first(rented, change):
    words, environment = change.pop("words", []), change
    assert rented.launch(*RUN).returncode == 0
    refused = rented.launch(*RUN[:2], "--delete-on-failure", *RUN[2:], *words, **environment)
    assert refused.returncode == 1
    assert "another run is going" in refused.stderr
    assert not rented.calls("delete")
    assert rented.launch("stop", "my-slice").returncode == 0
    assert rented.launch(*RUN, *words, **environment).returncode == 0


@pytest.mark.parametrize(
    "stand", [{"terminal": "Completed"}, {"terminal": "Failed"}, {"deleted": "2026-01-01T00:00:00Z"}]
)
def test_a_run_that_has_ended_makes_room_for_the_next(rented, stand):
    assert rented.launch(*RUN).returncode == 0
    rented.stands(stand)
    result = rented.launch(*RUN)
    assert result.returncode == 0, result.stderr
    assert rented.calls("delete", "jobset")
    assert given(rented, "jobset")


def test_a_missing_service_account_is_told_before_anything_is_started(rented):
    result = rented.launch(*RUN, SERVICE_ACCOUNT="nobody")
    assert result.returncode == 1
    assert "a service account 'nobody' in the namespace default" in result.stderr
    assert not rented.calls("apply")


def test_a_slice_that_is_not_there_is_told(cluster):
    result = cluster.launch(*RUN)
    assert result.returncode == 1
    assert "there is no slice my-slice in my-cluster" in result.stderr


@pytest.mark.parametrize("state", ["ERROR", "STOPPING"])
def test_nothing_is_started_on_a_slice_that_did_not_come_up_or_is_going(rented, state):
    with rented.google() as google:
        google["states"] = [state]
    result = rented.launch(*RUN)
    assert result.returncode == 1
    assert f"the slice is {state}" in result.stderr
    assert not rented.calls("apply")


PASSING = [
    "The connection to the server 10.0.0.1 was refused - did you specify the right host or port?",
    "Unable to connect to the server: net/http: TLS handshake timeout",
    "Unable to connect to the server: dial tcp 10.0.0.1:443: i/o timeout",
    "dial tcp 10.0.0.1:443: connect: connection refused",
    "(TooManyRequests): the server has received too many requests and has asked us to try again later",
    "(ServiceUnavailable): the server is currently unable to handle the request",
    '(InternalError): failed calling webhook "mjobset.kb.io": no endpoints available',
]


@pytest.mark.parametrize("message", PASSING)
@pytest.mark.parametrize("carried_out", [False, True])
def test_what_passes_by_itself_is_tried_again_after_twice_the_delay(rented, message, carried_out):
    rented.fault("apply", "--server-side", message=message, times=2, carried_out=carried_out)
    result = rented.launch(*RUN, RETRY_SECONDS="7")
    assert result.returncode == 0, result.stderr
    assert rented.sleeps() == ["7", "14"]
    assert len(rented.calls("apply")) == 4


@pytest.mark.parametrize("flags", [[], ["--delete-on-failure"]])
def test_what_does_not_pass_is_not_tried_again_and_deletes_only_if_so_asked(rented, flags):
    message = '(Invalid): unknown field "spec.failurePolicy.rules"'
    rented.fault("apply", "--server-side", status=0)  # the secrets
    rented.fault("apply", "--server-side", message=message, times=99)
    result = rented.launch(*RUN[:2], *flags, *RUN[2:])
    assert result.returncode == 1
    assert message in result.stderr
    assert "does the cluster have JobSet?" in result.stderr
    assert len(rented.calls("apply")) == 2
    assert len(rented.calls("node-pools", "delete")) == len(flags)
    assert ("my-slice: deleted" in result.stdout) == bool(flags)


def test_trying_again_is_bounded(rented):
    rented.fault("apply", message=PASSING[0], times=99)
    result = rented.launch(*RUN)
    assert result.returncode == 1
    assert len(rented.calls("apply")) == 5
    assert "nothing was started" in result.stderr


@pytest.fixture
def going(rented):
    """The cluster with a run."""
    assert rented.launch(*RUN).returncode == 0
    with rented.google() as google:
        google["pods"] = ["pod/my-slice-slice-0-0-abcde"]
    (rented.root / "calls.jsonl").unlink()
    return rented


@pytest.mark.parametrize("host", [(), ("3",)])
def test_logs_follow_the_host_that_is_asked_for(going, host):
    result = going.launch("logs", "my-slice", *host)
    assert result.returncode == 0, result.stderr
    pod = "pod/my-slice-slice-0-0-abcde"
    assert going.calls("kubectl") == [
        ["kubectl", "get", "pods", of_run(*host or "0"), "--output=name", HERE],
        ["kubectl", "logs", "--follow", "--tail=100", "--container=bert-jax", pod, HERE],
    ]
    assert f"the log of {pod}" in result.stdout


def test_logs_of_a_host_without_a_pod_say_where_to_look(going):
    with going.google() as google:
        google["pods"] = []
    result = going.launch("logs", "my-slice", "7")
    assert result.returncode == 1
    assert "host 7 has nothing running; `watch` tells" in result.stderr


def told(result):
    return [line.removeprefix("my-slice: ") for line in result.stdout.splitlines()]


def test_watch_tells_each_change_and_ends_with_the_run(going):
    running, again = {"ready": "1"}, {"restarts": "2", "failures": "1"}
    going.stands(
        {}, {}, running, running, again, running | again, {"suspended": "true"}, {"terminal": "Completed"} | again
    )
    with going.google() as google:
        google["waits"] = "ContainerCreating  ImagePullBackOff Unschedulable ImagePullBackOff "
    result = going.launch("watch", "my-slice")
    assert result.returncode == 0, result.stderr
    waiting, suffix = (
        "Waiting (ContainerCreating, ImagePullBackOff, Unschedulable)",
        ", started again 2 times, 1 of them",
    )
    lines = [line.removesuffix(" for a failure of its own") for line in told(result)]
    assert lines[:-2] == [
        waiting, "Running", waiting + suffix, "Running" + suffix, "Suspended", "Completed" + suffix,
    ]  # fmt: skip
    assert lines[-2] == "the run has finished"
    assert "still rented" in lines[-1]
    assert not going.calls("delete")


DEATHS = """|2||Evicted|pod-c
2026-01-01T00:00:09Z|0|134||pod-a
2026-01-01T00:00:07Z|1|2||pod-b
"""


@pytest.mark.parametrize("flags", [[], ["--delete-on-failure"]])
def test_of_a_run_that_failed_the_host_that_failed_first_is_named_with_its_log(going, flags):
    going.stands({"ready": "1"}, {"terminal": "Failed", "message": "jobset failed due to reaching max restarts"})
    with going.google() as google:
        google["deaths"] = DEATHS
    result = going.launch("watch", "my-slice", *flags)
    assert result.returncode == 1
    assert "host 1: the log of pod-b\n" in result.stderr
    assert "failed on host 1 (status 2): jobset failed due to reaching max restarts\n" in result.stderr
    [asked] = going.calls("--field-selector=status.phase=Failed")
    assert of_run() in asked
    assert len(going.calls("node-pools", "delete")) == len(flags)


@pytest.mark.parametrize(
    ("deaths", "said"),
    [("|2||Evicted|pod-c\n", "failed on host 2 (Evicted): boom"), ("", "the run failed (boom), and its pods are gone")],
)
def test_of_a_run_that_failed_without_a_status_what_is_known_is_told(going, deaths, said):
    going.stands({"terminal": "Failed", "message": "boom"})
    with going.google() as google:
        google["deaths"] = deaths
    result = going.launch("watch", "my-slice")
    assert result.returncode == 1
    assert said in result.stderr


def test_the_slice_is_given_back_when_the_run_has_finished_if_so_asked(going):
    going.stands({"terminal": "Completed"})
    result = going.launch("watch", "my-slice", "--delete-when-finished")
    assert result.returncode == 0, result.stderr
    assert told(result)[-1] == "deleted"
    assert given(going, "pool") is None


def test_a_watch_ends_when_the_run_is_stopped(going):
    watch = going.begin("watch", "my-slice", "--delete-on-failure")
    eventually(lambda: "Waiting" in going.said())
    assert going.launch("stop", "my-slice").returncode == 0
    assert watch.wait(timeout=60) == 0, going.said()
    assert "the run was stopped" in going.said()
    assert given(going, "pool")


def test_there_is_nothing_to_watch_where_nothing_was_run(rented):
    result = rented.launch("watch", "my-slice")
    assert result.returncode == 2
    assert "there is no run my-slice" in result.stderr


def test_a_cluster_that_does_not_answer_does_not_end_the_watch(going):
    going.stands({"terminal": "Completed"})
    going.fault("jobset", message=PASSING[0], times=7)
    result = going.launch("watch", "my-slice")
    assert result.returncode == 0, result.stderr
    assert told(result)[:2] == ["unknown", "Completed"]


def test_trouble_without_end_is_given_up_and_deletes_nothing(going):
    going.fault("jobset", message="(Forbidden): no", times=99)
    result = going.launch("watch", "my-slice", "--delete-on-failure")
    assert result.returncode == 1
    assert "gave up after ten failures in a row" in result.stderr
    assert going.sleeps() == ["2", "4", "8", "16", "32", "64", "64", "64", "64"]
    assert not going.calls("delete")


def test_stop_lets_the_run_save_and_says_when_it_does_not_end(going):
    assert going.launch("stop", "my-slice").returncode == 0
    assert given(going, "jobset") is None
    assert given(going, "secret") is None
    assert given(going, "pool")
    going.fault("delete", message="timed out waiting for the condition")
    result = going.launch("stop", "my-slice")
    assert result.returncode == 1
    assert "has not ended in 20 s" in result.stderr


def test_a_workdir_on_the_disk_of_each_host_is_refused(rented):
    result = rented.launch(*RUN[:-1], "/home/me/base")
    assert result.returncode == 2 and "hosts write to it" in result.stderr, result.stderr
    result = rented.launch(*RUN[:-1], "/shared/base", SHARED_WORKDIR="1")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("topology", "scheduling", "price"),
    [
        ("v5e-4x4", ["", "", ""], " 19.20 USD an hour (list price; PRICE=... changes it)"),
        ("v5e-4x4", ["True", "", ""], " 9.60 USD an hour (list price; PRICE=... changes it)"),
        ("v6e-2x4", ["", "True", ""],
         " 21.60 USD an hour (list price on demand; flex-start has another, which PRICE=... sets)"),
        ("v6e-2x4", ["", "", "SPECIFIC_RESERVATION"],
         " 21.60 USD an hour (list price on demand; reserved has another, which PRICE=... sets)"),
        ("tpu7x-2x2x1", ["", "", ""], ""),
    ],
)  # fmt: skip
def test_what_goes_on_costing_is_said_after_run_with_the_command_that_ends_it(cluster, topology, scheduling, price):
    cluster.rent(topology)
    with cluster.google() as google:
        google["scheduling"] = scheduling
    ends = f"ZONE=us-west4-a LOCATION=us-west4 CLUSTER=my-cluster {LAUNCH}/gke.sh delete my-slice"
    for _ in range(2):
        result = cluster.launch(*RUN)
        assert result.returncode == 0, result.stderr
        said = f"my-slice: the slice costs{price}, with or without a run on it, until you type: {ends}"
        assert result.stdout.splitlines()[-1] == said


def test_a_run_without_a_slice_tells_what_its_work_directory_needs_before_one_is_rented(cluster):
    result = cluster.launch(*RUN[:-1], "/data/base")
    assert result.returncode == 1
    assert "with --workdir /data/base, a path on each host's own disk, it must be a slice of one host" in result.stderr
