"""Stands for `gcloud compute tpus`: keeps one slice, and carries ssh and scp out in one home directory per host. Also
stands in for `gcloud storage`, with the emulator at STORAGE_EMULATOR_HOST.

In the folder above its own: google.json (what the tests arrange and look at; see cloud.py), calls.jsonl, host0, ...
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
CALL = sys.argv[1:]
FLAGS = dict(word[2:].split("=", 1) for word in CALL if word.startswith("--") and "=" in word)


WORDS = CALL[1:] if CALL[0] == "alpha" else CALL
GROUP, VERB, NAME = WORDS[2:5] if WORDS[:2] == ["compute", "tpus"] else ("", "", "")


@contextlib.contextmanager
def google():
    """What Google knows; calls come from several processes at once."""
    with open(ROOT / "google.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = json.loads((ROOT / "google.json").read_text())
        yield known
        (ROOT / "google.json").write_text(json.dumps(known))


def of_emulator(method, path, data=None):
    """What the emulator of Cloud Storage answers."""
    import urllib.request  # slow, and most calls do not need it

    request = urllib.request.Request(os.environ["STORAGE_EMULATOR_HOST"] + path, data, method=method)
    request.add_header(
        "Content-Type", "application/json" if path.startswith("/storage") else "application/octet-stream"
    )
    with urllib.request.urlopen(request) as response:
        return response.read()


def split(url):
    bucket, _, name = url.removeprefix("gs://").partition("/")
    return bucket, name


def storage(words):
    """`buckets create` and `cp`."""
    words = [word for word in words if not word.startswith("--")]
    if words[:2] == ["buckets", "create"]:
        of_emulator("POST", "/storage/v1/b?project=p", json.dumps({"name": split(words[2])[0]}).encode())
        return
    *sources, destination = words[1:]
    for source in sources:
        if destination.startswith("gs://"):
            bucket, folder = split(destination)
            name = quote(folder + Path(source).name, safe="")
            of_emulator(
                "POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}", Path(source).read_bytes()
            )
            continue
        bucket, folder = split(source)
        listed = json.loads(of_emulator("GET", f"/storage/v1/b/{bucket}/o?prefix={quote(folder, safe='')}/"))
        for name in (item["name"] for item in listed["items"]):
            path = Path(destination, Path(folder).name, name[len(folder) + 1 :])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(of_emulator("GET", f"/download/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media"))


def account(known):
    """What precedes a slice: login, project, billing, APIs, the bucket's roles. Google refuses another order."""
    have, rest = known["account"], [word for word in CALL if not word.startswith("--")]
    if rest == ["auth", "login"]:
        have["login"] = True
    elif not have["login"]:
        error("You do not currently have an active account selected.")
    elif rest[:2] == ["projects", "create"]:
        have["project"] = rest[2]
    elif rest[:3] == ["config", "set", "project"]:
        have["configured"] = rest[3] == have["project"]
    elif rest[:3] == ["billing", "accounts", "list"]:
        print("012345-6789AB-CDEF01")
    elif rest[:3] == ["billing", "projects", "link"]:
        have["billed"] = rest[3] == have["project"] and FLAGS["billing-account"] == "012345-6789AB-CDEF01"
    elif rest[:2] == ["projects", "describe"]:
        print({"projectNumber": "4711"}[FLAGS["format"].removeprefix("value(").removesuffix(")")])
    elif not (have["configured"] and have["billed"]):
        error("FAILED_PRECONDITION: Billing must be enabled for activation of service")
    elif rest[:2] == ["services", "enable"]:
        have["enabled"] = rest[2:]
    elif rest == ["auth", "application-default", "login"]:
        have["application_default"] = True
    elif rest[:3] == ["storage", "buckets", "add-iam-policy-binding"]:
        of_emulator("GET", f"/storage/v1/b/{split(rest[3])[0]}")  # raises if there is no such bucket
        if "compute.googleapis.com" not in have["enabled"] or not FLAGS["member"].startswith(
            "serviceAccount:4711-compute@"
        ):
            error(f"INVALID_ARGUMENT: Service account {FLAGS['member']} does not exist.")
        have["roles"].append(FLAGS["role"])
    elif f"{'storage' if CALL[0] == 'storage' else 'tpu'}.googleapis.com" not in have["enabled"]:
        error("PERMISSION_DENIED: API has not been used in this project before or it is disabled.")


def error(message, status=1):
    print(f"ERROR: (gcloud.{'.'.join(CALL[:4])}) {message}", file=sys.stderr)
    sys.exit(status)


def arranged_fault(known):
    """The first of the faults that the test arranged for a call such as this."""
    for fault in known["faults"]:
        if fault["times"] and all(word in CALL for word in fault["on"]):
            fault["times"] -= 1
            known["states"] = fault["states"] or known["states"]
            return fault
    return None


def listed(known):
    """What a project has of a kind, in all zones, as `value` of --format prints it."""
    kind = CALL[1] if CALL[1] == "instances" else GROUP
    assert kind == "instances" or FLAGS["zone"] == "-", "one zone alone"
    opening = 'value[separator="|"]('
    assert FLAGS["format"].startswith(opening), FLAGS["format"]
    keys = FLAGS["format"].removeprefix(opening).removesuffix(")").split(",")
    rented = [known["created"]] if kind == "tpu-vm" and known["created"] and known["states"][0] == "ACTIVE" else []
    for resource in known["listed"].get(kind, rented):
        assert set(resource) <= set(keys), f"{set(resource) - set(keys)} is not asked for"
        print("|".join(resource.get(key, "") for key in keys))


def queued_resources(known):
    here = known["states"] if known["type"] else []
    if VERB == "create":
        if here:
            return "ALREADY_EXISTS: the queued resource exists"
        known["type"] = FLAGS["accelerator-type"]
        known["scheduling"] = ["True" if "--spot" in CALL else "", "", ""]
        known["created"] = {
            "name": f"projects/my-project/locations/{FLAGS['zone']}/nodes/{NAME}",
            "acceleratorType": known["type"],
            "state": "READY",
            "createTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "schedulingConfig.spot": known["scheduling"][0],
        }
        known["states"] = known["next_states"].pop(0) if known["next_states"] else ["ACTIVE"]
        for host in range(known["hosts"]):
            shutil.rmtree(ROOT / f"host{host}", ignore_errors=True)
            (ROOT / f"host{host}").mkdir()
    elif not here:
        return f"NOT_FOUND: Resource 'queuedResources/{NAME}' was not found"
    elif VERB == "describe":
        print(here[0], known["type"], sep="\t")
        known["states"] = here[1:] or here
    elif VERB == "delete":
        known["type"] = known["created"] = None
    return None


def tpu_vm(known):
    if not known["type"] or known["states"][0] != "ACTIVE":
        if VERB == "describe":
            error(f"NOT_FOUND: Resource 'nodes/{NAME}' was not found")
        error("[/usr/bin/ssh] exited with return code [255].", 255)
    if VERB == "describe":
        print(known["hosts"], known["type"], *known["scheduling"], sep="|")
        return 0
    home = ROOT / f"host{FLAGS['worker']}"
    if VERB == "scp":
        shutil.copy(CALL[4], home / CALL[5].split(":", 1)[1])
        return 0
    environment = {"HOME": str(home), "PATH": f"{ROOT / 'host_bin'}:{os.environ['PATH']}", "WORKER": FLAGS["worker"]}
    return subprocess.run(["bash", "-c", FLAGS["command"]], env=environment | known["host_environment"]).returncode


def main():
    with google() as known:
        if known["account"]:
            account(known)
    if CALL[0] == "storage" and "add-iam-policy-binding" not in CALL:
        storage(CALL[1:])
    if WORDS[0] != "compute":
        return
    with google() as known:
        with open(ROOT / "calls.jsonl", "a") as log:
            log.write(json.dumps(CALL) + "\n")
        fault = arranged_fault(known)
        carried_out = not fault or not fault["status"] or fault["carried_out"]
        if carried_out and "list" in CALL[:4]:
            listed(known)
            carried_out = False
        refusal = queued_resources(known) if carried_out and GROUP == "queued-resources" else None
    status = tpu_vm(known) if carried_out and GROUP == "tpu-vm" else 0
    if fault and fault["status"]:
        error(fault["message"], fault["status"])
    if refusal:
        error(refusal)
    sys.exit(status)


main()
