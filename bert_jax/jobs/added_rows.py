"""Add rows to a pretrained model's word embedding for tokens that a task adds to the vocabulary."""

import numpy as np

from bert_jax.conversion.load_pretrained import Loaded


def with_word_rows(loaded: Loaded, rows: int, seed: int) -> Loaded:
    """Return a model whose word embedding has at least `rows` rows; new rows are near the mean of the others."""
    more = rows - loaded.config.vocab_size
    if more <= 0:
        return loaded
    tables = loaded.params["embeddings"]
    table = np.asarray(tables["word_embeddings"]["embedding"])
    random = np.random.default_rng([seed, more])
    new = table.mean(axis=0) + random.normal(0, loaded.config.initializer_range, (more, table.shape[1]))
    grown = {"embedding": np.concatenate([table, new.astype(table.dtype)])}
    params = loaded.params | {"embeddings": tables | {"word_embeddings": grown}}
    return loaded._replace(config=loaded.config.replace(vocab_size=rows), params=params)
