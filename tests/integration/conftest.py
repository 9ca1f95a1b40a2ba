"""The data that the runs of this folder learn from."""

import random

import pytest
from small import sentence

from bert_jax.data.pretraining.prepare import prepare


@pytest.fixture(scope="session")
def data(tmp_path_factory, tiny_tokenizer):
    """A prepared corpus, a vocabulary, and labelled tables (is there a fish in it?)."""
    root, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    documents = ["\n".join(sentence(rng) for _ in range(6)) for _ in range(60)]
    (root / "corpus.txt").write_text("\n\n".join(documents))
    prepare(str(root / "corpus.txt"), tiny_tokenizer, root / "prepared", max_seq_length=32, dupe_factor=2,
            validation_fraction=0.1, num_workers=1)  # fmt: skip
    (root / "tokenizer").mkdir()
    tiny_tokenizer.save(root / "tokenizer")
    for name, rows in (("train", 200), ("dev", 40)):
        texts = [sentence(rng) for _ in range(rows)]
        lines = [f"{text}\t{'yes' if 'fish' in text else 'no'}" for text in texts]
        (root / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    return root
