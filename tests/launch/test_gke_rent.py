"""launch/gke.sh create and delete: what Google is asked, what it costs, and what happens when Google says no."""

import os
import pty
import subprocess
import sys

import pytest
from cloud import LAUNCH

pytestmark = pytest.mark.sampled(3)

CREATE = ("create", "my-slice", "--topology", "v5e:4x4")
WHERE = ["--cluster=my-cluster", "--location=us-west4", "--quiet"]
LIST = [
    "--filter=name=my-slice",
    '--format=value[separator="|"](status,config.labels.bert_jax_slice,config.spot,config.flexStart,'
    "config.reservationAffinity.consumeReservationType,statusMessage)",
]


def pools(verb, *words, where=WHERE):
    return ["gcloud", "container", "node-pools", verb, *words, *where]


def answered(answer, launch):
    """A launch with somebody at the terminal."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    try:
        return launch(stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def test_create_asks_for_the_slice_and_waits_until_it_is_there(cluster):
    with cluster.google() as google:
        google["next_states"] = [["PROVISIONING", "PROVISIONING", "RUNNING"]]
    result = cluster.launch(*CREATE, "--spot", "--service-account=a b", "--yes")
    assert result.returncode == 0, result.stderr
    asked = pools(
        "create", "my-slice", "--node-locations=us-west4-a", "--machine-type=ct5lp-hightpu-4t", "--num-nodes=4",
        "--tpu-topology=4x4", "--node-labels=bert_jax_slice=v5e-4x4", "--async", "--spot", "--service-account=a b",
    )  # fmt: skip
    assert cluster.calls() == [pools("list", *LIST), asked, *[pools("list", *LIST)] * 3]
    assert cluster.sleeps() == ["1"] * 2
    assert [line.split()[-1] for line in result.stdout.splitlines()[-2:]] == ["PROVISIONING", "RUNNING"]


@pytest.mark.parametrize(
    ("topology", "flags", "price", "machine", "hosts"),
    [
        ("v5e:1x1", [], "1.20", "ct5lp-hightpu-1t", 1),
        ("v5e:2x2", [], "1.20", "ct5lp-hightpu-4t", 1),
        ("v5e:2x4", ["--spot"], "0.60", "ct5lp-hightpu-8t", 1),
        ("v5e:16x16", [], "1.20", "ct5lp-hightpu-4t", 64),
        ("v6e:2x4", [], "2.70", "ct6e-standard-8t", 1),
        ("v6e:4x4", ["--network=--spot"], "2.70", "ct6e-standard-4t", 4),
        ("v4:2x2x1", [], "3.22", "ct4p-hightpu-4t", 1),
        ("v4:2x2x4", ["--spot"], "0.93", "ct4p-hightpu-4t", 4),
        ("v5p:2x2x4", [], "4.20", "ct5p-hightpu-4t", 4),
    ],
)
def test_what_it_costs_is_said_before_it_is_asked_for(cluster, topology, flags, price, machine, hosts):
    result = cluster.launch("create", "my-slice", f"--topology={topology}", *flags, "--yes")
    assert result.returncode == 0, result.stderr
    chips = hosts * int(machine[-2])
    line, *_ = result.stdout.splitlines()
    assert f"{topology} in us-west4-a: {chips} chips at {price} USD an hour" in line
    assert f"= {chips * float(price):.2f} USD an hour" in line
    [call] = cluster.calls("create")
    assert {f"--machine-type={machine}", f"--num-nodes={hosts}"} < set(call)
    shape = [word for word in call if word.startswith("--tpu-topology")]
    assert shape == ([f"--tpu-topology={topology.split(':')[1]}"] if hosts > 1 else [])


@pytest.mark.parametrize("topology", ["v5e:8x16", "v4:4x4x20", "v5p:16x16x24", "v5p:4x8x8", "v6e:16x16"])
def test_the_sizes_of_google_are_rented(cluster, topology):
    result = cluster.launch("create", "my-slice", f"--topology={topology}", "--workdir=gs://my-bucket/a", "--yes")
    assert result.returncode == 0, result.stderr
    assert not [word for word in cluster.calls("create")[0] if "workdir" in word]


# https://cloud.google.com/kubernetes-engine/docs/concepts/tpu-ironwood
def test_ironwood_on_one_host_is_a_node_pool_like_others(cluster):
    result = cluster.launch("create", "my-slice", "--topology=tpu7x:2x2x1", "--yes", PRICE="10")
    assert result.returncode == 0, result.stderr
    assert "4 chips at 10 USD an hour = 40.00 USD an hour" in result.stdout
    [call] = cluster.calls("create")
    assert {"--machine-type=tpu7x-standard-4t", "--num-nodes=1"} < set(call)
    assert not [word for word in call if "topology" in word or "placement" in word]


def test_ironwood_on_several_hosts_has_a_workload_policy_in_place_of_a_topology(cluster):
    where = ["--region=us-west4", "--quiet"]
    for _ in range(2):  # the policy of a try that failed is used again
        result = cluster.launch("create", "my-slice", "--topology=tpu7x:2x2x4", "--spot", "--yes", PRICE="10")
        assert result.returncode == 0, result.stderr
        with cluster.google() as google:
            google["pool"] = None
    policy, pool, *_ = cluster.calls("create")
    assert policy == [
        "gcloud", "compute", "resource-policies", "create", "workload-policy", "bert-jax-my-slice-2x2x4",
        "--type=HIGH_THROUGHPUT", "--accelerator-topology=2x2x4", *where,
    ]  # fmt: skip
    assert pool == pools(
        "create", "my-slice", "--node-locations=us-west4-a", "--machine-type=tpu7x-standard-4t", "--num-nodes=4",
        "--placement-policy=bert-jax-my-slice-2x2x4", "--node-labels=bert_jax_slice=tpu7x-2x2x4", "--async", "--spot",
    )  # fmt: skip
    cluster.rent("tpu7x-2x2x4")
    result = cluster.launch("delete", "my-slice", "--yes")
    assert result.returncode == 0, result.stderr
    deleted = [call for call in cluster.calls("delete") if call[0] == "gcloud"]
    assert deleted == [
        pools("delete", "my-slice"),
        ["gcloud", "compute", "resource-policies", "delete", "bert-jax-my-slice-2x2x4", *where],
    ]


def test_a_policy_that_is_refused_rents_nothing_and_one_that_stays_is_told(cluster):
    cluster.fault("resource-policies", message="PERMISSION_DENIED")
    result = cluster.launch("create", "my-slice", "--topology=tpu7x:2x2x2", "--yes", PRICE="10")
    assert result.returncode == 1 and "refused the workload policy" in result.stderr
    assert not cluster.calls("node-pools", "create")
    cluster.rent("tpu7x-2x2x2")
    result = cluster.launch("delete", "my-slice", "--yes")  # there is no policy
    assert result.returncode == 0
    assert "bert-jax-my-slice-2x2x2 is left; it costs nothing" in result.stdout and "my-slice: deleted" in result.stdout


def test_where_and_for_how_much_come_from_the_environment_or_a_flag(cluster):
    result = cluster.launch(
        *CREATE, "--cluster=other", "--yes", PRICE="0.5", PROJECT="my-project", LOCATION="us-west4-a"
    )
    assert "16 chips at 0.5 USD an hour = 8.00 USD an hour" in result.stdout
    [call] = cluster.calls("create")
    assert call[-4:] == ["--cluster=other", "--location=us-west4-a", "--quiet", "--project=my-project"]


def test_nobody_at_the_terminal_and_no_yes_means_no(cluster):
    result = cluster.launch(*CREATE)
    assert result.returncode == 2
    assert "19.20 USD an hour" in result.stdout
    assert "--yes" in result.stderr
    assert not cluster.calls("create")


@pytest.mark.parametrize(("answer", "agreed"), [("yes", True), ("y", False), ("", False)])
def test_at_a_terminal_yes_is_typed_in_full_to_rent_and_to_delete(cluster, answer, agreed):
    result = answered(answer, lambda stdin: cluster.launch(*CREATE, stdin=stdin))
    assert (result.returncode == 0) == agreed
    assert bool(cluster.calls("create")) == agreed
    cluster.rent()
    result = answered(answer, lambda stdin: cluster.launch("delete", "my-slice", stdin=stdin))
    assert (result.returncode == 0) == agreed
    assert bool(cluster.calls("delete")) == agreed


@pytest.mark.parametrize("state", ["RUNNING", "PROVISIONING", "RECONCILING"])
def test_create_of_a_slice_that_exists_goes_on_with_it(rented, state):
    with rented.google() as google:
        google["states"] = [state, "RUNNING"]
    result = rented.launch(*CREATE)  # it costs already: nothing to agree to
    assert result.returncode == 0, result.stderr
    assert "exists already" in result.stdout
    assert not rented.calls("create")


@pytest.mark.parametrize(("pool", "found"), [("v5e-8x8", "a v5e:8x8"), ("-", "a node pool of others")])
def test_create_of_what_exists_as_something_else_is_refused(cluster, pool, found):
    cluster.rent(pool)
    result = cluster.launch(*CREATE, "--yes")
    assert result.returncode == 2
    assert f"exists as {found}" in result.stderr


QUOTA = 'ResponseError: code=403, message=Insufficient quota to satisfy the request: resource "TPU_V5E" is short 16.0.'


@pytest.mark.parametrize("message", [QUOTA, "ResponseError: code=403, message=Required permission is missing."])
def test_a_final_refusal_is_told_and_not_asked_again(cluster, message):
    cluster.fault("create", message=message, times=99)
    result = cluster.launch(*CREATE, "--yes")
    assert result.returncode == 1
    assert len(cluster.calls("create")) == 1
    assert message in result.stderr
    assert "gcloud refused to create my-slice" in result.stderr
    assert not cluster.calls("delete")


@pytest.mark.parametrize("state", ["ERROR", "RUNNING_WITH_ERROR"])
@pytest.mark.parametrize("flags", [[], ["--delete-on-failure"]])
def test_a_slice_that_does_not_come_up_says_why_and_is_deleted_only_if_so_asked(cluster, state, flags):
    with cluster.google() as google:
        google.update(next_states=[["PROVISIONING", state]], message="Quota 'TPU' exceeded. Limit: 0.0")
    result = cluster.launch(*CREATE, "--yes", *flags)
    assert result.returncode == 1
    assert "did not come up: Quota 'TPU' exceeded. Limit: 0.0" in result.stderr
    assert cluster.calls("node-pools", "delete") == [pools("delete", "my-slice")] * len(flags)
    assert ("my-slice: deleted" in result.stdout) == bool(flags)


def test_waiting_is_bounded(cluster):
    with cluster.google() as google:
        google["next_states"] = [["PROVISIONING"]]
    result = cluster.launch(*CREATE, "--yes", WAIT_SECONDS="0")
    assert result.returncode == 1
    assert "still PROVISIONING after 0 s" in result.stderr


BUSY = [
    "ResponseError: code=503, message=The service is currently unavailable.",
    "ResponseError: code=429, message=Quota exceeded for quota metric 'Write requests'.",
    "ResponseError: code=400, message=Cluster is running incompatible operation operation-1-2.",
]


@pytest.mark.parametrize("message", BUSY)
def test_a_busy_google_is_asked_again_after_twice_the_delay_each_time(cluster, message):
    cluster.fault("create", message=message, times=3)
    result = cluster.launch(*CREATE, "--yes", RETRY_SECONDS="7")
    assert result.returncode == 0, result.stderr
    assert cluster.sleeps() == ["7", "14", "28"]


@pytest.mark.parametrize("verb", ["create", "delete"])
def test_a_request_that_came_through_although_its_answer_was_lost_is_ours(cluster, verb):
    if verb == "delete":
        cluster.rent()
    cluster.fault("node-pools", verb, message=BUSY[0], carried_out=True)
    result = cluster.launch(verb, "my-slice", *(CREATE[2:] if verb == "create" else ()), "--yes")
    assert result.returncode == 0, result.stderr
    assert len(cluster.calls("node-pools", verb)) == 2


def test_delete_ends_the_run_first_and_takes_its_secrets_along(rented):
    result = rented.launch("delete", "my-slice", "--yes")
    assert result.returncode == 0, result.stderr
    jobset = ["jobset", "my-slice", "--ignore-not-found", "--cascade=foreground", "--timeout=20s"]
    assert rented.calls("delete") == [
        ["kubectl", "delete", *jobset, "--namespace=default"],
        ["kubectl", "delete", "secret", "my-slice-secrets", "--ignore-not-found", "--namespace=default"],
        pools("delete", "my-slice"),
    ]
    assert result.stdout == "my-slice: deleted\n"


def test_delete_with_nobody_to_ask_leaves_the_run_alone(rented):
    result = rented.launch("delete", "my-slice")
    assert result.returncode == 2
    assert not rented.calls("delete")


@pytest.mark.parametrize("what", ["kubectl", "get-credentials"])
def test_a_cluster_that_does_not_answer_does_not_keep_the_slice(rented, what):
    rented.fault(what, message="(Forbidden): no", times=99)
    result = rented.launch("delete", "my-slice", "--yes")
    assert result.returncode == 0, result.stderr
    assert "the run could not be ended first" in result.stdout
    assert rented.calls("node-pools", "delete")


@pytest.mark.parametrize(("states", "said"), [(None, "no such slice"), (["STOPPING"], "is being deleted already")])
def test_what_is_gone_or_going_is_not_deleted_again(cluster, states, said):
    if states:
        cluster.rent()
        with cluster.google() as google:
            google["states"] = states
    result = cluster.launch("delete", "my-slice")
    assert result.returncode == 0, result.stderr
    assert said in result.stdout
    assert not cluster.calls("node-pools", "delete")


@pytest.mark.parametrize("words", [("delete", "my-slice", "--yes"), ("run", "my-slice", "pretrain")])
def test_a_node_pool_of_others_is_left_alone(cluster, words):
    cluster.rent("-")
    result = cluster.launch(*words)
    assert result.returncode == 2
    assert "was not created by gke.sh" in result.stderr
    assert [call[3] for call in cluster.calls()] == ["list"]


def test_a_deletion_that_fails_says_that_it_costs(rented):
    rented.fault("node-pools", "delete", message="ResponseError: code=403, message=no", times=99)
    result = rented.launch("delete", "my-slice", "--yes")
    assert result.returncode == 1
    assert "NOT deleted" in result.stderr


def test_a_cluster_that_is_not_there_is_not_a_slice_that_is_not_there(cluster):
    cluster.fault("list", message="ResponseError: code=404, message=Not found: clusters/my-cluster.", times=9)
    result = cluster.launch(*CREATE, "--yes")
    assert result.returncode == 1
    assert "is that its LOCATION?" in result.stderr
    assert not cluster.calls("create")


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["setup", "my-slice"], {}, "no command 'setup'"),
        (["run"], {}, "needs the NAME"),
        (["delete", "--all"], {}, "needs the NAME"),
        (["delete", "a b; rm -rf $HOME"], {}, "needs the NAME"),
        (["delete", "a" * 41], {}, "needs the NAME"),
        (["run", "my-slice", "--", "evaluate"], {}, "pretrain or finetune"),
        (["run", "my-slice", "pretrain"], {"IMAGE": ""}, "set IMAGE"),
        (["run", "my-slice", "pretrain", b"\xff"], {}, "UTF-8"),
        (["create", "my-slice"], {}, "--topology"),
        (["create", "my-slice", "--topology"], {}, "--topology"),
        (["create", "my-slice", "--topology", "v5e:4x4x4"], {}, "found 'v5e:4x4x4'"),
        (["create", "my-slice", "--topology", "v4:4x4"], {}, "found 'v4:4x4'"),
        (["create", "my-slice", "--topology", "v5e:4x3"], {}, "expected one of 1x1"),
        (["create", "my-slice", "--topology", "v6e:8x4"], {}, "expected one of 1x1"),
        (["create", "my-slice", "--topology", "v4:2x4x2"], {}, "expected 2x2x1, 2x2x2, 2x2x4, 2x4x4, or AxBxC"),
        (["create", "my-slice", "--topology", "v5p:4x4x6"], {}, "multiples of 4, A <= B <= C, of at most 6144 chips"),
        (["create", "my-slice", "--topology", "v5p:8x4x4"], {}, "A <= B <= C"),
        (["create", "my-slice", "--topology", "v4:16x16x20"], {}, "of at most 4096 chips"),
        (["create", "my-slice", "--topology", "tpu7x:4x2x1"], {}, "expected 2x2x1, 2x2x2"),
        (["create", "my-slice", "--topology", "tpu7x:2x2x1"], {}, "no list price of tpu7x is known: set PRICE"),
        (["create", "my-slice", "--topology", "v5e:4x4", "--workdir", "a"], {}, "since 4 hosts write to it"),
        (["create", "my-slice", "--topology", "v5e:1x2"], {}, "expected one of 1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"),
        (["create", "my-slice", "--topology", "v5e:4x4", "--node-labels=a=b"], {}, "found '--node-labels=a=b'"),
        (["create", "my-slice", "--topology", "v5e:4x4"], {"PRICE": "cheap"}, "found 'cheap'"),
        (["stop", "my-slice"], {"CLUSTER": ""}, "set CLUSTER"),
        (["stop", "my-slice", "--cluster", "--yes"], {}, "found '--yes'"),
        (["logs", "my-slice"], {"ZONE": ""}, "set ZONE"),
        (["logs", "my-slice", "all"], {}, "number of a host"),
        (["stop", "my-slice", "now"], {}, "did not expect 'now'"),
        (["run", "my-slice", "pretrain"], {"SECRETS": "KEY=hush"}, "names of variables"),
    ],
)
def test_what_does_not_fit_is_one_line_and_asks_nothing_of_google(cluster, arguments, environment, message):
    result = cluster.launch(*arguments, **environment)
    assert result.returncode == 2
    assert message in result.stderr
    assert "hush" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert not cluster.calls()


def test_help_names_every_command(cluster):
    result = cluster.launch("--help")
    assert result.returncode == 0
    for verb in ("create", "run", "logs", "watch", "stop", "delete"):
        assert f"launch/gke.sh {verb} " in result.stdout


def test_shellcheck_has_no_complaint():
    shellcheck = os.path.join(os.path.dirname(sys.executable), "shellcheck")
    command = [shellcheck, "--external-sources", "--check-sourced", "-P", "SCRIPTDIR", LAUNCH / "gke.sh"]
    subprocess.run(command, check=True)
