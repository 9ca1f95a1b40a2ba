"""Documents that share most of their runs of words are found: compared with a comparison of all pairs."""

import itertools
import json
import random
import sys

import numpy as np
import pytest

from bert_jax.data.corpora.readers import Document
from bert_jax.data.corpora.sources import Corpus
from bert_jax.data.pretraining.deduplication import REMOVED_FILE
from bert_jax.data.pretraining.near_duplicates import bands_for, shingles, signature
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError

SIMILARITY = 0.8


def planted(count=400, seed=0):
    """Random texts; every second one is an earlier text with 0 to 16 words replaced."""
    rng = random.Random(seed)
    words = [f"w{n}" for n in range(2000)]
    texts = []
    for number in range(count):
        if number % 2 and number > 3:
            found = rng.choice(texts).split()
            for _ in range(rng.choice((0, 0, 1, 2, 4, 8, 16))):
                found[rng.randrange(len(found))] = rng.choice(words)
        else:
            found = rng.choices(words, k=rng.randint(80, 300))
        texts.append(" ".join(found))
    return texts


def jaccard(one, other):
    return len(one & other) / len(one | other)


@pytest.fixture(scope="module")
def removed(tmp_path_factory, tiny_tokenizer):
    """The texts, and what was removed: number -> (first, kind)."""
    texts, out = planted(), tmp_path_factory.mktemp("near") / "out"
    corpus = Corpus("planted", lambda: (Document(str(n), (text,)) for n, text in enumerate(texts)))
    manifest = prepare(corpus, tiny_tokenizer, out, deduplicate="near", max_seq_length=32, dupe_factor=1, num_workers=1)
    lines = [json.loads(line) for line in (out / REMOVED_FILE).read_text().splitlines()]
    found = {int(line["document"][8:]): (int(line["first"][8:]), line["kind"]) for line in lines}
    assert manifest.removed == len(lines) == len(found)
    assert sum(manifest.documents.values()) == len(texts) - len(found)
    return texts, found


def test_recall_and_precision(removed):
    texts, found = removed
    sets = [set(shingles([text]).tolist()) for text in texts]
    most = [max((jaccard(sets[n], earlier) for earlier in sets[:n]), default=0.0) for n in range(len(texts))]
    near = {n for n, similarity in enumerate(most) if similarity >= SIMILARITY}
    assert len(near) > 60 and len(found) > 60
    recall, precision = (len(near & found.keys()) / len(total) for total in (near, found))
    assert recall > 0.95 and precision > 0.95, (recall, precision)
    clear = {n for n, similarity in enumerate(most) if abs(similarity - SIMILARITY) > 0.1}
    assert clear & near == clear & found.keys()  # what is missed or wrong is near the border
    assert all(first < n and jaccard(sets[n], sets[first]) > SIMILARITY - 0.1 for n, (first, _) in found.items())


def test_equal_texts_are_called_exact(removed):
    texts, found = removed
    exact = {n for n, text in enumerate(texts) if text in texts[:n]}
    assert exact == {n for n, (_, kind) in found.items() if kind == "exact"} and len(exact) > 10
    assert all(texts[n] == texts[found[n][0]] for n in exact)


def test_signatures_estimate_similarity():
    texts = planted(60, seed=1)
    errors = []
    for one, other in itertools.combinations(texts, 2):
        exact = jaccard(set(shingles([one]).tolist()), set(shingles([other]).tolist()))
        if exact > 0.3:
            errors.append(np.mean(signature([one]) == signature([other])) - exact)
    assert len(errors) > 15 and abs(np.mean(errors)) < 0.03 and np.std(errors) < 0.06


@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.8, 0.95, 1.0])
def test_bands_find_documents_of_the_similarity(similarity):
    bands, length = bands_for(similarity)
    assert bands * length <= 128 and 1 - (1 - similarity**length) ** bands >= 0.97


def test_scripts_without_spaces():
    one, other = (
        "\u732b\u304c\u5ea7\u308b\u3002\u72ac\u304c\u8d70\u308b\u3002",
        "\u732b\u304c\u5ea7\u308b\u3002\u72ac\u304c\u6b69\u304f\u3002",
    )
    assert len(set(shingles([one]).tolist()) & set(shingles([other]).tolist())) == 2 and len(shingles([one])) == 4
    assert len(shingles(["..."])) == len(shingles(["one two"])) == 1


def test_settings_and_a_missing_package(tmp_path, tiny_tokenizer, monkeypatch):
    corpus = Corpus("planted", lambda: iter([Document("a", ("The cat sat.",)), Document("b", ("It ran.",))]))
    for settings, message in (
        ({"deduplicate": "fuzzy"}, "deduplicate: expected one of '', 'exact', 'near', found 'fuzzy'"),
        ({"similarity": 0.0}, "similarity: expected above 0"),
    ):
        with pytest.raises(InputError, match=message):
            prepare(corpus, tiny_tokenizer, tmp_path / "out", **settings)
    from bert_jax.data.pretraining import near_duplicates

    near_duplicates._datasketch.cache_clear()
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(InputError, match="expected datasketch, which estimates similarity"):
        prepare(corpus, tiny_tokenizer, tmp_path / "out", deduplicate="near")
    near_duplicates._datasketch.cache_clear()
