"""Suppress the output of Orbax, asyncio and the interpreter about an error that is raised here as one line."""

import contextlib
import gc
import logging
import re
import traceback
from collections.abc import Iterator
from typing import Any

import orbax.checkpoint  # noqa: F401  (imports absl, whose logger must not exist before)

from bert_jax.process import unraisable_ignored

_LOGGERS = ("absl", "asyncio")

_STATUS = re.compile("[A-Z]+(_[A-Z]+)*: ")  # with which each error of TensorStore begins, such as OUT_OF_RANGE


@contextlib.contextmanager
def quiet_orbax() -> Iterator[None]:
    """Suppress the noise of failed reads and writes of checkpoints while the block runs.

    Orbax logs pages, asyncio logs the other errors of the same save, and the interpreter warns about unfinished
    coroutines and callbacks of closed event loops.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    loggers = [logger for logger in loggers if _not_from_orbax not in logger.filters]  # nested
    for logger in loggers:
        logger.addFilter(_not_from_orbax)
    with unraisable_ignored(_is_unfinished):
        try:
            yield
        except BaseException as error:
            _release_frames(error)
            raise
        finally:
            gc.collect()  # triggers the warnings about unfinished coroutines here, not after the block
            for logger in loggers:
                logger.removeFilter(_not_from_orbax)


def _release_frames(error: BaseException | None) -> None:
    """Clear the frames of Orbax and asyncio in the tracebacks of an error, which keep unfinished coroutines alive."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if any(name in frame.f_code.co_filename for name in ("orbax", "asyncio")):
                with contextlib.suppress(RuntimeError):  # the frame is still running
                    frame.clear()
        error = error.__cause__ or error.__context__


def _not_from_orbax(record: logging.LogRecord) -> bool:
    frames = traceback.extract_tb(record.exc_info[2]) if record.exc_info else ()
    if record.name == "asyncio" and any(frame.name == "_wrap_awaitable" for frame in frames):
        return False  # a future of TensorStore, which is not a coroutine
    if record.name == "asyncio" and record.exc_info and _STATUS.match(str(record.exc_info[1])):
        return False  # the same, where its task was cancelled first: an error without frames
    return not any("orbax" in path for path in (record.pathname, *(frame.filename for frame in frames)))


def _is_unfinished(unraisable: Any) -> bool:
    """Return whether an error is that of a coroutine or an event loop of a failed read or write."""
    code = getattr(unraisable.object, "cr_code", None)
    from_orbax = code is not None and "orbax" in code.co_filename
    return from_orbax or str(unraisable.exc_value) == "Event loop is closed"
