"""Ctrl-C and SIGTERM: when they end a process, when they are only noted, and what the user is told."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from bert_jax.cli.output import print_unraisable
from bert_jax.training import stopping
from bert_jax.training.stopping import Interrupted, Preempted, listening


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, Interrupted), (signal.SIGTERM, Preempted)])
def test_while_there_is_nothing_to_save_a_signal_ends_at_once(number, error):
    before = signal.getsignal(number)
    with pytest.raises(error), listening():
        os.kill(os.getpid(), number)
        pytest.fail("went on")
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, Interrupted), (signal.SIGTERM, Preempted)])
def test_while_there_is_something_to_save_a_signal_is_noted(number, error):
    done = []
    with pytest.raises(error), listening() as stop:
        with stop.deferred():
            os.kill(os.getpid(), number)
            done.append(stop.number)
        pytest.fail("went on after the block")
    assert done == [number]


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, Interrupted), (signal.SIGTERM, Preempted)])
def test_a_signal_in_a_callback_of_the_garbage_collector_is_answered_later(number, error, capfd, monkeypatch):
    def callback(*_):
        gc.callbacks.remove(callback)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(sys, "unraisablehook", print_unraisable)  # as on the command line
    with pytest.raises(error), listening() as stop:
        gc.callbacks.append(callback)
        gc.collect()
        assert stop.number == number
        with stop.deferred():
            pytest.fail("went on")
    assert capfd.readouterr().err == ""


JOINED = """
import signal, socket, sys, time
import jax
from bert_jax.training.stopping import Stop, listening
number, join_first = getattr(signal, sys.argv[1]), sys.argv[2] == "before"
def join():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    jax.distributed.initialize(f"localhost:{port}", num_processes=1, process_id=0)
if join_first:
    join()
try:
    with listening() as stop:
        if not join_first:
            join()
        assert not stop.agreed()
        with stop.deferred():
            signal.raise_signal(number)
            ends = time.monotonic() + 30
            while not stop.agreed() and time.monotonic() < ends:
                time.sleep(0.05)
            raise stop.exception()
except (KeyboardInterrupt, SystemExit) as stopped:
    print(type(stopped).__name__, stop.result())
signal.raise_signal(signal.SIGTERM)  # still JAX's
print("lives")
"""


@pytest.mark.parametrize("joined", ["before", pytest.param("within", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("number", "said"),
    [("SIGINT", "Interrupted interrupted before"), ("SIGTERM", "Preempted stopped by a signal before")],
)
def test_a_process_joined_to_others_leaves_sigterm_to_jax(number, said, joined):
    done = subprocess.run([sys.executable, "-c", JOINED, number, joined], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[1:]) == (0, ["lives"]) and lines[0].startswith(said), done.stderr


def test_a_second_interrupt_in_a_library_call_is_raised_at_once():
    with pytest.raises(KeyboardInterrupt), listening() as stop, stop.deferred():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("went on")


def test_one_within_another_is_the_same():
    with listening() as outer, listening() as inner:
        assert inner is outer
    with listening() as other:
        assert other is not outer


def test_another_thread_changes_no_handler():
    handlers = []

    def work():
        with listening() as stop, stop.deferred():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize(
    ("command", "saved", "expected"),
    [
        ("", 7, "interrupted; step 7 is saved; resume with the same command"),
        ("bert-jax finetune", 7, "interrupted; step 7 is saved; resume with: bert-jax finetune"),
        (
            "bert-jax \x1b[2J",
            None,
            "interrupted before the first step; nothing to save; start again with: bert-jax \\x1b[2J",
        ),
        ("x" * 5000, 7, "interrupted; step 7 is saved; resume with the same command"),
    ],
)
def test_what_is_said(command, saved, expected):
    stop = stopping.Stop(command)
    stop.saved = saved
    assert stop.result() == expected


_BUSY = """
import contextlib, signal, sys, time
from bert_jax.cli.output import print_unraisable
from bert_jax.training import stopping
stopping.GRACE_SECONDS = 0.5
with stopping.listening("COMMAND") as stop:
    # As in compiled code: signals reach the process, but do not wake the main thread.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with stop.deferred() if sys.argv[1] == "deferred" else contextlib.nullcontext():
        print("ready", flush=True)
        time.sleep(30)
"""


@pytest.mark.parametrize(
    ("mode", "signals", "code", "said"),
    [
        ("deferred", [signal.SIGINT, signal.SIGINT], 130, "ended at once, without saving; resume with: COMMAND"),
        ("deferred", [signal.SIGTERM, signal.SIGINT], 130, "ended at once, without saving; resume with: COMMAND"),
        ("starting", [signal.SIGINT], 130, "before the first step; nothing to save; start again with: COMMAND"),
        ("starting", [signal.SIGTERM], 143, "before the first step; nothing to save; start again with: COMMAND"),
    ],
)
def test_a_process_that_is_in_compiled_code_is_ended_all_the_same(tmp_path, mode, signals, code, said):
    (tmp_path / "busy.py").write_text(_BUSY)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "busy.py", mode], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    for number in signals:
        time.sleep(0.2)
        process.send_signal(number)
    sent = time.monotonic()
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, time.monotonic() - sent < 5) == (code, True)
    assert said in errors.splitlines()[-1] and "Traceback" not in errors
