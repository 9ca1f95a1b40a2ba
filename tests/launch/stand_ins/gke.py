"""Stands for `gcloud container` and for `kubectl`: keeps one node pool, one JobSet and one secret.

In the folder above its own: google.json (what the tests arrange and look at; see cloud.py) and calls.jsonl.
"""

import contextlib
import fcntl
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(__file__).name
CALL = [PROGRAM, *sys.argv[1:]]
FLAGS = dict(word[2:].split("=", 1) for word in CALL if word.startswith("--") and "=" in word)


@contextlib.contextmanager
def google():
    """What Google and Kubernetes know."""
    with open(ROOT / "google.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = json.loads((ROOT / "google.json").read_text())
        yield known
        (ROOT / "google.json").write_text(json.dumps(known))


def arranged_fault(known):
    """The first of the faults that the test arranged for a call such as this."""
    for fault in known["faults"]:
        if fault["times"] and all(word in CALL for word in fault["on"]):
            fault["times"] -= 1
            known["states"] = fault["states"] or known["states"]
            return fault
    return None


def gcloud(known):
    group, verb, name = CALL[2:5]
    if group == "resource-policies":
        name = CALL[5] if verb == "create" else name
        if (name in known["policies"]) == (verb == "create"):
            return (
                f"The resource '{name}' already exists" if verb == "create" else f"The resource '{name}' was not found"
            )
        known["policies"] = [name] if verb == "create" else []
        return None
    if group == "clusters":
        context = {"name": name, "context": {"cluster": name}}
        Path(os.environ["KUBECONFIG"]).write_text(json.dumps({"contexts": [context], "current-context": name}))
    elif verb == "create":
        if known["pool"]:
            return f"ResponseError: code=409, message=Already exists: nodePools/{name}."
        known["pool"] = FLAGS["node-labels"].removeprefix("bert_jax_slice=")
        known["states"] = known["next_states"].pop(0) if known["next_states"] else ["RUNNING"]
    elif not known["pool"]:
        return None if verb == "list" else f"ResponseError: code=404, message=Not found: nodePools/{name}."
    elif verb == "list":
        state, *rest = known["states"]
        print(state, known["pool"].strip("-"), *known["scheduling"], known["message"], sep="|")
        known["states"] = rest or [state]
    elif verb == "delete":
        known["pool"] = None
    return None


def patched(document, patch):
    """JSON Patch, as far as it replaces what is there and adds to it."""
    for change in patch:
        *parents, last = [part.replace("~1", "/") for part in change["path"].split("/")[1:]]
        place = document
        for part in parents:
            place = place[int(part) if isinstance(place, list) else part]
        assert (last in place) == (change["op"] == "replace"), change
        place[last] = change["value"]
    return document


def fill_in():
    import yaml

    document = yaml.safe_load(Path(FLAGS["filename"]).read_text())
    print(json.dumps(patched(document, json.loads(Path(FLAGS["patch-file"]).read_text()))))


def get(known):
    kind = CALL[2]
    if kind == "serviceaccount":
        return None if CALL[3] in known["accounts"] else f'(NotFound): serviceaccounts "{CALL[3]}" not found'
    if kind == "pods":
        if FLAGS["output"] == "name":
            print("\n".join(known["pods"]) if known["jobset"] else "")
        else:
            print(known["deaths" if "field-selector" in FLAGS else "waits"], end="")
        return None
    if known["jobset"]:
        stand, *rest = known["stands"]
        known["stands"] = rest or [stand]
        if stand == "gone":
            return None
        keys = ("deleted", "terminal", "suspended", "ready", "restarts", "failures", "run", "message")
        run = {"run": known["jobset"]["metadata"]["annotations"]["bert-jax-run"]}
        print("|".join((run | stand).get(key, "") for key in keys), end="")
    return None


def apply(known):
    document = json.loads(Path(FLAGS["filename"]).read_text())
    kind = document["kind"].lower()
    if kind == "jobset" and known["jobset"] not in (None, document):
        return "(Forbidden): field is immutable"
    known[kind] = document
    if kind == "secret":
        known["mode"] = os.stat(FLAGS["filename"]).st_mode & 0o777
    return None


def kubectl(known):
    verb = CALL[1]
    if verb == "patch":
        return fill_in()
    if "context" not in FLAGS and not Path(os.environ.get("KUBECONFIG", "none")).is_file():
        return "(Forbidden): the context of the user is none of ours"
    if verb == "get":
        return get(known)
    if verb == "apply":
        return apply(known)
    if verb == "delete":
        known[CALL[2]] = None
    if verb == "logs":
        print(f"the log of {CALL[-2]}" if "--follow" in CALL else f"the log of {CALL[2]}")
    return None


def main():
    with google() as known:
        with open(ROOT / "calls.jsonl", "a") as log:
            log.write(json.dumps(CALL) + "\n")
        fault = arranged_fault(known)
        carried_out = not fault or not fault["status"] or fault["carried_out"]
        refusal = (gcloud if PROGRAM == "gcloud" else kubectl)(known) if carried_out else None
    if fault and fault["status"]:
        refusal = fault["message"]
    if refusal:
        print(f"ERROR: (gcloud) {refusal}" if PROGRAM == "gcloud" else f"Error from server {refusal}", file=sys.stderr)
        sys.exit(1)


main()
