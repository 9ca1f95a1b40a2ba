"""launch/gke, launch/skypilot.yaml and launch/Containerfile: the same command as anywhere, and its restarts."""

import math
import re
import shlex
import tomllib

import pytest
import yaml
from cloud import LAUNCH, ROOT

from bert_jax.cli import build_parser
from bert_jax.recipes.shipped import recipe_names
from bert_jax.serving.app import APIS


@pytest.fixture(scope="module")
def jobset():
    return yaml.safe_load((LAUNCH / "gke" / "jobset.yaml").read_text())


@pytest.fixture(scope="module")
def job(jobset):
    [replicated] = jobset["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1, "one slice"
    return replicated["template"]["spec"]


@pytest.fixture(scope="module")
def pod(job):
    return job["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod):
    [container] = pod["containers"]
    return container


@pytest.fixture(scope="module")
def skypilot():
    return yaml.safe_load((LAUNCH / "skypilot.yaml").read_text())


def test_the_jobset_has_a_pod_for_each_host_of_the_slice(job, pod, container):
    chips = math.prod(map(int, pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x")))
    resources = container["resources"]
    assert resources["limits"] == resources["requests"]
    assert job["parallelism"] == job["completions"] == chips // resources["limits"]["google.com/tpu"] == 4
    assert job["completionMode"] == "Indexed"


def test_other_slices_of_the_readme_add_up():
    rows = re.findall(r"^\| \w+, (\d+) chips \| `(\S+)` \| `(\S+)` \| (\d+) \| (\d+) \|$",
                      (LAUNCH / "gke" / "README.md").read_text(), re.MULTILINE)  # fmt: skip
    assert len(rows) == 8
    for chips, accelerator, topology, hosts, per_host in rows:
        assert math.prod(map(int, topology.split("x"))) == int(chips) == int(hosts) * int(per_host)
        assert accelerator.startswith(("tpu-v", "tpu7x"))


def test_a_pod_that_was_told_to_stop_or_whose_node_is_taken_restarts_all_without_counting(jobset, job, pod, container):
    assert pod["restartPolicy"] == "Never"  # what podFailurePolicy asks for
    assert job["backoffLimit"] == 0
    on_exit, on_condition = job["podFailurePolicy"]["rules"]
    assert on_exit["action"] == on_condition["action"] == "FailJob"
    assert on_exit["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [143]}
    assert on_condition["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    [rule] = jobset["spec"]["failurePolicy"]["rules"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]


def test_a_run_that_fails_otherwise_is_not_restarted_for_ever(jobset, skypilot):
    assert 0 < jobset["spec"]["failurePolicy"]["maxRestarts"] < 10
    assert 0 <= skypilot["resources"]["job_recovery"]["max_restarts_on_errors"] < 10


def test_there_is_time_to_save(pod):
    assert pod["terminationGracePeriodSeconds"] >= 60


def test_secrets_come_from_a_secret(container, skypilot):
    assert container["envFrom"] == [{"secretRef": {"name": "bert-jax-secrets", "optional": True}}]
    assert "env" not in container
    assert all(value is None for value in skypilot["secrets"].values()), "a value would be committed"
    for text in (" ".join(container["args"]), skypilot["run"], skypilot["setup"]):
        assert not re.search("KEY|TOKEN", text)


def test_skypilot_recovers_from_preemption_and_from_143(skypilot):
    resources = skypilot["resources"]
    assert resources["use_spot"] is True
    assert resources["job_recovery"]["recover_on_exit_codes"] == [143]


def test_all_start_the_very_same_command(container, skypilot):
    program, *words = shlex.split(skypilot["run"].replace("\\\n", ""))
    assert program.endswith("/bert-jax")
    assert words == container["args"]
    parser, _ = build_parser()
    args, unknown = parser.parse_known_args(words)
    assert args.distributed
    assert args.workdir.startswith("gs://")
    assert args.config in recipe_names()
    assert all(word.startswith("--config.") for word in unknown)


def test_the_image_is_the_one_that_the_containerfile_and_the_readme_build(container):
    for path in (LAUNCH / "Containerfile", LAUNCH / "gke" / "README.md"):
        assert f"--tag {container['image']} ." in path.read_text(), path


def test_the_containerfile_installs_this_package_and_starts_it_without_a_shell(container):
    text = (LAUNCH / "Containerfile").read_text()
    instructions = dict(line.split(" ", 1) for line in text.splitlines() if re.match("[A-Z]+ ", line))
    assert instructions["ENTRYPOINT"] == '["bert-jax"]'
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"EXTRAS=(\S+)", text)
    assert len(extras) == 3
    assert all(extra in project["optional-dependencies"] for word in extras for extra in word.split(","))
    for words in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        for source in words.split()[:-1]:
            assert (ROOT / source).exists(), source
    copied = {word for words in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in words.split()[:-1]}
    assert copied >= {"setup.py", "pyproject.toml", "bert_jax", "configs"}, "what the package is built from"


def test_the_server_s_deployment_has_probes_and_time_to_stop():
    deployment, service = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    template = deployment["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    args = build_parser()[0].parse_args(container["args"])
    assert args.host == "0.0.0.0" and args.models[0].startswith(container["volumeMounts"][0]["mountPath"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": args.port} and service["spec"]["ports"][0]["targetPort"] == "http"
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    public = {api.path for api in APIS if api.public and api.method == "GET"}
    assert all(probe["path"] in public and probe["port"] == "http" for probe in probes.values())
    assert probes["readiness"]["path"] == "/health" != probes["liveness"]["path"]  # alive while it compiles
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > sleep + args.stop_timeout
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(args.port)
