"""Random moments at which runs are killed: they follow from a seed, which a failing test prints.

The variable BERT_JAX_KILLS_SEED sets it, so that the same moments come again.
"""

import os
import random

# Set for the processes that the tests start, too.
SEED = int(os.environ.setdefault("BERT_JAX_KILLS_SEED", str(random.SystemRandom().randrange(10**6))))


def kill_moments(of: str) -> random.Random:
    """Return the generator of the moments of one test, and print the seed."""
    print(f"BERT_JAX_KILLS_SEED={SEED}")
    return random.Random(f"{SEED} {of}")
