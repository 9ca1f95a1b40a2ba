"""A server of small models of every task, in a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import served

# Name -> head, and fields of the config.
MODELS = {
    "embedder": ("sentence_embedding", {}),
    "sparse": ("sparse_embedding", {}),
    "reranker": ("sequence_classification", {"num_labels": 1}),
    "classes": ("sequence_classification", {"id2label": ("bad", "good", "mixed"), "num_labels": 3}),
    "masks": ("masked_lm", {}),
    "tags": ("token_classification", {"id2label": ("O", "B-PER", "I-PER"), "num_labels": 3}),
}


@pytest.fixture(scope="session")
def models(tmp_path_factory, write_small) -> dict[str, Path]:
    """The directories of the models, by name."""
    root = tmp_path_factory.mktemp("served")
    return {name: write_small(root / name, head, **fields) for name, (head, fields) in MODELS.items()}


@pytest.fixture(scope="session")
def server(models, tmp_path_factory) -> Iterator[served.Process]:
    """`bert-jax serve` of all models."""
    log = tmp_path_factory.mktemp("log") / "server.jsonl"
    with served.process(log, *map(str, models.values()), "--batch-tokens", "32", "--token-ids") as process:
        yield process
