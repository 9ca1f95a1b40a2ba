"""The picture of a run's curves."""

import sys

from bert_jax import storage
from bert_jax.training.curves import write_report
from bert_jax.training.metrics import MetricsLog, read_metrics
from bert_jax.training.workdir import Workdir


def test_the_report_shows_the_curves_there_are(tmp_path):
    workdir = Workdir(storage.Path(tmp_path))
    log = MetricsLog(workdir, 0)
    for step in (10, 20):
        log.write(step, {"train/loss": 1 / step, "train/mlm_accuracy": 0.1, "train/learning_rate": 1e-4})
    log.write(20, {"eval/mlm_loss": 2.0})
    log.close()
    assert write_report(workdir, "a run") == f"curves in {workdir.report}"
    assert workdir.report.read_bytes().startswith(b"\x89PNG")
    assert len(read_metrics(workdir.metrics)) == 3


def test_without_matplotlib_the_user_reads_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    workdir = Workdir(storage.Path(tmp_path))
    assert write_report(workdir, "a run").startswith("for curves: pip install ")
    assert not workdir.report.exists()
