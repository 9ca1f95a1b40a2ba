"""The metrics of a run: means over windows, and what the log, TensorBoard and Weights & Biases are told."""

import contextlib
import json
import math
import resource
import sys
import time

import jax.numpy as jnp
import pytest
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

from bert_jax import storage
from bert_jax.training.metrics import MetricsLog, MetricsWindow, read_metrics
from bert_jax.training.workdir import Workdir


@pytest.fixture
def workdir(tmp_path):
    return Workdir(storage.Path(tmp_path))


def test_lines_beyond_the_step_gone_on_from_are_dropped(workdir):
    workdir.metrics.write_text('{"step": 5}\n{"step": 10}\n{"step": 15}\n{"ste')  # the last one cut by a kill
    log = MetricsLog(workdir, 10)
    log.write(12, {"train/loss": 1.5, "train/nothing": math.nan})
    log.close()
    lines = [json.loads(line) for line in workdir.metrics.read_text().splitlines()]
    assert lines == [{"step": 5}, {"step": 10}, {"step": 12, "train/loss": 1.5, "train/nothing": None}]


VALUES = {"train/loss": 1.5, "train/näme": -0.25, "eval/perplexity": 1e300, "train/grad_norm": math.nan}


def test_tensorboard_is_told_the_same(workdir):
    log = MetricsLog(workdir, 2**40)
    log.write(2**40 + 2, VALUES)
    log.close()
    (path,) = workdir.events.iterdir()
    data, events = path.read_bytes(), []
    while data:  # length uint64, its CRC, the event, its CRC
        size = int.from_bytes(data[:8], "little")
        events.append(event_pb2.Event.FromString(data[12 : 12 + size]))
        for part, crc in ((data[:8], data[8:12]), (data[12 : 12 + size], data[12 + size : 16 + size])):
            assert masked_crc32c(part) == int.from_bytes(crc, "little")
        data = data[16 + size :]
    version, start, scalars = events
    assert version.file_version == "brain.Event:2" and abs(version.wall_time - time.time()) < 60
    assert (start.step, start.session_log.status) == (2**40 + 1, event_pb2.SessionLog.START)
    assert scalars.step == 2**40 + 2
    read = {value.tag: value.simple_value for value in scalars.summary.value}
    assert read == pytest.approx(VALUES | {"eval/perplexity": math.inf}, nan_ok=True)


def test_tensorboard_drops_the_steps_that_a_killed_run_had_written(workdir):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for call, (start, steps) in enumerate(((0, (1, 2, 3)), (2, (3, 4)))):
        log = MetricsLog(workdir, start)
        for step in steps:
            log.write(step, {"train/loss": start + step / 2})
        log.close()
        (path,) = set(workdir.events.iterdir()) - set(workdir.events.glob("*-*"))
        path.rename(workdir.events / f"events.out.tfevents.-{call}")  # both calls may begin in one second
    accumulator = event_accumulator.EventAccumulator(str(workdir.events))
    accumulator.Reload()
    read = [(event.step, event.value) for event in accumulator.Scalars("train/loss")]
    assert read == [(1, 0.5), (2, 1.0), (3, 3.5), (4, 4.0)]


class Recorder:
    """Stands in for the package wandb and for a run of it: remembers the calls."""

    def __init__(self):
        self.calls = []

    def init(self, **given):
        self.calls.append(("init", given))
        return self

    def log(self, values, step):
        self.calls.append(("log", values, step))

    def finish(self):
        self.calls.append("finish")


def test_weights_and_biases_is_told_the_same_in_one_run(workdir, monkeypatch):
    wandb = Recorder()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for step in (10, 20):
        log = MetricsLog(workdir, step, "berts", {"seed": 3})
        log.write(step + 2, {"train/loss": 1.5})
        log.close()
    first, *rest, again, _, _ = wandb.calls
    assert rest == [("log", {"train/loss": 1.5}, 12), "finish"]
    assert again == first and first[1]["project"] == "berts" and first[1]["config"] == {"seed": 3}
    assert first[1]["resume"] == "allow" and first[1]["id"] == workdir.wandb_id.read_text()


def test_a_full_disk_is_said_with_the_name_of_the_file(workdir):
    log = MetricsLog(workdir, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match=r"File too large: .*metrics\.jsonl"):
            log.write(1, {f"train/{i}": 0.5 for i in range(1000)})
        with contextlib.suppress(OSError):
            log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_window_averages_sums_over_counts_and_fetches_late():
    seen = []
    window = MetricsWindow(lambda step, means: seen.append((step, means["loss"])), depth=1)
    for step, (total, count) in enumerate(((1.0, 1.0), (6.0, 2.0), (0.0, 3.0)), start=1):
        window.add(step, {"loss": (jnp.float32(total), jnp.float32(count))})
    assert window.last == {"loss": 3.0}  # of the second; the third is still under way
    assert window.close() == {"loss": 7 / 6}
    assert window.close() == {}
    assert seen == [(1, 1.0), (2, 3.0), (3, 0.0)]


LINES = [b'{"step": 10, "train/loss": 2.0}', b'{"step": 20, "train/loss": 1.0}', b'{"step": 30, "train/loss": null}']


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"step": 15, "train/\xff": 2.0}', b"\x00\x00\x00", b'{"step": 15', b"[1]", b'{"step": "15"}',
        b'{"step": true}', b'{"step": 15, "n": 1' + b"0" * 400 + b"}",
        b'{"train/loss": 2.0}', b'{"step": 15, "train/loss": "low"}', b'{"step": 15, "train/loss": [2.0]}',
        b'{"step": 15, "train/loss": NaN}', b'{"step": 15, "train/loss": 1e999}',
        b'{"step": 15, "\\ud800": 1.0}', b"{" * 100_000, b"",
    ],
    ids=lambda line: line[:30].decode("latin1"),
)  # fmt: skip
def test_a_damaged_line_costs_that_line_and_is_kept(tmp_path, caplog, damaged):
    workdir = Workdir(storage.Path(tmp_path))
    content = b"\n".join([LINES[0], damaged, *LINES[1:], b""])
    workdir.metrics.write_bytes(content)
    assert [line["step"] for line in read_metrics(workdir.metrics)] == [10, 20, 30]
    log = MetricsLog(workdir, 20)
    log.write(25, {"train/loss": 0.5})
    log.close()
    assert [line["step"] for line in read_metrics(workdir.metrics)] == [10, 20, 25]
    assert (tmp_path / "metrics-damaged.jsonl").read_bytes() == content
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(f"damaged lines (1) are left out; they are kept in {tmp_path / 'metrics-damaged.jsonl'}")
    MetricsLog(workdir, 20).close()
    assert sorted(path.name for path in tmp_path.glob("metrics*")) == ["metrics-damaged.jsonl", "metrics.jsonl"]


@pytest.mark.parametrize("cut", [1, 10, len(LINES[2])])
def test_a_line_that_a_kill_cut_short_is_no_damage(tmp_path, caplog, cut):
    workdir = Workdir(storage.Path(tmp_path))
    workdir.metrics.write_bytes(b"\n".join(LINES)[:-cut])
    MetricsLog(workdir, 100).close()
    assert [line["step"] for line in read_metrics(workdir.metrics)] == [10, 20]
    assert not caplog.records and not (tmp_path / "metrics-damaged.jsonl").exists()


def test_logs_that_were_set_aside_before_stay(tmp_path):
    workdir = Workdir(storage.Path(tmp_path))
    (tmp_path / "metrics-damaged.jsonl").write_bytes(b"of another time")
    workdir.metrics.write_bytes(b"\xff\n")
    MetricsLog(workdir, 0).close()
    assert (tmp_path / "metrics-damaged.jsonl").read_bytes() == b"of another time"
    assert (tmp_path / "metrics-damaged-2.jsonl").read_bytes() == b"\xff\n"
