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
    for resource in known["listed"].get(kind, []):
        assert set(resource) <= set(keys), f"{set(resource) - set(keys)} is not asked for"
        print("|".join(resource.get(key, "") for key in keys))


def queued_resources(known):
    here = known["states"] if known["type"] else []
    if VERB == "create":
        if here:
            return "ALREADY_EXISTS: the queued resource exists"
        known["type"] = FLAGS["accelerator-type"]
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
        known["type"] = None
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
    if CALL[0] == "storage":
        storage(CALL[1:])
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
