"""Entry point of `bert-jax` and `python -m bert_jax`: set up the process, and report Ctrl-C without a traceback."""

import logging
import os
import sys
import warnings

_STOPPED = (130, 143)  # exit statuses after SIGINT and SIGTERM
_TRAINING = ("pretrain", "finetune", "distill", "demo")  # verbs that train


def main() -> int:
    """Set up the process, run the command line of `bert_jax.cli`, and return its exit status."""
    try:
        _prepare_process()

        from bert_jax.cli import main as run

        status = run()
        logging.getLogger("asyncio").disabled = True  # else unfinished tasks of Orbax log errors that are reported
    except KeyboardInterrupt:
        print("bert-jax: interrupted", file=sys.stderr)
        status = _STOPPED[0]
    jax = sys.modules.get("jax")
    if status in _STOPPED and not (jax is not None and jax.distributed.is_initialized()):
        # All output is written. A normal exit would crash threads that still run compiled code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _prepare_process() -> None:
    """Set how the process prints unexpected errors and, for verbs that train, that it keeps freed memory."""
    from bert_jax.cli.output import print_exception, print_unraisable
    from bert_jax.process import keep_freed_memory

    sys.excepthook, sys.unraisablehook = print_exception, print_unraisable
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")  # after a failed save of Orbax
    verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if verb in _TRAINING:
        keep_freed_memory()  # must come before the JAX backend starts


if __name__ == "__main__":
    sys.exit(main())
