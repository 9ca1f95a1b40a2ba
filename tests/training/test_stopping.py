"""Ctrl-C and SIGTERM: when they end a process, when they are only noted, and what the user is told."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

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
def test_a_signal_in_a_callback_of_the_garbage_collector_is_answered_later(number, error, capfd):
    def callback(*_):
        gc.callbacks.remove(callback)
        os.kill(os.getpid(), number)

    hook = sys.unraisablehook
    with pytest.raises(error), listening() as stop:
        gc.callbacks.append(callback)
        gc.collect()
        assert stop.number == number
        with stop.deferred():
            pytest.fail("went on")
    assert capfd.readouterr().err == "" and sys.unraisablehook is hook


HANDLERS = """
import ctypes, os, signal, sys
from bert_jax.training.stopping import Preempted, listening
libc = ctypes.CDLL(None)
called = []
if sys.argv[1] == "plain":
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(called.append)
    flags = 0
else:  # as absl's failure handler, which libtpu installs
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p)(
        lambda number, info, context: called.append(info[0]))
    flags = 4  # SA_SIGINFO
address = ctypes.cast(handler, ctypes.c_void_p).value
action = address.to_bytes(8, "little") + bytes(128) + flags.to_bytes(4, "little") + bytes(12)
assert libc.sigaction(signal.SIGTERM, action, None) == 0
try:
    with listening() as stop, stop.deferred():
        os.kill(os.getpid(), signal.SIGINT if sys.argv[2] == "interrupt" else signal.SIGTERM)
        assert stop.number is not None
except (KeyboardInterrupt, Preempted):
    print("stopped", called)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="C handlers are called on Linux")
@pytest.mark.parametrize("sent", ["interrupt", "terminate"])
@pytest.mark.parametrize(("kind", "called"), [("plain", [15]), ("of crashes", [])])
def test_handlers_of_c_are_called_unless_they_report_crashes(kind, called, sent):
    """In a process of its own; the plain one is as JAX's, by which hosts agree on a step."""
    done = subprocess.run([sys.executable, "-c", HANDLERS, kind, sent], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"stopped {called}\n"), done.stderr


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
        with listening() as stop, stop.paused(), stop.deferred():
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
