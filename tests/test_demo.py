"""The tasks that the demo and the notebooks make of Python's documentation."""

import pytest

pytest.importorskip("sklearn", reason="the demo compares itself with a model of scikit-learn")

from bert_jax.data.corpora.readers import Document
from bert_jax.demo import LIBRARIES, library_task

SENTENCES = (
    "The gradient of a function is a function.",
    "See numpy for the meaning of these arguments.",
    "Too short for it.",
)


def test_library_task():
    documents = [
        Document(
            f"python-docs:{library}.module{number}", [" ".join(SENTENCES), f"This is module {number} of {label} kinds."]
        )
        for label, library in enumerate((*LIBRARIES, "email"))
        for number in range(40)
    ]
    rows = {split: list(library_task(documents, split)) for split in ("train", "held-out")}
    sentences = {split: [sentence for sentence, _ in found] for split, found in rows.items()}
    for split, found in sentences.items():
        assert len(set(found)) == len(found)
        assert found.count(SENTENCES[0]) == 1 and not set(SENTENCES[1:]) & set(found), split
    own = {split: set(found) - {SENTENCES[0]} for split, found in sentences.items()}
    assert not own["train"] & own["held-out"]
    assert 0 < len(own["held-out"]) < len(own["train"])
    assert len(own["train"]) + len(own["held-out"]) == 40 * len(LIBRARIES)  # and none of another library
    assert ("This is module 7 of 3 kinds.", LIBRARIES[3]) in rows["train"] + rows["held-out"]
