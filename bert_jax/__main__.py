"""`bert-jax` and `python -m bert_jax`: the command line, whose very imports Ctrl-C ends in one line."""

import sys


def main() -> int:
    """Runs the command line of `bert_jax.cli` and returns its exit status."""
    try:
        from bert_jax.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("bert-jax: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
