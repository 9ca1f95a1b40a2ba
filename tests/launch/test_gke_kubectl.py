"""What launch/gke.sh asks of kubectl means to the real one what it means to its stand-in. No cluster is needed."""

import http.server
import json
import shutil
import subprocess
import threading

import pytest
from cloud import LAUNCH

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(not KUBECTL, reason="kubectl is not installed")

JOBSET = {
    "metadata": {"name": "my-slice", "annotations": {"bert-jax-run": "12-3"}},
    "spec": {"suspend": False},
    "status": {
        "restarts": 2,
        "restartsCountTowardsMax": 1,
        "terminalState": "Failed",
        "replicatedJobsStatus": [{"name": "slice", "ready": 1}],
        "conditions": [{"type": "Completed", "message": "no"}, {"type": "Failed", "message": "boom"}],
    },
}


def pod(name, host, status):
    labels = {"batch.kubernetes.io/job-completion-index": host}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}, "status": status}


EVICTED = pod("pod-c", "2", {"reason": "Evicted", "conditions": [{"type": "PodScheduled", "status": "True"}]})
FAILED = pod(
    "pod-b", "1", {"containerStatuses": [{"state": {"terminated": {"exitCode": 2, "finishedAt": "2026-01-01"}}}]}
)
PULLING = pod("pod-a", "0", {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]})
NOWHERE = pod("pod-d", "3", {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]})

GROUP = {"groupVersion": "jobset.x-k8s.io/v1alpha2", "version": "v1alpha2"}


def resource(plural, kind):
    return {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": ["get", "list"]}


def resources(version, *known):
    return {"kind": "APIResourceList", "groupVersion": version, "resources": [resource(*each) for each in known]}


ANSWERS = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": resources("v1", ("pods", "Pod")),
    "/apis": {
        "kind": "APIGroupList",
        "groups": [{"name": "jobset.x-k8s.io", "versions": [GROUP], "preferredVersion": GROUP}],
    },
    "/apis/jobset.x-k8s.io/v1alpha2": resources(GROUP["groupVersion"], ("jobsets", "JobSet")),
    "/api/v1/namespaces/default/pods": {
        "kind": "PodList", "apiVersion": "v1", "items": [EVICTED, FAILED, PULLING, NOWHERE],
    },
    "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/my-slice": {
        "kind": "JobSet", "apiVersion": GROUP["groupVersion"], **JOBSET,
    },
}  # fmt: skip
NOT_FOUND = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


class Kubernetes(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = ANSWERS.get(self.path.split("?")[0], NOT_FOUND)
        body = json.dumps(answer).encode()
        self.send_response(404 if answer is NOT_FOUND else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kubernetes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = {"HOME": str(tmp_path_factory.mktemp("home")), "KUBECONFIG": "/dev/null"}
    where = f"--server=http://127.0.0.1:{server.server_port}"

    def ask(template, *words):
        """The answer to a `get` by one of the templates of gke/watch.sh."""
        source = f'source {LAUNCH}/gke/watch.sh; printf %s "${template}"'
        path = subprocess.run(["bash", "-c", source], capture_output=True, text=True, check=True).stdout
        command = [KUBECTL, where, "get", *words, f"--output=jsonpath={path}"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout

    yield ask
    server.shutdown()


def test_how_a_run_stands(kubectl):
    assert kubectl("facts", "jobset", "my-slice", "--ignore-not-found") == "|Failed|false|1|2|1|12-3|boom"


def test_a_run_that_is_not_there_is_nothing(kubectl):
    assert kubectl("facts", "jobset", "other", "--ignore-not-found") == ""


def test_for_what_pods_wait(kubectl):
    assert kubectl("waits", "pods", "--selector=a=b").split() == ["ImagePullBackOff", "Unschedulable"]


def test_of_what_pods_died(kubectl):
    dead, failed, *_ = kubectl("deaths", "pods", "--selector=a=b", "--field-selector=status.phase=Failed").splitlines()
    assert dead == "|2||Evicted|pod-c"
    assert failed == "2026-01-01|1|2||pod-b"
