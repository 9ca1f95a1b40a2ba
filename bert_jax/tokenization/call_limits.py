"""Limits on a thread's calls of tokenizers; long texts are then tokenized in a worker process."""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.errors import TextError


@dataclasses.dataclass(frozen=True)
class CallLimits:
    """Limits on a thread's calls of tokenizers.

    Attributes:
        seconds: maximum CPU seconds of a call; None = in proportion to its number of characters.
        background: whether calls yield the processor to all other processes.
        in_process: maximum characters of a call that stays in the calling thread, if the tokenizer takes linear time.
    """

    seconds: float | None = None
    background: bool = False
    in_process: int = 1024


class BudgetExceeded(TextError):
    """Tokenizing a text exceeded the budget of time or memory."""


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
    """Return whether the limits of this thread send texts to a worker process."""
    limits = _limits.get()
    return limits is not None and sum(len(text) for text in texts if isinstance(text, str)) > limits.in_process


def current_limits() -> CallLimits:
    """Return the limits of this thread, or the defaults outside of `limited`."""
    return _limits.get() or CallLimits()
