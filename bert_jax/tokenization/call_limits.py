"""Limits on the calls of tokenizers in a thread, and which calls a worker process therefore runs."""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.errors import TextError


@dataclasses.dataclass(frozen=True)
class CallLimits:
    """Limits of the calls of a thread.

    Attributes:
        seconds: CPU seconds of a call; None = by its number of characters.
        background: whether calls yield the processor to all other processes.
        in_process: characters up to which a tokenizer of linear time runs in the calling thread.
    """

    seconds: float | None = None
    background: bool = False
    in_process: int = 1024


class BudgetExceeded(TextError):
    """A text whose tokenization exceeded its budget of time or memory."""


_limits: contextvars.ContextVar[CallLimits | None] = contextvars.ContextVar("limits", default=None)


@contextlib.contextmanager
def limited(limits: CallLimits) -> Iterator[None]:
    """Apply limits to every tokenizer that this thread calls within the block."""
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


def needs_worker(texts: Sequence[Any]) -> bool:
    """Return whether `limited` sends texts to a worker."""
    limits = _limits.get()
    return limits is not None and sum(len(text) for text in texts if isinstance(text, str)) > limits.in_process


def current_limits() -> CallLimits:
    """Return the limits of this thread, or the defaults outside of `limited`."""
    return _limits.get() or CallLimits()
