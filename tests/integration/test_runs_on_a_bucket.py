"""Runs whose data and work directory are on a bucket: they end as on a disk, through kills, faults and rivals."""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

import pytest
from kill_moments import kill_moments
from small import STEPS, assert_alike, metrics_of, recipe, train_in_processes

from bert_jax import recipes, storage
from bert_jax.cli import main
from bert_jax.training.loop import train

# TensorStore, which writes and reads the arrays of checkpoints, gives up where its credentials are refused.
EXPIRED_IN_SAVE = {"expire": 1, "expire_match": "uploadType=media.*checkpoints"}
TORN = {"fail": 0.05, "cut": 0.05, "delay": 0.05}  # shares of requests


@pytest.fixture
def remote(bucket, data):
    """The folder of the data, copied to the bucket."""
    for path in filter(lambda path: path.is_file(), data.rglob("*")):
        bucket.write(f"data/{path.relative_to(data)}", path.read_bytes())
    return storage.Path(f"gs://{bucket.name}/data")


def fetched(bucket, prefix, folder):
    """A folder with a copy of what lies below a prefix."""
    for key in bucket.keys(f"{prefix}/"):
        path = folder / key.removeprefix(f"{prefix}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bucket.read(key))
    return folder


def steps_in_events(folder):
    """The steps of TensorBoard's scalars, as TensorBoard counts them: a later start drops what it writes again."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    steps = set()
    for path in sorted((folder / "tensorboard").iterdir(), key=lambda path: path.name.split(".")[3]):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            if event.session_log.status == SessionLog.START:
                steps = {step for step in steps if step < event.step}
            elif event.HasField("summary"):
                steps.add(event.step)
    return steps


def retries(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return sum(line.get("train/storage_retries", 0) for line in lines)


def kills(count, within=0.5):
    """Kills at any moment of a run, in a save as well."""
    steps = sorted(kill_moments(f"bucket {count}").choices(range(1, STEPS - 3), k=count))
    return [{"kill_at": step, "within": within} for step in steps]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "count", "faults"),
    [
        (2, 1, TORN | {"delay_seconds": 0.3, "expire": 1, "expire_match": "metrics.jsonl"}),
        (4, 1, {}),
        (4, 3, TORN | {"delay_seconds": 2} | EXPIRED_IN_SAVE),
    ],
)
def test_two_hosts_on_a_bucket_end_as_on_a_disk(tmp_path, data, bucket, remote, devices, count, faults):
    hosts, meshed = {"processes": 2, "devices": devices}, {"mesh.data": 2, "mesh.fsdp": devices}
    train_in_processes(recipe(data, "pretraining", **meshed), tmp_path / "disk", [hosts])
    bucket.faults(**faults)
    runs = [*(hosts | kill for kill in kills(count)), hosts]
    train_in_processes(recipe(remote, "pretraining", **meshed), f"gs://{bucket.name}/run", runs, tmp_path)
    injected = bucket.counts()["faults"]
    bucket.faults(reset=True)
    run = fetched(bucket, "run", tmp_path / "bucket")
    assert_alike(tmp_path / "disk", run)
    assert steps_in_events(run) == {line["step"] for line in metrics_of(run)}
    assert not [key for key in bucket.keys("run/") if ".partial" in key or ".incomplete" in key]
    if faults:
        assert injected["401"] and injected["503"] and injected["cut before"] and injected["delay"]
        assert retries(run) > 0


@pytest.fixture(scope="module")
def disk(tmp_path_factory, data):
    """The work directory of a run on a disk that nothing happened to."""
    workdir = tmp_path_factory.mktemp("disk") / "run"
    train_in_processes(recipe(data, "pretraining"), workdir, [{}])
    return workdir


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 20])
def test_killed_again_and_again_on_a_bucket(tmp_path, disk, bucket, remote, count):
    runs = [*kills(count, within=2.0), {}]
    train_in_processes(recipe(remote, "pretraining"), f"gs://{bucket.name}/run", runs, tmp_path)
    assert_alike(disk, fetched(bucket, "run", tmp_path / "bucket"))


@pytest.mark.slow
def test_a_torn_checkpoint_is_moved_aside_and_the_one_before_is_taken(tmp_path, disk, bucket, remote):
    url = f"gs://{bucket.name}/run"
    train_in_processes(recipe(remote, "pretraining"), url, [{"stop_at": 14}], tmp_path)
    newest = max(int(key.split("/")[2]) for key in bucket.keys("run/checkpoints/") if key.split("/")[2].isdigit())
    array = next(key for key in bucket.keys(f"run/checkpoints/{newest}/default/") if "word_embeddings" in key)
    for key in bucket.keys(array.rpartition("/")[0]):
        bucket.write(key, bucket.read(key)[:20])
    said = train_in_processes(recipe(remote, "pretraining"), url, [{}], tmp_path)
    assert f"checkpoints/{newest} cannot be read" in said and "resuming from the one before" in said
    assert bucket.keys(f"run/checkpoints/unreadable-{newest}/")
    model = "model/model.safetensors"
    assert bucket.read(f"run/{model}") == (disk / model).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["", f"%2F{STEPS}%2F"], ids=["first", "last"])
def test_credentials_that_expire_in_a_save_cost_no_more_than_that_save(tmp_path, disk, bucket, remote, step):
    bucket.faults(**EXPIRED_IN_SAVE | {"expire_match": EXPIRED_IN_SAVE["expire_match"] + step})
    said = train_in_processes(recipe(remote, "pretraining"), f"gs://{bucket.name}/run", [{}], tmp_path)
    assert bucket.counts()["faults"]["401"] and "training continues, and saves again later" in said
    assert_alike(disk, fetched(bucket, "run", tmp_path / "bucket"))


@pytest.mark.slow
def test_credentials_that_expire_in_a_restore_are_not_taken_for_a_damaged_checkpoint(tmp_path, disk, bucket, remote):
    url = f"gs://{bucket.name}/run"
    train_in_processes(recipe(remote, "pretraining"), url, [{"stop_at": 14}], tmp_path)
    bucket.faults(expire=1, expire_match="tensorstore=")
    said = train_in_processes(recipe(remote, "pretraining"), url, [{}], tmp_path)
    assert bucket.counts()["faults"]["401"] and "unreadable" not in said
    assert not [key for key in bucket.keys("run/checkpoints/") if "unreadable" in key]
    model = "model/model.safetensors"
    assert bucket.read(f"run/{model}") == (disk / model).read_bytes()


def newest_checkpoint(bucket):
    """The step of the newest whole checkpoint, 0 for none."""
    keys = [key.split("/") for key in bucket.keys("run/checkpoints/")]
    return max((int(key[2]) for key in keys if key[2].isdigit() and key[3:] == ["commit_success.txt"]), default=0)


def begin(config, workdir):
    command = [sys.executable, "-m", "bert_jax", "pretrain", "--config", config, "--workdir", workdir, "--quiet"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_of_two_runs_at_once_one_trains_and_the_other_is_told_who_does(bucket, remote):
    bucket.write(
        "recipe.json",
        recipes.to_json(recipe(remote, "pretraining", num_steps=20_000, stages=((20_000, 32, 8),))).encode(),
    )
    workdir = f"gs://{bucket.name}/run"
    runs = [begin(f"gs://{bucket.name}/recipe.json", workdir) for _ in range(2)]
    deadline = time.monotonic() + 120
    while all(run.poll() is None for run in runs) and time.monotonic() < deadline:
        time.sleep(0.2)
    refused, trains = sorted(runs, key=lambda run: run.poll() is None)
    said = [line for line in refused.stderr.read().splitlines() if line.startswith("bert-jax: ")]
    assert refused.returncode == 2
    assert said == [
        f"bert-jax: {workdir}: another run is under way there; use another --workdir "
        + re.search(rf"\(process {trains.pid} of .* on .*, since .* UTC\)", said[0])[0]
    ]
    # One that is killed locks nobody out.
    trains.send_signal(signal.SIGKILL)
    trains.wait()
    before = newest_checkpoint(bucket)
    third = begin(f"gs://{bucket.name}/recipe.json", workdir)
    while newest_checkpoint(bucket) <= before:
        assert third.poll() is None and time.monotonic() < deadline + 120
        time.sleep(0.2)
    assert f'"pid": {third.pid},' in bucket.read("run/.lease/2.json").decode()
    third.send_signal(signal.SIGTERM)
    assert third.wait(timeout=60) == 143


@pytest.mark.slow
def test_every_verb_reads_and_writes_on_a_bucket(tmp_path, data, bucket, remote, capsys):
    url = f"gs://{bucket.name}"

    def run(*words):
        status = main([str(word) for word in words])
        said = capsys.readouterr()
        assert status == 0, said.err
        return said.out

    assert "vocabulary of" in run(
        "train-tokenizer", f"{remote}/corpus.txt", "--vocab-size", 120, "--out", f"{url}/tokenizer"
    )
    common = ["--max-seq-length", 32, "--validation-fraction", 0.1, "--num-workers", 2]
    run("prepare", f"{remote}/*.txt", "--tokenizer", f"{url}/tokenizer", "--out", f"{url}/prepared", *common)
    made = recipe(remote, "pretraining", tokenizer=f"{url}/tokenizer", num_steps=4, stages=((4, 32, 8),))
    made.data.prepared = f"{url}/prepared"
    bucket.write("recipe.json", recipes.to_json(made).encode())
    run("pretrain", "--config", f"{url}/recipe.json", "--workdir", f"{url}/pretraining", "--quiet")
    fine = recipe(remote, "classification", tokenizer="", init_from=f"{url}/pretraining/model", num_steps=4)
    bucket.write("fine.json", recipes.to_json(fine).encode())
    words = ["--config", f"{url}/fine.json", "--workdir", f"{url}/fine", "--quiet"]
    run("finetune", *words)
    # The same command again, and the run's own config.json as the recipe.
    run("finetune", "--config", f"{url}/fine/config.json", "--workdir", f"{url}/fine", "--quiet")
    scores = run(
        "evaluate", "--model", f"{url}/fine/model", "--data", f"{remote}/dev.tsv", "--report", f"{url}/dev.html"
    )
    assert "accuracy" in scores and b"<html" in bucket.read("dev.html")
    run("predict", "--model", f"{url}/fine/model", "--data", f"{remote}/dev.tsv", "--text-column", "sentence",
        "--out", f"{url}/answers.jsonl")  # fmt: skip
    assert len(bucket.read("answers.jsonl").splitlines()) == 40
    run("convert", f"{url}/fine/model", f"{url}/copy", "--dtype", "bfloat16")
    assert bucket.read("copy/config.json") and bucket.keys("copy/")[0] != "copy/.incomplete"
    run("convert", f"{url}/fine/model", f"{url}/flax", "--format", "flax")
    assert json.loads(run("inspect", f"{url}/copy", "--json"))["head"] == "sequence_classification"
    bucket.write("texts.txt", b"the cat sat\na dog eats fish\n")
    assert run("classify", f"{url}/fine/model", "--file", f"{url}/texts.txt", "--json").count("\n") == 2
    run("embed", f"{url}/pretraining/model", "--file", f"{url}/texts.txt", "--out", f"{url}/vectors.npy")
    assert bucket.read("vectors.npy").startswith(b"\x93NUMPY")
    assert run("search", f"{url}/pretraining/model", "fish", "--corpus", f"{url}/texts.txt", "--json")
    assert not list(tmp_path.glob("gs:*")) and not os.path.exists("gs:")


@pytest.mark.slow
def test_a_sweep_and_its_profiles_are_written_to_a_bucket(bucket, remote):
    url = f"gs://{bucket.name}"
    bucket.write("fine.json", recipes.to_json(recipe(remote, "classification", num_steps=4)).encode())
    words = ["--config", f"{url}/fine.json", "--workdir", f"{url}/swept", "--quiet", "--config.profile=(2, 1)"]
    assert main(["finetune", *words, "--sweep", "seed=0,1"]) == 0
    assert len(json.loads(bucket.read("swept/sweep.json"))[0]["mean"]) >= 1
    for seed in (0, 1):
        assert any(key.endswith(".xplane.pb") for key in bucket.keys(f"swept/seed={seed}/profile/"))


@pytest.mark.slow  # test_resume.py keeps the best checkpoint on a disk
def test_the_best_checkpoint_becomes_the_model(bucket, remote):
    made = recipe(remote, "classification", num_steps=6, eval_every=2, keep_checkpoints=1, best_metric="accuracy")
    results = train(made, f"gs://{bucket.name}/run", progress=False)
    lines = map(json.loads, storage.read_text(f"gs://{bucket.name}/run/metrics.jsonl").splitlines())
    scores = {line["step"]: line["eval/accuracy"] for line in lines if "eval/accuracy" in line}
    best = max(scores, key=lambda step: (scores[step], step))
    assert (results["step"], results["eval/accuracy"]) == (best, scores[best])
    kept = {key.split("/")[2] for key in bucket.keys("run/checkpoints/") if key.split("/")[2].isdigit()}
    assert kept == {str(best), "6"}
