"""The picture of a run's curves."""

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
    write_report(workdir, "a run")
    assert workdir.report.read_bytes().startswith(b"\x89PNG")
    assert len(read_metrics(workdir.metrics)) == 3
