"""launch/tpu_vm.sh with a stand-in `gcloud`: what it asks of Google, and what then happens on each host."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "launch" / "tpu_vm.sh"
HOSTS = 2

# Records each call; carries `ssh` and `scp` out against one home directory per host.
GCLOUD = f"""#!{sys.executable}
import json, os, shutil, subprocess, sys
from pathlib import Path
here, call = Path(__file__).parent.parent, sys.argv[1:]
with open(here / "calls.jsonl", "a") as log:
    log.write(json.dumps(call) + "\\n")
flags = dict(word[2:].split("=", 1) for word in call if word.startswith("--") and "=" in word)
verb = call[3]
worker = flags.get("worker")
homes = [here / f"host{{n}}" for n in (range({HOSTS}) if worker == "all" else [int(worker or 0)])]
if verb == "scp":
    for home in homes:
        shutil.copy(call[4], home / call[5].split(":", 1)[1])
if verb == "ssh":
    for home in homes:
        status = subprocess.run(["bash", "-c", flags["command"]], env=os.environ | {{"HOME": str(home)}}).returncode
        if status:
            sys.exit(status)
"""

# Stands for the installed program: says what it was given, and stays until it is ended when asked to.
BERT_JAX = f"""#!{sys.executable}
import json, sys, time
from pathlib import Path
Path.home().joinpath("arguments.json").write_text(json.dumps(sys.argv[1:]))
print("started", flush=True)
time.sleep(60 if "stay" in sys.argv else 0)
"""


@pytest.fixture
def cloud(tmp_path):
    """A folder with the stand-in, and HOSTS home directories in which bert-jax is installed."""
    program(tmp_path / "bin" / "gcloud", GCLOUD)
    for host in range(HOSTS):
        program(tmp_path / f"host{host}" / "bert_jax_env" / "bin" / "bert-jax", BERT_JAX)
        (tmp_path / f"host{host}" / "bert_jax").mkdir()
    return tmp_path


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def launch(cloud, *arguments, **environment):
    path = f"{cloud / 'bin'}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(cloud), "ZONE": "us-west4-a"} | environment
    return subprocess.run([str(SCRIPT), *arguments], env=env, capture_output=True, text=True, timeout=30)


def calls(cloud):
    return [json.loads(line) for line in (cloud / "calls.jsonl").read_text().splitlines()]


def eventually(path, timeout=20):
    """What is in a file that another process is about to write."""
    for _ in range(timeout * 20):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"{path} was not written in {timeout} s")


@pytest.mark.parametrize(
    ("accelerator", "runtime"),
    [
        ("v5litepod-16", "v2-alpha-tpuv5-lite"),
        ("v5p-32", "v2-alpha-tpuv5"),
        ("v6e-16", "v2-alpha-tpuv6e"),
        ("v4-32", "tpu-ubuntu2204-base"),
    ],
)
def test_create_asks_for_the_type_with_the_runtime_of_its_generation(cloud, accelerator, runtime):
    result = launch(cloud, "create", "slice", "--type", accelerator, "--spot")
    assert result.returncode == 0, result.stderr
    assert calls(cloud) == [
        ["compute", "tpus", "tpu-vm", "create", "slice", f"--accelerator-type={accelerator}", f"--version={runtime}",
         "--spot", "--zone=us-west4-a"]
    ]  # fmt: skip


def test_project_and_runtime_come_from_the_environment(cloud):
    launch(cloud, "create", "slice", "--type", "v9-8", PROJECT="mine", RUNTIME="v9-image")
    assert calls(cloud)[0][5:] == [
        "--accelerator-type=v9-8",
        "--version=v9-image",
        "--zone=us-west4-a",
        "--project=mine",
    ]


def test_run_hands_every_argument_over_unchanged_on_every_host(cloud):
    arguments = [
        "pretrain",
        "--config",
        "configs/a b.py:x=1",
        "--workdir",
        "gs://b/it's $HOME",
        '--config.a="(1, 2)"',
        "*",
    ]
    result = launch(cloud, "run", "slice", *arguments)
    assert result.returncode == 0, result.stderr
    for host in range(HOSTS):
        assert json.loads(eventually(cloud / f"host{host}" / "arguments.json")) == [*arguments, "--distributed"]
        assert "started" in eventually(cloud / f"host{host}" / "bert_jax.log")


def test_a_second_run_is_refused_until_stop_ends_the_first(cloud):
    assert launch(cloud, "run", "slice", "pretrain", "stay").returncode == 0
    eventually(cloud / "host1" / "arguments.json")
    second = launch(cloud, "run", "slice", "pretrain")
    assert second.returncode != 0
    assert "already going" in second.stderr
    process = Path("/proc") / (cloud / "host1" / "bert_jax.pid").read_text().strip()
    assert launch(cloud, "stop", "slice").returncode == 0
    if Path("/proc/self").exists():
        for _ in range(200):
            if not process.exists() or "Z" in (process / "stat").read_text().split()[2]:
                break
            time.sleep(0.05)
        else:
            raise AssertionError("the run outlived stop")
    assert launch(cloud, "run", "slice", "pretrain").returncode == 0
    launch(cloud, "stop", "slice")


def test_setup_sends_the_commit_and_installs_it_with_the_tpu_extra(cloud):
    # Stands for the image's python3: pip, uv venv, uv pip install.
    program(cloud / "bin" / "python3", '#!/bin/bash\necho "$@" >>"$HOME/python3.log"\n')
    for host in range(HOSTS):
        program(cloud / f"host{host}" / "bert_jax_env" / "bin" / "python", "#!/bin/bash\n")
    result = launch(cloud, "setup", "slice")
    assert result.returncode == 0, result.stderr
    for host in range(HOSTS):
        home = cloud / f"host{host}"
        assert (home / "bert_jax" / "pyproject.toml").exists()
        assert f"bert-jax[tpu] @ file://{home}/bert_jax" in (home / "python3.log").read_text()
    left = [word for call in calls(cloud) if call[3] == "scp" for word in call if word.endswith(".tar.gz")]
    assert not os.path.exists(left[0]), "the archive stayed behind"


def test_delete_passes_flags_on(cloud):
    launch(cloud, "delete", "slice", "--quiet")
    assert calls(cloud) == [["compute", "tpus", "tpu-vm", "delete", "slice", "--quiet", "--zone=us-west4-a"]]


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["destroy", "slice"], {}, "no command 'destroy'"),
        (["run"], {}, "needs the NAME"),
        (["run", "slice", "evaluate"], {}, "pretrain or finetune"),
        (["create", "slice"], {}, "--type"),
        (["create", "slice", "--type", "h100-8"], {}, "set RUNTIME"),
        (["logs", "slice"], {"ZONE": ""}, "set ZONE"),
    ],
)
def test_what_does_not_fit_is_one_line_and_asks_nothing_of_google(cloud, arguments, environment, message):
    result = launch(cloud, *arguments, **environment)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (cloud / "calls.jsonl").exists()


def test_shellcheck_has_no_complaint():
    shellcheck = Path(sys.executable).parent / "shellcheck"
    subprocess.run([shellcheck, SCRIPT, SCRIPT.parent.parent / ".ci" / "run"], check=True)
