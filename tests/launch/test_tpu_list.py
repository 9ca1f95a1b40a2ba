"""launch/tpu.sh list: each slice of a project, in all zones, with its age and what it costs."""

import datetime
import re

import pytest

HEADER = ["NAME", "ZONE", "TYPE", "TERMS", "STATE", "AGE", "USD/HOUR", "USD SO FAR"]


def ago(hours, offset=0):
    """A time so long ago, as Google writes it, in a zone so many hours from UTC."""
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours)
    if not offset:
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return moment.astimezone(datetime.timezone(datetime.timedelta(hours=offset))).isoformat(timespec="milliseconds")


def node(name, zone, accelerator, hours, state="READY", **more):
    path = f"projects/my-project/locations/{zone}"
    known = {"name": f"{path}/nodes/{name}", "acceleratorType": accelerator, "state": state, "createTime": ago(hours)}
    return known | {"queuedResource": f"{path}/queuedResources/{name}"} | more


def request(name, zone, accelerator, hours, state="ACTIVE", **more):
    known = {"name": f"projects/my-project/locations/{zone}/queuedResources/{name}", "state.state": state}
    return known | {"createTime": ago(hours), "tpu.nodeSpec[0].node.acceleratorType": accelerator} | more


def machine(name, zone, kind, hours, pool="", model="STANDARD", state="RUNNING", offset=-7):
    known = {"name": name, "zone.basename()": zone, "machineType.basename()": kind, "status": state}
    known |= {"creationTimestamp": ago(hours, offset), "scheduling.provisioningModel": model}
    return known | {"labels.goog-k8s-node-pool-name": pool}


def listed(cloud, nodes=(), requests=(), machines=(), **environment):
    """The rows of `list`, by name, and its last line."""
    with cloud.google() as google:
        google["listed"] = {"tpu-vm": nodes, "queued-resources": requests, "instances": machines}
    result = cloud.launch("list", ZONE="", **environment)
    assert result.returncode == 0, result.stderr
    header, *lines, last = result.stdout.splitlines()
    rows = [re.split(r"\s{2,}", line) for line in [header, *lines]]
    assert rows[0] == HEADER and all(len(row) == 8 for row in rows), result.stdout
    assert len({row[0] for row in rows}) == len(rows), result.stdout
    return {row[0]: [*row[1:-1], float(row[-1]) if row[-1] not in "?-" else row[-1]] for row in rows[1:]}, last


def usd(amount):
    """An amount, to what it grows by while the command runs."""
    return pytest.approx(amount, abs=0.25)


def test_each_slice_of_each_zone_with_its_age_and_cost(cloud):
    nodes = [
        node("one", "us-west4-a", "v5litepod-16", 1.505, **{"schedulingConfig.spot": "True"}),
        node("two", "europe-west4-b", "v6e-8", 50.01),
        node("three", "us-central2-b", "v4-32", 0.2551, **{"schedulingConfig.preemptible": "True"}),
    ]
    rows, last = listed(cloud, nodes)
    assert rows == {
        "one": ["us-west4-a", "v5litepod-16", "spot", "READY", "1 h 30 min", "9.60", usd(14.45)],  # 16 x 0.60, x 1.505
        "two": ["europe-west4-b", "v6e-8", "on demand", "READY", "2 d 2 h", "21.60", usd(1080.22)],  # 8 x 2.70, x 50.01
        "three": ["us-central2-b", "v4-32", "spot", "READY", "15 min", "14.88", usd(3.80)],  # 16 x 0.93, x 0.2551
    }
    assert last == "in all 46.08 USD an hour (list prices)"
    assert [call[:5] for call in cloud.calls()] == [
        ["compute", "tpus", "tpu-vm", "list", "--zone=-"],
        ["compute", "tpus", "queued-resources", "list", "--zone=-"],
        ["compute", "instances", "list", cloud.calls("instances")[0][3], "--quiet"],
    ]


@pytest.mark.parametrize(
    ("accelerator", "more", "terms"),
    [
        ("v2-8", {}, "on demand"),
        ("v5litepod-12", {}, "on demand"),
        ("v9z-16", {}, "on demand"),
        ("", {}, "on demand"),
        ("v5litepod-16", {"schedulingConfig.reserved": "True"}, "reserved"),
    ],
)
def test_what_has_no_list_price_shows_none(cloud, accelerator, more, terms):
    nodes = [node("strange", "us-west4-a", accelerator, 3, **more), node("usual", "us-west4-a", "v5litepod-4", 1)]
    if not accelerator:
        nodes[0]["acceleratorType"] = "-"
    rows, last = listed(cloud, nodes)
    assert rows["strange"][2:] == [terms, "READY", "3 h 0 min", "?", "?"]
    assert rows["usual"][-2:] == ["4.80", usd(4.80)]
    assert "at least 4.80 USD an hour" in last and "?" in last


def test_flex_start_is_told_by_the_request_or_by_what_create_was_given_here(cloud):
    flags = ("--provisioning-model=flex-start", "--max-run-duration=4h", "--yes", "--type=v5litepod-4")
    assert cloud.launch("create", "mine", *flags).returncode == 0
    nodes = [node(name, "us-west4-a", "v5litepod-4", 1) for name in ("mine", "theirs", "other")]
    requests = [request("theirs", "us-west4-a", "v5litepod-4", 2, provisioningModel="FLEX_START")]
    rows, _ = listed(cloud, nodes, requests)
    assert {name: (row[2], row[-2]) for name, row in rows.items()} == {
        "mine": ("flex-start", "?"), "theirs": ("flex-start", "?"), "other": ("on demand", "4.80"),
    }  # fmt: skip


@pytest.mark.parametrize("state", ["CREATING", "STOPPED", "PREEMPTED", "DELETING"])
def test_what_is_not_ready_costs_nothing(cloud, state):
    rows, last = listed(cloud, [node("one", "us-west4-a", "v5litepod-16", 3, state=state)])
    assert rows["one"][3:] == [state, "3 h 0 min", "0.00", "-"]
    assert last == "in all 0.00 USD an hour (list prices)"


def test_a_request_that_waits_is_listed_and_one_whose_slice_is_there_once(cloud):
    requests = [
        request("here", "us-west4-a", "v5litepod-16", 5),
        request("waits", "us-east5-a", "v6e-16", 5, state="WAITING_FOR_RESOURCES"),
    ]
    rows, _ = listed(cloud, [node("here", "us-west4-a", "v5litepod-16", 1)], requests)
    assert rows["here"][4] == "1 h 0 min"
    assert rows["waits"] == ["us-east5-a", "v6e-16", "on demand", "WAITING_FOR_RESOURCES", "5 h 0 min", "0.00", "-"]


def test_the_hosts_of_a_node_pool_are_one_slice(cloud):
    hosts = [machine(f"gke-{i}", "us-west4-a", "ct5lp-hightpu-4t", hours, pool="my-pool", model="SPOT")
             for i, hours in enumerate([2, 2, 2, 0.5])]  # fmt: skip
    others = [
        machine("gke-t", "us-central1-c", "tpu7x-standard-4t", 1, pool="ironwood"),
        machine("half", "us-west1-c", "ct5lp-hightpu-8t", 30, offset=0),
        machine("down", "us-west1-c", "ct6e-standard-1t", 4, state="TERMINATED"),
        machine("no-tpu", "us-west1-c", "n2-standard-4", 4),
    ]
    rows, last = listed(cloud, machines=hosts + others)
    assert rows == {
        # 4 hosts of 4 chips at 0.60: three for 2 hours, one for half an hour
        "my-pool": ["us-west4-a", "ct5lp-hightpu-4t x 4", "spot", "4 RUNNING", "2 h 0 min", "9.60", usd(15.60)],
        "ironwood": ["us-central1-c", "tpu7x-standard-4t x 1", "on demand", "1 RUNNING", "1 h 0 min", "?", "?"],
        "half": ["us-west1-c", "ct5lp-hightpu-8t x 1", "on demand", "1 RUNNING", "1 d 6 h", "9.60", usd(288.00)],
        "down": ["us-west1-c", "ct6e-standard-1t x 1", "on demand", "0 RUNNING", "4 h 0 min", "0.00", "-"],
    }
    assert last.startswith("in all at least 19.20 USD an hour")


@pytest.mark.parametrize("day", ["2023-12-31", "2024-02-29", "2024-03-01", "2025-01-01", "2000-02-28"])
def test_ages_count_leap_days(cloud, day):
    created = datetime.datetime.fromisoformat(f"{day}T23:30:00+00:00")
    age = datetime.datetime.now(datetime.UTC) - created
    rows, _ = listed(cloud, [node("old", "us-west4-a", "v5litepod-1", 1, createTime=f"{day}T23:30:00.123456789Z")])
    assert rows["old"][4] == f"{age.days} d {age.seconds // 3600} h"


def test_nothing_is_nothing(cloud):
    result = cloud.launch("list", PROJECT="my-project")
    assert result.returncode == 0 and result.stdout.startswith("nothing is rented"), result.stderr
    assert all(call[-1] == "--project=my-project" for call in cloud.calls())


@pytest.mark.parametrize(("group", "missing"), [("instances", "Compute Engine and GKE"), ("tpu-vm", "Cloud TPU")])
def test_what_google_does_not_tell_is_said_and_the_rest_is_shown(cloud, group, missing):
    with cloud.google() as google:
        google["listed"] = {
            "tpu-vm": [node("one", "us-west4-a", "v5litepod-4", 1)],
            "instances": [machine("two", "us-west4-a", "ct5lp-hightpu-4t", 1)],
        }
    cloud.fault(group, "list", message="PERMISSION_DENIED: not enabled", times=9)
    result = cloud.launch("list")
    assert result.returncode == 1
    assert f"does not tell the slices of {missing}: they are missing" in result.stderr
    assert "PERMISSION_DENIED" in result.stderr
    assert ("one  " in result.stdout, "two  " in result.stdout) == (group != "tpu-vm", group == "tpu-vm")
    with cloud.google() as google:
        google["listed"] = {}
    assert "nothing is rented" not in cloud.launch("list").stdout


def test_a_busy_google_is_asked_again(cloud):
    cloud.fault("tpu-vm", "list", message="HTTPError 503: backend")
    assert listed(cloud, [node("one", "us-west4-a", "v5litepod-4", 1)])[0]


def test_list_takes_no_name(cloud):
    result = cloud.launch("list", "my-slice")
    assert result.returncode == 2 and "did not expect 'my-slice'" in result.stderr
    assert not cloud.calls()
