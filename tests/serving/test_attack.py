"""A mixed attack beside honest clients: none of their requests is lost, and memory is bounded."""

import sys
from pathlib import Path

import pytest
import served

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, and every address 127.x.x.x")


def attacked(model, tmp_path, kinds, seconds, quiet):
    """The report of an attack on a server of a small model, which is also served with a hostile tokenizer."""
    from benchmarks import attack

    plain, regex = map(str, attack.write_models(model, tmp_path))
    with served.process(tmp_path / "log", plain, regex, "--quiet", "--read-timeout", "2") as process:
        port = int(process.address.rpartition(":")[2])
        report = attack.measure(port, process.popen.pid, seconds, quiet, kinds, rate=2)
        assert process.popen.poll() is None and not process.events("error")
    attack.show(report)
    for load in (report.before, report.during, report.after):
        assert load.lost == [] and len(load.seconds) > 0
    assert sum(report.attacks[kind].get("connections", 0) for kind in kinds) > 0
    return report


@pytest.mark.slow
def test_no_honest_request_is_lost(models, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    kinds = ("bodies", "holders", "strangers")
    report = attacked(models["embedder"], tmp_path, kinds, seconds=6, quiet=2)
    assert report.during.refused <= len(report.during.seconds) / 2
    assert report.usages[-1].resident < report.usages[0].resident + 400
    assert report.usages[-1].descriptors < report.usages[0].descriptors + 30


@pytest.mark.slow
def test_no_honest_request_is_lost_in_a_minute_of_all_attacks(models, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.attackers import ATTACKS

    report = attacked(models["embedder"], tmp_path, tuple(ATTACKS), seconds=60, quiet=10)
    assert report.usages[-1].resident < report.usages[0].resident + 500
    assert report.usages[-1].descriptors < report.usages[0].descriptors + 30
