"""What the progress of a run shows: a live bar in a terminal, lines elsewhere."""

import io

import pytest
from rich.console import Console

from bert_jax.training.monitoring import Timer
from bert_jax.training.progress import Bar, clock, describe


def test_what_the_bar_says():
    values = {
        "loss": 3.21,
        "mlm_accuracy": 0.31,
        "learning_rate": 1e-4,
        "sequences_per_second": 51.2,
        "mfu": 0.4,
        "x": 1,
    }
    shown = ["loss 3.210", "mlm accuracy 0.310", "lr 1.00e-04", "51 sequences/s", "MFU 40.0%"]
    assert describe(values).split("  ") == shown
    assert (clock(75.2), clock(3675)) == ("1:15", "1:01:15")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_live_bar_in_a_terminal_and_lines_elsewhere(terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80, soft_wrap=True)
    bar = Bar(200, 0, True, Timer(), console)
    values = {"loss": 3.21, "mlm_accuracy": 0.31, "learning_rate": 1e-4, "sequences_per_second": 51.2}
    bar.update(100, values)
    bar.line(100, values)
    if terminal:
        bar._live.refresh()
    bar.close()
    shown = console.file.getvalue()
    assert "step 100/200" in shown and "loss 3.210  mlm accuracy 0.310  lr 1.00e-04  51 sequences/s" in shown
    assert ("\x1b" in shown) == terminal


def test_a_bar_that_is_not_to_be_shown_says_nothing(capsys):
    bar = Bar(2, 0, False, Timer())
    bar.line(1, {"loss": 1.0})
    bar.say("hello")
    bar.close()
    assert capsys.readouterr() == ("", "")
