"""A prepared directory with two lengths, for all tests of this folder."""

import pytest
from prepared_corpora import write_corpus

from bert_jax.data.pretraining.prepare import prepare


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, tiny_tokenizer):
    folder = tmp_path_factory.mktemp("prepared")
    corpus = write_corpus(folder / "corpus.txt", documents=40)
    prepare(
        str(corpus), tiny_tokenizer, folder / "out", max_seq_length=(48, 64), dupe_factor=1, num_workers=1,
        validation_fraction=0.2, shard_bytes=4000,
    )  # fmt: skip
    return folder / "out"
