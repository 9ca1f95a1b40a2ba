"""Warnings of a run that stands still."""

import logging
import time

import pytest

from bert_jax.training.throughput import Chrono
from bert_jax.training.watchdog import Watchdog


def test_a_step_that_takes_too_long_is_told_of(caplog, capfd):
    chrono = Chrono()
    watchdog = Watchdog(0.2, chrono)
    with caplog.at_level(logging.WARNING), watchdog.watching():
        for step in range(1, 5):
            watchdog.beat(step)
            time.sleep(0.02)
        assert not caplog.messages
        with chrono.pause("input"):
            time.sleep(0.5)
        watchdog.beat(5)
        told = len(caplog.messages)
        time.sleep(0.05)
    assert told == len(caplog.messages) == 2
    assert caplog.messages[0] == "host 0 of 1: no step has ended for 0.2 s since step 4; it is at input"
    assert capfd.readouterr().err.count("test_a_step_that_takes_too_long") == 1  # the stack, once


@pytest.mark.parametrize("seconds", [0, 600])
def test_a_run_ends_at_once(seconds):
    start = time.monotonic()
    with Watchdog(seconds, Chrono()).watching():
        pass
    assert time.monotonic() - start < 5
