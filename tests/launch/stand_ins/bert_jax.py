"""Stands for the installed `bert-jax`: notes what it was given, and then does what the test arranged for this host.

That is the first of the words in runs{WORKER}.json, of which the last stays: "stay" (until SIGTERM, then exit 143 as
the real one does, having saved), "hang" (SIGTERM does nothing), or the status with which to exit at once.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until what it was given is noted
ROOT = Path(__file__).resolve().parent.parent
plan = ROOT / f"runs{os.environ['WORKER']}.json"
runs = json.loads(plan.read_text()) if plan.exists() else ["stay"]
plan.write_text(json.dumps(runs[1:] or runs))

secrets = {name: os.environ[name] for name in ("WANDB_API_KEY", "HF_TOKEN", "MINE") if name in os.environ}
with open(Path.home() / "runs.jsonl", "a") as log:
    log.write(json.dumps({"arguments": sys.argv[1:], "secrets": secrets, "folder": os.getcwd()}) + "\n")
print("started", *sys.argv[1:], flush=True)
if isinstance(runs[0], int):
    sys.exit(runs[0])
signal.signal(signal.SIGTERM, signal.SIG_IGN if runs[0] == "hang" else lambda *_: sys.exit(143))
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
if (Path.home() / "bert_jax_run").exists():
    (Path.home() / "bert_jax_run" / "settled").write_text(str(os.getppid()))
time.sleep(120)
