"""Small corpora and what is prepared from them, for the tests of this folder."""

import random
from pathlib import Path

import numpy as np

VOCABULARY = (
    "the cat dog bird fish house tree river stone red green blue old young big small runs sat cats sleeping greener"
)


def write_corpus(path: Path, documents: int = 40, sentences: int = 12, seed: int = 0) -> Path:
    """Writes a text file of random sentences, one paragraph of two sentences a line, a blank line between documents."""
    rng = random.Random(seed)
    words = VOCABULARY.split()
    lines = []
    for _ in range(documents):
        for _ in range(sentences // 2):
            pair = (" ".join(rng.choices(words, k=rng.randint(3, 14))).capitalize() for _ in range(2))
            lines.append(". ".join(pair) + ".")
        lines.append("")
    path.write_text("\n".join(lines))
    return path


def assert_equal(ours, theirs):
    """Whether two batches are the same, array by array."""
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
