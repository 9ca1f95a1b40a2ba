"""`python -m bert_jax`: the same as the `bert-jax` command."""

import sys

from bert_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
