"""docs/tpu.md as a walk: every command of it, in its order, and what it prints beside what the page shows.

The commands are taken from the page as they are. They run in a folder whose recipes, corpus and tables have the
page's names and are small; Cloud Storage is an emulator, `gcloud` a stand-in, and each host of the slice a process with
one CPU device.
"""

import os
import pty
import random
import re
import socket
import subprocess
import sys

import pytest
from bucket import Bucket
from cloud import LAUNCH, ROOT

PAGE = (ROOT / "docs" / "tpu.md").read_text()
BLOCKS = re.findall(r"```(bash)?\n(.*?)```", PAGE, re.DOTALL)

SMALL_RECIPE = """
import runpy

def get_config():
    c = runpy.run_path({path!r})["get_config"]()
    c.model.size = "tiny"
    c.model.num_hidden_layers, c.model.hidden_size, c.model.intermediate_size = 1, 16, 32
    c.stages = ((24, 128, 8), (6, 512, 4))
    c.optimizer.warmup_steps = 4
    c.eval_every, c.checkpoint_every, c.log_every, c.data.eval_batches = 0, 10, 5, 2
    c.eval_batch_size = 8
    return c
"""


def walk():
    """The page's blocks of commands in order, each with the lines that it prints, as far as the page shows them."""
    steps = []
    for kind, text in BLOCKS:
        if kind == "bash":
            lines = text.replace("\\\n", " ").splitlines()
            steps.append(([" ".join(line.split()) for line in lines if line.strip()], []))
        else:
            steps[-1][1].extend(text.splitlines())
    return steps


def is_shown(line, said):
    """Whether a line of the page is among those that were said, numbers, dots and spaces apart."""
    pattern = re.sub(
        r"\d[\d.,]*", "#", re.escape(line.strip()).replace("\\.", ".").replace("\\,", ",").replace("\\-", "-")
    )
    pattern = re.sub(r"(\\ )+", r"\\s+", pattern.replace("#", r"[\d.,e+-]+"))
    return any(re.fullmatch(pattern, each.strip()) for each in said)


@pytest.fixture
def place(cloud, tmp_path):
    """A folder as the page wants it, and the environment of its commands."""
    folder, rng = tmp_path / "bert_jax", random.Random(0)
    (folder / "corpus").mkdir(parents=True)
    (folder / "configs").mkdir()
    (folder / "launch").symlink_to(LAUNCH)
    words = ["the", "a", "cat", "dog", "bird", "fish", "house", "river", "paris", "is", "of", "france", "old", "sat"]
    text = ["\n".join(" ".join(rng.choices(words, k=9)).capitalize() + "." for _ in range(30)) for _ in range(120)]
    (folder / "corpus" / "a.txt").write_text("\n\n".join(text))
    for name, rows in (("train", 64), ("dev", 16)):
        labels = rng.choices(["good", "bad"], k=rows)
        (folder / f"{name}.csv").write_text("review,label\n" + "".join(f"the {x} cat,{x}\n" for x in labels))
    recipe = SMALL_RECIPE.format(path=str(ROOT / "configs" / "bert_base.py"))
    (folder / "configs" / "bert_base.py").write_text(recipe)
    (folder / "configs" / "classification.py").write_text((ROOT / "configs" / "classification.py").read_text())
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    with Bucket(name="another-bucket") as bucket:
        inherited = {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_"))}
        shared = inherited | bucket.environment | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
        # On a host, `setup` has unpacked the checkout, whose recipe is the large one.
        program = f"#!/bin/bash\ncp {folder}/configs/*.py configs/\nexport SLURM_PROCID=$WORKER\n"
        cloud.program("installed/bert-jax", f'{program}exec {sys.executable} -m bert_jax "$@"\n')
        # What is downloaded as gcloud: an installer, which puts the stand-in on the PATH.
        (tmp_path / "bin" / "gcloud").rename(tmp_path / "downloaded")
        installer = f"#!/bin/bash\nmv {tmp_path}/downloaded {tmp_path}/bin/gcloud\n"
        cloud.program("google-cloud-sdk/install.sh", installer)
        archive = '[[ "$1 $2" == "-O https://dl.google.com/dl/cloudsdk/channels/rapid/downloads/"* ]] &&'
        cloud.program("bin/curl", f'#!/bin/bash\n{archive} tar -czf "${{2##*/}}" -C {tmp_path} google-cloud-sdk\n')
        cloud.program("bin/bert-jax", f'#!/bin/bash\nexec {sys.executable} -m bert_jax "$@"\n')
        with cloud.google() as google:
            google["next_states"] = [["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]]
            google["host_environment"] = shared | {
                "JAX_COORDINATOR_PORT": str(port), "SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost",
                "SLURM_NTASKS": "2", "SLURM_LOCALID": "0",
            }  # fmt: skip
            google["account"] = dict.fromkeys(("login", "project", "configured", "billed", "application_default"))
            google["account"] |= {"enabled": [], "roles": []}
        environment = cloud._command((), {})["env"] | shared | {"SETTLE_SECONDS": "1"}
        yield folder, environment


def run(command, folder, environment):
    """What a command of the page prints, whose user answers yes."""
    leader, follower = pty.openpty()
    os.write(leader, b"yes\n")
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=follower,
        capture_output=True,
        text=True,
        timeout=400,
    )
    os.close(leader), os.close(follower)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return (done.stdout + done.stderr).splitlines()


def missing_lines(shown, said):
    return [line for line in shown if line.strip() not in ("", "...") and not is_shown(line, said)]


@pytest.mark.slow  # test_tpu_rent.py, test_tpu_run.py and test_tpu_watch.py run its commands
def test_the_page_is_walked_word_for_word(place, cloud):
    folder, environment = place
    for commands, shown in walk()[1:]:  # the first is an installation, and the plan, which is walked below
        said = []
        for command in commands:
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                [environment[name]] = run(f"printf %s {value}", folder, environment)
            else:
                said += run(command.replace("--config bert_base", "--config configs/bert_base.py"), folder, environment)
        assert not missing_lines(shown, said), "\n".join(said)
    with cloud.google() as google:
        assert google["account"]["application_default"] and google["account"]["enabled"]
        assert google["account"]["roles"] == ["roles/storage.objectAdmin", "roles/storage.legacyBucketReader"]
        assert google["type"] is None, "the slice goes on costing"
    assert (folder / "bfloat16" / "model.safetensors").stat().st_size > 10_000
    assert not list(folder.glob("gs:*")), "a URL was taken for a local path"


def test_the_walk_finds_the_commands_and_what_they_print():
    programs = [command.split()[0] for commands, _ in walk() for command in commands]
    assert programs.count("bert-jax") >= 8 and programs.count("launch/tpu.sh") >= 4
    assert sum(len(shown) for _, shown in walk()) > 20
    assert is_shown("a: 1,234 pieces in 5 s", ["x", "a: 9 pieces in 0.25 s"])
    assert not is_shown("a: 1,234 pieces", ["a: 9 parts"])


def test_the_steps_before_a_slice_are_in_an_order_that_google_takes(place, cloud):
    """As the walk, which takes minutes, up to the data; and no step of it is one too many."""
    folder, environment = place
    steps = [command for commands, _ in walk()[1:] for command in commands]
    steps = steps[: next(i for i, command in enumerate(steps) if command.startswith("bert-jax"))]
    for command in steps:
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            [environment[name]] = run(f"printf %s {value}", folder, environment)
        else:
            run(command, folder, environment)
    environment["ZONE"] = "us-west4-a"
    assert run("launch/tpu.sh create my-slice --type v5litepod-16 --yes", folder, environment)
    with cloud.google() as google:
        assert google["account"]["roles"] == ["roles/storage.objectAdmin", "roles/storage.legacyBucketReader"]
        assert all(google["account"].values())


def test_the_prices_of_the_page_are_those_of_the_launchers():
    rows = re.findall(r"^\| (v\w+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert [row[0] for row in rows] == ["v4", "v5e", "v5p", "v6e"]
    script = f"source {LAUNCH}/cloud/price.sh; list_price $1 'on demand'; echo $price; list_price $1 spot; echo $price"
    for chip, *prices in rows:
        known = subprocess.run(["bash", "-c", script, "-", chip], capture_output=True, text=True, check=True)
        assert known.stdout.split() == prices, chip


@pytest.mark.slow
def test_the_plan_prints_what_the_page_shows():
    commands, shown = walk()[0]
    command = [sys.executable, "-m", "bert_jax", *commands[-1].split()[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert not missing_lines(shown, done.stdout.splitlines()), done.stdout
