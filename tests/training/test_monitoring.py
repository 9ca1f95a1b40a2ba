"""Where the time of a run goes, its rates, and warnings of a run that hangs."""

import logging
import time

import jax
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.modeling import Bert
from bert_jax.sharding import make_mesh
from bert_jax.training.monitoring import Throughput, Timer, Watchdog


def test_pauses_are_not_training():
    timer = Timer()
    with timer.pause("evaluation"):
        time.sleep(0.05)
        assert timer.at == "evaluation"
    assert timer.totals()["evaluation"] >= 0.05 > timer.totals()["training"]
    assert timer.at == "training"


def test_a_lap_counts_what_its_steps_did():
    timer, mesh = Timer(), make_mesh(devices=jax.devices()[:1])
    throughput = Throughput(timer, mesh, tokens_seen=1000)
    for _ in range(3):
        throughput.add(Bert(BertConfig.named("tiny"), "masked_lm"), {"input_ids": np.zeros((4, 16), np.int32)})
    with timer.pause("input"):
        time.sleep(0.3)
    rates = throughput.close()
    assert rates["tokens_seen"] == 1000 + 3 * 4 * 16
    assert rates["tokens_per_second"] == pytest.approx(3 * 4 * 16 / rates["training_seconds"])
    assert rates["tokens_per_second"] == pytest.approx(16 * rates["sequences_per_second"])
    assert rates["input_seconds"] >= 0.3 > rates["training_seconds"]
    empty = throughput.close()
    assert (empty["tokens_seen"], empty["input_seconds"], empty["tokens_per_second"]) == (1192, 0, 0)


def test_a_step_that_takes_too_long_is_told_of(caplog, capfd):
    timer = Timer()
    watchdog = Watchdog(0.5, timer)
    with caplog.at_level(logging.WARNING), watchdog.watching():
        for step in range(1, 5):
            watchdog.beat(step)
            time.sleep(0.02)
        assert not caplog.messages
        with timer.pause("input"):
            time.sleep(1.2)
        watchdog.beat(5)
        told = len(caplog.messages)
        time.sleep(0.05)
    assert told == len(caplog.messages) == 2
    assert all(fact in caplog.messages[0] for fact in ("host 0 of 1", "0.5 s", "step 4", "input"))
    assert capfd.readouterr().err.count("test_a_step_that_takes_too_long") == 1  # the stack, once


@pytest.mark.parametrize("seconds", [0, 600])
def test_a_run_ends_at_once(seconds):
    start = time.monotonic()
    with Watchdog(seconds, Timer()).watching():
        pass
    assert time.monotonic() - start < 5
