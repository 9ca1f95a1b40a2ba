"""Stands for sbatch, srun and scontrol, whichever name it is called by; nodes and tasks are processes of this machine.

Of what they know, in the folder above: calls.jsonl; `time_is_up`, which holds the paths of files: once those are there,
srun's tasks get SIGTERM, as --signal has Slurm do before the time is up; `requeued`.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME, WORDS = Path(sys.argv[0]).name, sys.argv[1:]


def sbatch():
    """Runs the script in this process's foreground, and again as long as it is queued again."""
    script = next(i for i, word in enumerate(WORDS) if not word.startswith("--"))
    header = re.findall(r"^#SBATCH (--.*)$", Path(WORDS[script]).read_text(), re.MULTILINE)
    options = dict(word[2:].split("=", 1) for word in [*header, *WORDS[:script]] if "=" in word)
    per_node, nodes = int(options["ntasks-per-node"]), int(options["nodes"])
    status = None
    for count in range(5):
        (ROOT / "requeued").unlink(missing_ok=True)
        environment = {
            "SLURM_JOB_ID": os.environ.get("JOB", "7"),
            "SLURM_NTASKS_PER_NODE": str(per_node),
            "SLURM_NTASKS": str(per_node * nodes),
            "SLURM_GPUS_ON_NODE": options["gpus-per-node"],
            "SLURM_RESTART_COUNT": str(count),
        }
        status = subprocess.run(["bash", *WORDS[script:]], env=os.environ | environment).returncode
        if not (ROOT / "requeued").exists():
            break
    return status


def srun():
    """The tasks, each with what Slurm tells it; the highest of their statuses."""
    command = WORDS[next(i for i, word in enumerate(WORDS) if not word.startswith("--")) :]
    per_node = int(os.environ["SLURM_NTASKS_PER_NODE"])
    tasks = []
    for task in range(int(os.environ["SLURM_NTASKS"])):
        home = ROOT / f"host{task}"
        home.mkdir(exist_ok=True)
        numbers = {"SLURM_PROCID": str(task), "SLURM_LOCALID": str(task % per_node), "WORKER": str(task)}
        environment = os.environ | numbers | {"SLURM_STEP_NODELIST": "localhost", "HOME": str(home)}
        tasks.append(subprocess.Popen(command, env=environment))
    end = ROOT / "time_is_up"
    while any(task.poll() is None for task in tasks):
        time.sleep(0.05)
        if end.exists() and all(Path(path).exists() for path in end.read_text().splitlines()):
            end.unlink()
            for task in tasks:
                task.send_signal(signal.SIGTERM)
    return max(128 - task.returncode if task.returncode < 0 else task.returncode for task in tasks)


def scontrol():
    (ROOT / "requeued").touch()
    return 0


with open(ROOT / "calls.jsonl", "a") as log:
    log.write(json.dumps([NAME, *WORDS]) + "\n")
sys.exit({"sbatch": sbatch, "srun": srun, "scontrol": scontrol}[NAME]())
