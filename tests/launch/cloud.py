"""A cloud of one slice for launch/tpu.sh and launch/gke.sh: stand-ins on PATH, and what they were asked and did."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "launch"
STAND_INS = Path(__file__).parent / "stand_ins"
HOST_SCRIPT = (LAUNCH / "tpu" / "host.sh").read_text().rstrip("\n")

# Arguments that a launcher which does not quote would change.
HOSTILE = ["a b", "it's", 'say "no"', "$HOME", "`id`", "*", "", "two\nlines", "--yes", "back\\slash", "; exit 7", "ü"]

SCRATCH = re.compile(r"/\S*/tmp\.\w+")

# The images' python3, of which setup uses `-m pip`, `-m uv venv` and `-m uv pip install`.
PYTHON3 = """#!/bin/bash
echo "$@" >>~/python3.log
if [[ "$*" == *"uv pip install"* ]]; then
  mkdir -p ~/bert_jax_env/bin
  cp {root}/installed/* ~/bert_jax_env/bin
fi
"""
# Short, but for the time in which a run settles: that is over when the stand-ins for bert-jax have settled.
SETTLE_SECONDS = "11"
SLEEP = """#!/bin/bash
echo "$1" >>{root}/sleeps
[[ $1 == {settle} ]] || exec /bin/sleep 0.05
for run in {root}/host*/bert_jax_run; do
  for attempt in {{1..1000}}; do
    [[ ! -e $run/status && "$(cat "$run/settled" 2>/dev/null)" != "$(cat "$run/pid")" ]] || break
    /bin/sleep 0.02
  done
done
"""


class Cloud:
    """A slice that nobody has rented yet, of two hosts."""

    script = "tpu.sh"
    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(self, root: Path):
        self.root = root
        self.program("bin/gcloud", (STAND_INS / "gcloud.py").read_text(), python=True)
        for name in ("sbatch", "srun", "scontrol"):
            self.program(f"bin/{name}", (STAND_INS / "sbatch.py").read_text(), python=True)
        self.program("bin/sleep", SLEEP.format(root=root, settle=SETTLE_SECONDS))
        self.program("host_bin/python3", PYTHON3.format(root=root))
        self.program("installed/python", "#!/bin/bash\n")
        self.program("installed/bert-jax", f'#!/bin/bash\nexec {sys.executable} -IS {root}/bin/bert_jax.py "$@"\n')
        self.program("bin/bert_jax.py", (STAND_INS / "bert_jax.py").read_text(), python=True)
        google = {"type": None, "states": [], "next_states": [], "hosts": 2, "faults": [], "host_environment": {}}
        # Whether a slice that is there is on spot, preemptible, reserved; and what the project has in all zones.
        google |= {"scheduling": ["", "", ""], "listed": {}, "created": None, "account": None}
        (root / "google.json").write_text(json.dumps(google))

    def program(self, name, text, python=False):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable} -IS\n{text}" if python else text)
        path.chmod(0o755)

    @contextlib.contextmanager
    def google(self):
        """What the stand-in for Google knows, to look at and to change."""
        with open(self.root / "google.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = json.loads((self.root / "google.json").read_text())
            yield known
            (self.root / "google.json").write_text(json.dumps(known))

    def fault(self, *on, status=1, message="INTERNAL", times=1, carried_out=False, states=None):
        """So many of the next calls with these words fail so, carried out or not; or only bring the slice to states."""
        fault = {"on": on, "status": status, "message": message, "times": times}
        with self.google() as known:
            known["faults"].append(fault | {"carried_out": carried_out, "states": states})

    def rent(self, hosts=2, installed=True):
        """A slice that is there, on which `setup` has been run."""
        with self.google() as known:
            known.update(type="v5litepod-16", states=["ACTIVE"], hosts=hosts)
        for host in range(hosts):
            self.home(host).mkdir()
            if installed:
                (self.home(host) / "bert_jax").mkdir()
                shutil.copytree(self.root / "installed", self.home(host) / "bert_jax_env" / "bin")

    def runs_do(self, *words, host=None):
        """What successive runs do, on one host or on all; see stand_ins/bert_jax.py."""
        for each in range(8) if host is None else [host]:
            (self.root / f"runs{each}.json").write_text(json.dumps(words))

    def _command(self, arguments, environment):
        env = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.root),
            "TMPDIR": tempfile.gettempdir(),
            "ZONE": "us-west4-a",
            "POLL_SECONDS": "1",
            "SETTLE_SECONDS": SETTLE_SECONDS,
            "STOP_SECONDS": "20",
        }
        env |= self.environment | environment
        return {"args": [str(LAUNCH / self.script), *arguments], "env": env, "text": True}

    def launch(self, *arguments, stdin=subprocess.DEVNULL, timeout=60, **environment):
        return subprocess.run(
            **self._command(arguments, environment), capture_output=True, timeout=timeout, stdin=stdin
        )

    def begin(self, *arguments, **environment):
        """As `launch`, but goes on meanwhile, in a process group of its own; see `said`."""
        with open(self.root / "said", "w") as said:
            return subprocess.Popen(
                **self._command(arguments, environment),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def sbatch(self, *words, timeout=60, **environment):
        """Submits launch/slurm.sh to a Slurm whose nodes have `bert-jax` on PATH, and waits until it has ended."""
        folders = (self.root / "bin", self.root / "installed")
        env = {"PATH": ":".join([*map(str, folders), os.environ["PATH"]]), "HOME": str(self.root)} | environment
        options = [word for word in words if word.startswith("--nodes") or "-per-node" in word]
        rest = [word for word in words if word not in options]
        command = [self.root / "bin" / "sbatch", *options, LAUNCH / "slurm.sh", *rest]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)

    def said(self):
        return (self.root / "said").read_text()

    def home(self, host):
        return self.root / f"host{host}"

    def calls(self, *words):
        """The calls that hold these words, in order."""
        path = self.root / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(json.loads, lines) if all(word in call for word in words)]

    def asked_of_host(self, worker):
        """The verbs of host.sh and their arguments, as they come out of the quoting."""
        words = [words_on_host(call) for call in self.calls("ssh", f"--worker={worker}")]
        assert all(each[:4] == ["bash", "-c", HOST_SCRIPT, "host.sh"] for each in words)
        return [each[4:] for each in words]

    def runs(self, host):
        """What each run on a host was given."""
        path = self.home(host) / "runs.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def sleeps(self):
        path = self.root / "sleeps"
        return path.read_text().split() if path.exists() else []

    def state(self):
        with self.google() as known:
            return known["states"][0] if known["type"] else "ABSENT"


class Cluster(Cloud):
    """A GKE cluster without a TPU slice, for launch/gke.sh; stand_ins/gke.py is its gcloud and its kubectl."""

    script = "gke.sh"
    environment = MappingProxyType({"CLUSTER": "my-cluster", "IMAGE": "registry/bert-jax:1"})

    def __init__(self, root: Path):
        super().__init__(root)
        text = (STAND_INS / "gke.py").read_text()
        self.program("bin/gcloud", text, python=True)
        self.program("bin/kubectl", f"#!{sys.executable} -I\n{text}")  # with the site's packages, for YAML
        with self.google() as known:
            known.update(
                pool=None,
                message="",
                accounts=["bert-jax"],
                secret=None,
                jobset=None,
                stands=[{}],
                waits="",
                deaths="",
                policies=[],
            )

    def rent(self, topology="v5e-4x4"):
        """A slice that is there."""
        with self.google() as known:
            known.update(pool=topology, states=["RUNNING"])

    def stands(self, *stands):
        """How the run stands at successive looks, of which the last stays; see stand_ins/gke.py."""
        with self.google() as known:
            known["stands"] = list(stands)

    def calls(self, *words):
        """As in the cloud, with one name for the folder that each launch makes for itself."""
        return [[SCRATCH.sub("SCRATCH", word) for word in call] for call in super().calls(*words)]


def words_on_host(call):
    """The words of --command as bash reads them on the host; Python's shlex does not know $'...'."""
    [command] = [word.removeprefix("--command=") for word in call if word.startswith("--command=")]
    result = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True)
    return result.stdout.split("\0")[:-1]


def eventually(condition, timeout=30):
    """Waits until a condition of other processes holds, and returns what it gave."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout} s")
