"""Structured logs: one JSON object per line on stderr, without texts or keys of clients."""

import datetime
import json
import sys
import threading
from typing import Any

from bert_jax.errors import one_line, printable

_lock = threading.Lock()


def log_event(event: str, **fields: Any) -> None:
    """Write one line: `time` (UTC), `event` and the fields that are not None; strings are made printable."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    line: dict[str, Any] = {"time": now, "event": event}
    for name, value in fields.items():
        if isinstance(value, str):
            line[name] = printable(one_line(value))
        elif value is not None:
            line[name] = round(value, 6) if isinstance(value, float) else value
    with _lock:
        print(json.dumps(line), file=sys.stderr, flush=True)
