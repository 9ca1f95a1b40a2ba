"""Entry point of `bert-jax` and `python -m bert_jax`; Ctrl-C during its imports ends in one line."""

import os
import sys

_STOPPED = (130, 143)  # by SIGINT or SIGTERM


def main() -> int:
    """Runs the command line of `bert_jax.cli` and returns its exit status."""
    try:
        from bert_jax.cli import main as run

        status = run()
    except KeyboardInterrupt:
        print("bert-jax: interrupted", file=sys.stderr)
        status = _STOPPED[0]
    jax = sys.modules.get("jax")
    if status in _STOPPED and not (jax is not None and jax.distributed.is_initialized()):
        # All is written. Threads in compiled code, which Python would tear down under them, would crash.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
