"""Verbs without a work directory, killed by SIGKILL at random moments: the output is whole or absent.

The same command, given again, writes what it would have written at first, and removes what the killed ones left. The
moments follow from a seed (kill_moments.py).
"""

import json
import sys

import pytest
from kill_moments import SEED, kill_moments
from killing import Disk, OnBucket, Run

MOMENTS = 5
FAILING = {"fail": 0.06, "fail_status": [503, 429], "cut": 0.04}  # shares of requests
# Verb -> its words; {at} is the folder of the files that it reads, {run} the one that it writes to.
VERBS = {
    "prune": "{at}/classifier --out {run}/out --heads 0.5 --columns 0.5 --examples 8 --data {at}/train.tsv",
    "quantize": "{at}/classifier --out {run}/out --mode int8",
    "convert": "{at}/classifier {run}/out --dtype bfloat16",
    "index": "{at}/encoder --corpus {at}/texts.txt --out {run}/out",
    "prepare": "{at}/texts.txt --tokenizer {at}/classifier --out {run}/out --max-seq-length 32 --num-workers 1",
    "predict": "--model {at}/classifier --data {at}/train.tsv --text-column sentence --out {run}/out.jsonl",
    "mine-negatives": "{at}/encoder --data {at}/pairs.jsonl --out {run}/out.jsonl --num-negatives 1",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, data, write_small):
    """The folder of what the verbs read."""
    root = tmp_path_factory.mktemp("verbs") / "files"
    root.mkdir()
    (root / "train.tsv").write_bytes((data / "train.tsv").read_bytes())
    sizes = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 6}
    write_small(root / "classifier", "sequence_classification", id2label=("no", "yes"), **sizes)
    write_small(root / "encoder", **sizes)
    lines = [line.split("\t")[0] for line in (root / "train.tsv").read_text().splitlines()[1:]]
    (root / "texts.txt").write_text("\n".join(lines) + "\n")
    pairs = [{"query": one, "positive": other} for one, other in zip(lines[::2], lines[1::2], strict=True)]
    (root / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return root


@pytest.fixture(scope="module")
def whole(files):
    """Gives the run of a verb that was not killed."""
    runs: dict[str, Run] = {}

    def of(verb: str) -> Run:
        if verb not in runs:
            (files / f"whole_{verb}").mkdir()
            runs[verb] = run_of(verb, Disk(files), f"whole_{verb}", files)
            runs[verb].finish()
        return runs[verb]

    return of


def run_of(verb, place, name, folder):
    words = VERBS[verb].format(at=place.at, run=f"{place.at}/{name}").split()
    return Run([sys.executable, "-m", "bert_jax", verb, *words], place, name, folder / f"{name}.log")


def outputs(run):
    """The files in the folder of a run, without leases, which are numbered by processes."""
    return {name: data for name, data in run.place.contents(run.name).items() if ".lease/" not in name}


def kill_at_moments(run, undisturbed, count, rng, slower=1.0):
    """Kill a verb in its start and while it writes, and let it end; what a reader sees is nothing, or all."""
    expected, landed = outputs(undisturbed), 0
    for writes in [False, False, *[True] * 6] if count > 2 else [True] * 3:
        if landed == count:
            break
        gap = undisturbed.writing if writes else 0
        run.milestones = []
        killed = run.kill(
            reached=undisturbed.milestones[gap - 1] if writes else "",
            following=undisturbed.milestones[gap],
            # Writing takes milliseconds, and less than the watching process may have to wait for its turn.
            delay=rng.choice([0.0, rng.uniform(0, slower * undisturbed.gaps[gap])]),
            late=rng.uniform(0, slower * sum(undisturbed.gaps)),
        )
        seen = {name: data for name, data in outputs(run).items() if not name.startswith(".")}
        if seen == expected:
            run.place.clear(run.name)  # the same command would refuse to overwrite it
        else:
            landed += killed
            assert not seen or "out/.incomplete" in seen, (sorted(seen), run.kills)
    run.finish()
    assert outputs(run) == expected, run.kills


def report(verb, place, run, failed=0):
    """A line of figures, which `pytest -s` shows."""
    moments = ", ".join(f"{seconds:.2f} s ({step})" for seconds, step in run.kills)
    print(f"\n{verb} | {place} | {moments} | equal | {len(run.kills)} | {failed} | seed {SEED}")


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_kills_on_a_disk(verb, files, whole):
    name = f"killed_{verb}"
    (files / name).mkdir()
    run = run_of(verb, Disk(files), name, files)
    kill_at_moments(run, whole(verb), MOMENTS, kill_moments(f"{verb} disk"))
    report(verb, "disk", run)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_kills_on_a_bucket_where_a_tenth_of_requests_fail(verb, tmp_path, files, whole, bucket):
    undisturbed = whole(verb)
    place = OnBucket(bucket, verb, tmp_path)
    place.upload(files)
    run = run_of(verb, place, "killed", tmp_path)
    bucket.faults(**FAILING, seed=SEED)
    kill_at_moments(run, undisturbed, MOMENTS, kill_moments(f"{verb} bucket"), slower=2.0)
    injected = bucket.counts()["faults"]
    bucket.faults(reset=True)
    report(verb, "emulator", run, sum(injected.values()))
