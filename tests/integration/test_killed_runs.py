"""Kinds of runs, killed by SIGKILL at random moments and started again, end as those that were never killed.

The moments follow from a seed (kill_moments.py).
"""

from pathlib import Path

import pytest
from kill_moments import SEED, kill_moments
from killed_kinds import KINDS, Makers
from killing import Disk, OnBucket, Run, assert_ended_alike, kill_at_moments, run_of, whole_run

MOMENTS = 5
# A tenth of all requests: reads and writes are refused, or their connections are cut before or within the answer.
FAILING = {"fail": 0.06, "fail_status": [503, 429], "cut": 0.04}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data, tiny_tokenizer, write_small):
    """Gives the run of a kind that was never killed, and its folder."""
    runs: dict[str, tuple[Run, Path]] = {}

    def of(kind: str) -> tuple[Run, Path]:
        if kind not in runs:
            folder = tmp_path_factory.mktemp(kind.replace(" ", "_"))
            runs[kind] = whole_run(kind, Makers(data, tiny_tokenizer, write_small), folder), folder
        return runs[kind]

    return of


def report(kind, place, run, failed=0):
    """A line of figures, which `pytest -s` shows."""
    moments = ", ".join(f"{seconds:.1f} s ({step})" for seconds, step in run.kills)
    print(f"\n{kind} | {place} | {moments} | equal | {len(run.kills)} | {failed} | seed {SEED}")


def test_one_kill_on_a_disk(tmp_path, whole):
    kill_on_a_disk("relation extraction", 1, tmp_path, whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kills_on_a_disk(kind, tmp_path, whole):
    kill_on_a_disk(kind, MOMENTS, tmp_path, whole)


def kill_on_a_disk(kind, count, folder, whole):
    undisturbed, home = whole(kind)
    place = Disk(home / "files")
    name = f"killed_{count}"
    run = run_of(KINDS[kind], place, name, folder)
    kill_at_moments(run, undisturbed, count, kill_moments(f"{kind} disk"))
    assert_ended_alike(KINDS[kind], home / "files/whole", place.fetched(name))
    report(kind, "disk", run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kills_on_a_bucket_where_a_tenth_of_requests_fail(kind, tmp_path, whole, bucket):
    undisturbed, home = whole(kind)
    place = OnBucket(bucket, kind.replace(" ", "_"), tmp_path)
    place.upload(home / "files")
    run = run_of(KINDS[kind], place, "killed", tmp_path)
    bucket.faults(**FAILING, seed=SEED)
    kill_at_moments(run, undisturbed, MOMENTS, kill_moments(f"{kind} bucket"), slower=2.0)
    injected = bucket.counts()["faults"]
    bucket.faults(reset=True)
    assert_ended_alike(KINDS[kind], home / "files/whole", place.fetched("killed"))
    assert injected["503"] and injected["429"] and injected["cut before"]
    report(kind, "emulator", run, sum(injected.values()))
