"""Entry point of `bert-jax` and `python -m bert_jax`; Ctrl-C during imports prints one line, no traceback."""

import os
import sys

_STOPPED = (130, 143)  # by SIGINT or SIGTERM


def main() -> int:
    """Run the command line of `bert_jax.cli` and return its exit status."""
    try:
        from bert_jax.cli import main as run

        status = run()
    except KeyboardInterrupt:
        print("bert-jax: interrupted", file=sys.stderr)
        status = _STOPPED[0]
    jax = sys.modules.get("jax")
    if status in _STOPPED and not (jax is not None and jax.distributed.is_initialized()):
        # Everything is written. A normal exit would crash threads that still run compiled code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
